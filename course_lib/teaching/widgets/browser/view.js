// What all views share: the browser's own controls with labels, a line of text that a screen reader announces, and a stage to draw on.
//
// Each view is one file that defines WIDGET:
//   name                    what the view explores, its heading
//   controls(data)          the controls, see `control` below
//   describe(data, state)   {title, facts}: what the picture shows, one sentence and pairs of a word and its value; needs no browser
//   draw(stage, view)       draws into the empty element `stage`; `view` is {data, state, width, change}
//   picks(data)             states, apart from the lists' options, whose description may need more lines than the first; optional
// Python joins this file and that one, for Jupyter as a module of anywidget, for a page without a kernel as a script.

const SVG = "http://www.w3.org/2000/svg";
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]; // Okabe and Ito, as `course_lib.style`
const FAINT = "var(--course-faint)", NEUTRAL = "var(--course-neutral)"; // an area behind others, and what is not chosen
const NARROWEST = 270; // px of a stage

/** An HTML element with attributes, listeners (`onclick: ...`) and children. */
function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element, likewise. */
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function label(x, y, words, attributes = {}) {
  return shape("text", { x, y, "font-size": 11, fill: "currentColor", ...attributes }, words);
}

/** A power of ten: 10⁻⁴. */
const powerOfTen = (power) => `10${String(power).replace(/./g, (one) => (one === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[one]))}`;

/** A number with `count` significant digits, without zeros at the end: 0.0003, 1.5, 1.2×10⁻⁸. */
function digits(value, count = 3) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
  if (value === 0) return "0";
  const [mantissa, exponent] = value.toExponential(count - 1).split("e");
  const power = Number(exponent);
  if (power >= -4 && power < count) return String(Number(value.toPrecision(count)));
  return Number(mantissa) === 1 ? powerOfTen(power) : `${Number(mantissa)}×${powerOfTen(power)}`;
}

const whole = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");
const bytes = (count) => (count >= 999500 ? `${digits(count / 1e6)} MB` : count >= 999.5 ? `${digits(count / 1e3)} KB` : `${count} B`);
const percent = (share) => `${digits(100 * share)} %`;

/** Microseconds with the unit that suits them. */
function duration(us) {
  const short = (value) => (value >= 99.95 ? value.toFixed(0) : digits(value));
  for (const [unit, size] of [["s", 1e6], ["ms", 1e3]]) if (us >= 0.9995 * size) return `${short(us / size)} ${unit}`;
  return `${short(us)} µs`;
}

/** The text, or its beginning and end with an ellipsis between. */
function shortened(text, longest) {
  const tail = Math.floor(longest / 2) - 1;
  return text.length <= longest ? text : `${text.slice(0, longest - tail - 1)}…${text.slice(text.length - tail)}`;
}

/** Measures the width of a label of a stage in px. */
function measurer(stage, weight = "normal") {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${weight} 11px ${getComputedStyle(stage).fontFamily}`;
  return (text) => pen.measureText(text).width;
}

/** The text, shortened until it fits; "" where three letters do not. */
function fitted(text, room, measure) {
  const whole = measure(text);
  if (whole <= room) return text;
  let letters = Math.min(text.length - 1, Math.ceil((1.5 * text.length * room) / whole));
  while (letters > 3 && measure(shortened(text, letters)) > room) letters--;
  return letters > 3 ? shortened(text, letters) : "";
}

/** Positions of round numbers on an axis. */
function ticks(low, high, most = 6) {
  const step = 10 ** Math.floor(Math.log10((high - low) / most));
  const size = [1, 2, 5, 10].map((factor) => factor * step).find((one) => (high - low) / one <= most);
  const found = [];
  for (let at = Math.ceil(low / size); at * size <= high + size * 1e-9; at++) found.push(Number((at * size).toPrecision(12)));
  return found;
}

/** A horizontal axis below a plot: a line, its ticks, and what it counts. `place` maps a value to a position. */
function axis(left, right, y, values, place, title, text = (value) => digits(value)) {
  return shape("g", {},
    shape("line", { x1: left, x2: right, y1: y, y2: y, stroke: "currentColor" }),
    ...values.flatMap((value) => [
      shape("line", { x1: place(value), x2: place(value), y1: y, y2: y + 4, stroke: "currentColor" }),
      label(place(value), y + 16, text(value), { "text-anchor": "middle" })]),
    label((left + right) / 2, y + 32, title, { "text-anchor": "middle" }));
}

/** The height of a count in a histogram whose rare values matter as much as the frequent ones, and labels at the powers of ten. */
function logCounts(most, left, top, bottom) {
  const y = (count) => bottom - (Math.log10(count + 1) / Math.log10(most + 1)) * (bottom - top);
  const labels = [];
  for (let power = 0; 10 ** power <= most; power++) labels.push(label(left - 4, y(10 ** power) + 4, power < 6 ? whole(10 ** power) : powerOfTen(power), { "text-anchor": "end" }));
  return { y, labels };
}

/** Positions in their order, moved apart where labels would overlap. */
function spread(places, distance = 12) {
  let last = -Infinity;
  const moved = [...places];
  for (const at of places.map((_, at) => at).sort((a, b) => places[a] - places[b])) last = moved[at] = Math.max(places[at], last + distance);
  return moved;
}

/** Lines with their names at their ends, the chosen one in color and above the others. `lines`: name, points in px, chosen, dashed. */
function namedLines(lines, right) {
  const heights = spread(lines.map(({ points }) => points[points.length - 1][1]));
  const drawn = lines.map(({ name, points, chosen, dashed }, at) => shape("g", {},
    shape("polyline", { points: points.join(" "), fill: "none", stroke: chosen ? COLORS[0] : NEUTRAL, "stroke-width": chosen ? 3 : 1.2, "stroke-dasharray": dashed ? "4 3" : undefined }),
    label(right + 9, heights[at] + 4, name, { "font-weight": chosen ? "bold" : "normal" })));
  return shape("g", {}, ...drawn.filter((_, at) => !lines[at].chosen), ...drawn.filter((_, at) => lines[at].chosen));
}

/** JupyterLab takes keys such as ArrowDown and B for its commands. It looks for this attribute on the focused element itself. */
function keepKeys(...elements) {
  elements.forEach((one) => one.setAttribute("data-lm-suppress-shortcuts", "true"));
}

/** A labeled control. `spec`: name, label, kind ("number", "choice", "switch" or "text"), for a number low and high of its slider,
 *  least and most that can be typed, step (of the value, or of its decimal logarithm with `log`), and functions of the state: how many
 *  `decimals` are shown, and whether the control is `hidden` because it has no effect. */
function control(spec, read, write, decimals) {
  const name = spec.label;
  let elements, show;
  if (spec.kind === "choice") {
    const list = element("select", { onchange: () => write(spec.options[Number(list.value)][1]) },
      ...spec.options.map(([words], at) => element("option", { value: at }, words)));
    elements = [list];
    show = () => { list.value = spec.options.findIndex(([, value]) => value === read()); };
  } else if (spec.kind === "switch") {
    const box = element("input", { type: "checkbox", onchange: () => write(box.checked) });
    elements = [box];
    show = () => { box.checked = read(); };
  } else if (spec.kind === "text") {
    const line = element("input", { type: "search", placeholder: spec.placeholder, oninput: () => write(line.value) });
    elements = [line];
    show = () => { if (line.value !== read()) line.value = read(); };
  } else {
    const to = spec.log ? Math.log10 : (value) => value, { low, high, least = low, most = high } = spec;
    const places = Math.round((to(high) - to(low)) / spec.step);
    const inside = (value) => Math.min(Math.max(spec.grid ? Math.round(value / spec.grid) * spec.grid : value, least), most);
    const slider = element("input", { type: "range", min: 0, max: places, step: 1, oninput: () => {
      const place = to(low) + slider.value * (to(high) - to(low)) / places;
      write(inside(Number((spec.log ? 10 ** place : place).toPrecision(spec.log ? 3 : 12))));
    } });
    const commit = () => { if (Number.isFinite(box.valueAsNumber)) write(inside(box.valueAsNumber)); show(); };
    const box = element("input", { type: "number", min: least, max: most, step: spec.grid ?? "any", "aria-label": `${name}, exact value`,
      onchange: commit, onkeydown: (event) => { if (event.key === "Enter") commit(); } });
    elements = [slider, box];
    show = () => {
      slider.value = Math.round((to(Math.min(Math.max(read(), low), high)) - to(low)) * places / (to(high) - to(low)));
      const rounded = String(Number(spec.decimals ? read().toFixed(decimals()) : read().toPrecision(7)));
      slider.setAttribute("aria-valuetext", rounded);
      box.value = rounded;
    };
  }
  keepKeys(...elements);
  elements[0].id = `course-${Math.random().toString(36).slice(2)}`; // two views on a page must not share one
  const box = element("div", { class: `course-control course-${spec.kind}` },
    element("label", { for: elements[0].id }, name), ...elements);
  return { box, show };
}

/** Puts a view into `el`. `save` is called with the state a moment after it last changed. */
function mount(widget, el, data, state, save) {
  el.classList.add("course-view");
  const stage = element("div", { class: "course-stage" });
  const title = element("strong"), facts = element("div", { class: "course-facts" });
  const status = element("div", { role: "status", "aria-live": "polite", class: "course-status" }, title, facts);
  let saving, width = 0, tallest = 0, searched = state.search;
  const say = (state) => {
    const described = widget.describe(data, state);
    title.textContent = described.title;
    facts.replaceChildren(...described.facts.filter(([, value]) => value !== "").map(([word, value]) =>
      element("span", {}, element("span", { class: "course-word" }, `${word}:`), ` ${value}`)));
    tallest = Math.max(tallest, title.offsetHeight + facts.offsetHeight);
  };
  const change = (part) => {
    Object.assign(state, part);
    refresh();
    clearTimeout(saving);
    saving = setTimeout(() => save({ ...state }), 150);
  };
  const controls = widget.controls(data).map((spec) =>
    ({ spec, ...control(spec, () => state[spec.name], (value) => change({ [spec.name]: value }), () => spec.decimals(state)) }));
  /** Room for the longest description, so that a choice does not move what is below. */
  const reserve = () => {
    const length = (part) => widget.describe(data, { ...state, ...part }).facts.flat().join(" ").length;
    const options = widget.controls(data).filter(({ kind }) => kind === "choice").flatMap(({ name, options }) => options.map(([, value]) => ({ [name]: value })));
    const parts = [...options, ...(widget.picks?.(data) ?? [])].map((part) => [length(part), part]).sort(([a], [b]) => b - a);
    tallest = 0;
    for (const [, part] of parts.slice(0, 8)) say({ ...state, ...part });
  };
  const refresh = () => {
    for (const one of controls) {
      one.show();
      one.box.hidden = Boolean(one.spec.hidden?.(state));
    }
    say(state);
    status.style.setProperty("--course-room", `${tallest}px`);
    if (!width) return;
    const focused = stage.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const above = stage.querySelector(".course-scroll")?.scrollTop;
    if (!widget.keeps) stage.replaceChildren();
    widget.draw(stage, { data, state, width, change });
    const scroll = stage.querySelector(".course-scroll"), found = stage.querySelector(".course-found");
    if (scroll) scroll.scrollTop = found && state.search !== searched ? found.getBBox().y - scroll.clientHeight / 4 : above ?? 0;
    searched = state.search;
    if (focused !== undefined) stage.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
  };
  el.append(element("div", { class: "course-name" }, widget.name), element("div", { class: "course-controls" }, ...controls.map((one) => one.box)), status, stage);
  refresh();
  const seen = new ResizeObserver(() => {
    const room = Math.max(Math.floor(stage.clientWidth), NARROWEST);
    if (room === width) return;
    width = room;
    reserve();
    refresh();
  });
  seen.observe(stage);
  let ink = getComputedStyle(el).color;
  const watch = widget.keeps && setInterval(() => { // a canvas keeps its colors, and JupyterLab changes its theme without an event here
    if (ink === getComputedStyle(el).color) return;
    ink = getComputedStyle(el).color;
    refresh();
  }, 500);
  return { update: (part) => { Object.assign(state, part); refresh(); }, end: () => { clearTimeout(saving); clearInterval(watch); seen.disconnect(); } };
}
