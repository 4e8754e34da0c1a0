// A timeline to zoom into, from milliseconds down to single kernels. Times are microseconds.

const LINE = 20, SHORTEST = 1, JOINED = 2; // px of a row; us that a window at least holds; px below which neighbors share a bar
const FILLS = { range: COLORS[2], operator: "#999999", call: COLORS[5], "call that waits": COLORS[3], kernel: COLORS[0], "CUDA graph": "#7A5BA8", copy: COLORS[4],
  "pageable copy": COLORS[1], memset: "#777777" };

/** The parts of sorted, disjoint stretches that lie in a window. */
function clipped(stretches, start, end) {
  return stretches.filter(([from, to]) => to > start && from < end).map(([from, to]) => [Math.max(from, start), Math.min(to, end)]);
}

function idle(data, start, end) {
  const gaps = [];
  let last = Math.max(start, data.start);
  for (const [from, to] of clipped(data.busy, start, end)) {
    if (from > last) gaps.push([last, from]);
    last = to;
  }
  if (Math.min(end, data.end) > last) gaps.push([last, Math.min(end, data.end)]);
  return gaps;
}

const sum = (stretches) => stretches.reduce((total, [from, to]) => total + to - from, 0);

/** How many events a search finds, under which names, and where if none is in the window. */
function matching(data, search, start, end) {
  const { name, start: starts, us } = data.events, contains = (text) => text.toLowerCase().includes(search.toLowerCase());
  const all = name.map((_, at) => at).filter((at) => contains(data.names[name[at]])).sort((a, b) => starts[a] - starts[b]);
  const names = data.names.filter(contains), listed = (texts) => texts.slice(0, 3).join(", ") + (texts.length > 3 ? ", ..." : "");
  if (!all.length) return `0 events match; the names are ${listed(data.names)}`;
  const inside = all.filter((at) => starts[at] <= end && starts[at] + us[at] >= start).length;
  const where = inside ? `, ${whole(inside)} of them in this window` : `, none of them in this window: the first one starts at ${digits(starts[all[0]] / 1e3, 6)} ms`;
  return `${all.length === 1 ? "1 event matches" : `${whole(all.length)} events match`} (${listed(names)})${inside < all.length ? where : ""}`;
}

const about = (data, at) => `${shortened(data.names[data.events.name[at]], 48)} (${data.kinds[data.events.kind[at]]}), ${duration(data.events.us[at])}, from ${digits(data.events.start[at] / 1e3, 6)} ms`;

const WIDGET = {
  name: "Timeline",
  keeps: true,

  controls(data) {
    const decimals = (state) => Math.min(Math.max(Math.ceil(2 - Math.log10(Math.abs(state.to - state.from) + 1e-9)), 0), 6);
    const end = { kind: "number", low: data.start / 1e3, high: data.end / 1e3, step: (data.end - data.start) / 4e5, decimals };
    return [
      { name: "from", label: "From (ms)", ...end },
      { name: "to", label: "To (ms)", ...end },
      { name: "search", label: "Name contains", kind: "text", placeholder: "event to highlight" },
      { name: "faults", label: "Mark the faults", kind: "switch" },
    ];
  },

  describe(data, state) {
    const [start, end] = stretch(data, state), gaps = idle(data, start, end).map(([from, to]) => to - from).sort((a, b) => b - a);
    const all = start <= data.start && end >= data.end, busy = sum(clipped(data.busy, start, end)) / Math.max(end - start, 1e-9);
    const title = all ? data.headline : `${data.device} busy ${(100 * busy).toFixed(0)} % of ${duration(end - start)}`;
    const longest = gaps.length ? `, the longest ${gaps.slice(0, 3).map(duration).join(", ")}` : "";
    return { title, facts: [["gaps", `${whole(gaps.length)}${longest}`],
      ["faults of the whole timeline", data.faults.map(({ name, share }) => `${name} (${(100 * share).toFixed(0)} %)`).join(", ") || "none found"],
      ["found", state.search && matching(data, state.search, start, end)], ["chosen", state.event < 0 ? "nothing: click an event" : about(data, state.event)]] };
  },

  picks: (data) => [{ event: data.events.name.indexOf(data.names.reduce((longest, name, at) => (name.length > data.names[longest].length ? at : longest), 0)) }],

  draw(stage, view) {
    stage.view = view;
    if (!stage.firstChild) begin(stage);
    paint(stage);
  },
};

function stretch(data, { from, to }) {
  const [start, end] = [1e3 * Math.min(from, to), 1e3 * Math.max(from, to)], lack = Math.max(SHORTEST - (end - start), 0) / 2;
  return [start - lack, end + lack];
}

/** Makes the canvas and what the mouse and the keyboard do. */
function begin(stage) {
  const canvas = element("canvas", { tabindex: 0, role: "img" });
  const hint = element("div", { class: "course-hint" }), usual = window.matchMedia("(pointer: coarse)").matches ? "Drag sideways: move. Tap an event: read it. From and To: zoom."
    : "Click, then wheel or + and -: zoom. Drag or arrow keys: move. N and P: next and previous event of the device. Home: everything.";
  hint.textContent = usual;
  const { data } = stage.view, names = { kernel: data.device === "GPU" ? "kernel" : `${data.device} busy` };
  const legend = element("div", { class: "course-legend", "aria-hidden": "true" }, ...data.kinds.map((kind) =>
    element("span", {}, element("i", { style: `background:${FILLS[kind] ?? "#777777"}` }), names[kind] ?? kind)),
    element("span", {}, element("i", { style: "background:var(--course-faint)" }), `${data.device} idle`), element("span", {}, "paler: short events with pauses"));
  keepKeys(canvas);
  stage.append(canvas, legend, hint);
  const show = (start, end) => {
    const { data, change } = stage.view, length = Math.min(Math.max(end - start, SHORTEST), data.end - data.start);
    const from = Math.min(Math.max(start, data.start), data.end - length);
    change({ from: from / 1e3, to: (from + length) / 1e3 });
  };
  const zoom = (factor, middle) => {
    const [start, end] = stretch(stage.view.data, stage.view.state), at = middle ?? (start + end) / 2, length = Math.max((end - start) * factor, SHORTEST);
    show(at - ((at - start) / (end - start)) * length, at + ((end - at) / (end - start)) * length);
  };
  const move = (share) => {
    const [start, end] = stretch(stage.view.data, stage.view.state);
    show(start + share * (end - start), end + share * (end - start));
  };
  const step = (forward) => {
    const { data, state, change } = stage.view, { start, us } = data.events, [from, to] = stretch(data, state);
    const now = state.event >= 0 ? start[state.event] : forward ? from - 1 : to, next = data.device_events.filter((at) => (forward ? start[at] > now : start[at] < now));
    if (!next.length) return;
    const at = forward ? next[0] : next[next.length - 1], length = to - from;
    const inside = start[at] >= from && start[at] + us[at] <= to, left = start[at] + us[at] / 2 - length / 2;
    change({ event: at, ...(inside ? {} : { from: left / 1e3, to: (left + length) / 1e3 }) });
  };
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return; // a reader who scrolls past keeps scrolling
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(stage, event));
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.offsetX, window: stretch(stage.view.data, stage.view.state), moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) {
      const at = eventAt(stage, event);
      hint.textContent = at < 0 ? usual : about(stage.view.data, at);
      return;
    }
    const [start, end] = held.window, by = ((held.x - event.offsetX) / plot(stage.view).width) * (end - start);
    held.moved ||= Math.abs(held.x - event.offsetX) > 3;
    if (held.moved) show(start + by, end + by);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && !held.moved) stage.view.change({ event: eventAt(stage, event) });
    held = null;
  });
  canvas.addEventListener("pointerleave", () => { hint.textContent = usual; });
  canvas.addEventListener("keydown", (event) => {
    const { data } = stage.view, act = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowUp: () => zoom(0.5), ArrowDown: () => zoom(2),
      Home: () => show(data.start, data.end), n: () => step(true), p: () => step(false) }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}

const plot = ({ width }) => { const left = width < 500 ? 100 : 128; return { left, width: width - left - 8 }; };

function timeAt({ view }, event) {
  const { left, width } = plot(view), [start, end] = stretch(view.data, view.state);
  return start + ((event.offsetX - left) / width) * (end - start);
}

/** Adds a short event to the last bar of its row if they touch: a bar is as opaque as its events fill it. */
function join(bars, key, left, wide) {
  const line = bars.get(key) ?? [], last = line[line.length - 1];
  if (last && left - last.right < 1) {
    last.right = Math.max(last.right, left + wide);
    last.filled += wide;
  } else line.push({ left, right: left + wide, filled: wide });
  bars.set(key, line);
}

/** The event under the pointer, the shortest one where several overlap; -1 for none. */
function eventAt(stage, pointer) {
  const { data, state } = stage.view, { row, start, us } = data.events, line = Math.floor((pointer.offsetY - 4) / LINE), [from, to] = stretch(data, state);
  const time = timeAt(stage, pointer), reach = (2 * (to - from)) / plot(stage.view).width;
  let best = -1;
  for (let at = 0; at < row.length; at++) {
    if (row[at] === line && start[at] - reach <= time && start[at] + us[at] + reach >= time && (best < 0 || us[at] < us[best])) best = at;
  }
  return best;
}

function paint(stage) {
  const { data, state, width } = stage.view, canvas = stage.firstChild, sharp = window.devicePixelRatio || 1;
  const faults = state.faults ? data.faults : [], lines = data.rows.length + faults.length, height = 4 + LINE * lines + 38;
  canvas.width = width * sharp;
  canvas.height = height * sharp;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-label", `Timeline: one row per thread and stream. ${WIDGET.describe(data, state).title}`);
  const pen = canvas.getContext("2d"), ink = getComputedStyle(stage).color, area = plot(stage.view), [start, end] = stretch(data, state);
  const x = (time) => area.left + ((time - start) / (end - start)) * area.width, y = (line) => 4 + LINE * line;
  pen.scale(sharp, sharp);
  pen.font = "11px sans-serif";
  pen.textBaseline = "middle";
  const measure = (text) => pen.measureText(text).width;
  pen.save();
  pen.beginPath();
  pen.rect(area.left, 0, area.width, height);
  pen.clip();
  const device = data.rows.map((row, at) => (row.device ? at : -1)).filter((at) => at >= 0);
  pen.globalAlpha = 0.14;
  pen.fillStyle = ink;
  if (device.length) for (const [from, to] of idle(data, start, end)) pen.fillRect(x(from), y(device[0]), x(to) - x(from), y(device[device.length - 1] + 1) - y(device[0]));
  const { row, start: starts, us, name, kind } = data.events, search = state.search.toLowerCase(), short = new Map();
  for (let at = 0; at < row.length; at++) {
    if (starts[at] > end || starts[at] + us[at] < start) continue;
    const left = Math.max(x(starts[at]), area.left), wide = Math.min(x(starts[at] + us[at]), area.left + area.width) - left;
    const faded = search && !data.names[name[at]].toLowerCase().includes(search) ? 0.15 : 1;
    if (wide < JOINED) join(short, `${row[at]} ${kind[at]} ${faded}`, left, wide);
    else {
      pen.globalAlpha = faded;
      pen.fillStyle = FILLS[data.kinds[kind[at]]] ?? "#777777";
      pen.fillRect(left, y(row[at]) + 2, wide, LINE - 4);
      pen.fillStyle = ["kernel", "CUDA graph"].includes(data.kinds[kind[at]]) ? "#fff" : "#000";
      if (wide > 12) pen.fillText(fitted(data.names[name[at]], wide - 2, measure), left + 1, y(row[at]) + LINE / 2);
    }
    if (at === state.event) {
      pen.globalAlpha = 1;
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.strokeRect(left, y(row[at]) + 1, Math.max(wide, 1), LINE - 2);
    }
  }
  for (const [key, line] of short) {
    const [at, kindAt, faded] = key.split(" ").map(Number);
    pen.fillStyle = FILLS[data.kinds[kindAt]] ?? "#777777";
    for (const { left, right, filled } of line) {
      const wide = Math.max(right - left, 1);
      pen.globalAlpha = faded * (0.12 + 0.88 * Math.min(Math.max(filled / wide, 0.2), 1)); // one short event stays visible
      pen.fillRect(left, y(at) + 2, wide, LINE - 4);
    }
  }
  pen.globalAlpha = 1;
  faults.forEach((fault, at) => {
    pen.fillStyle = ink;
    for (const [from, to] of clipped(fault.lost, start, end)) pen.fillRect(x(from), y(data.rows.length + at) + 7, Math.max(x(to) - x(from), 1), LINE - 14);
  });
  pen.restore();
  pen.fillStyle = ink;
  pen.textAlign = "right";
  const titles = [...data.rows.map((one) => one.title), ...faults.map((one) => one.name)];
  titles.forEach((title, at) => pen.fillText(fitted(title, area.left - 5, measure), area.left - 5, y(at) + LINE / 2));
  pen.textAlign = "center";
  const unit = end - start >= 2e3 ? ["ms", 1e3] : ["µs", 1], bottom = y(lines) + 4;
  pen.fillRect(area.left, bottom, area.width, 1);
  for (const value of ticks(start / unit[1], end / unit[1], width < 500 ? 4 : 8)) {
    pen.fillRect(x(value * unit[1]), bottom, 1, 4);
    pen.fillText(digits(value, 7), x(value * unit[1]), bottom + 12);
  }
  pen.fillText(`time (${unit[0]})`, area.left + area.width / 2, bottom + 26);
}
