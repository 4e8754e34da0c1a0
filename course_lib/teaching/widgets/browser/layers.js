// The fusion drawing: ONNX nodes on the left, kernels on the right, a band from each node to the kernel that computes it.

const ROW = 20, LINE = 14; // px
const FUSED = { name: "several nodes fused", color: COLORS[1] }, ALONE = { name: "one node alone", color: COLORS[0] };
const ADDED = { name: "added by the compiler", dashes: "4 3" }, WITHOUT = { name: "node without a kernel", dashes: "1 3" };

const kindOf = ({ nodes }) => (nodes.length > 1 ? FUSED : nodes.length ? ALONE : ADDED);

/** A box in the look of a kind: filled, or empty with a dashed edge. */
const boxOf = ({ color, dashes }, place) => shape("rect", { ...place, fill: color ?? "none", "fill-opacity": 0.25, stroke: color ?? "currentColor", "stroke-dasharray": dashes });

const words = (search) => search.toLowerCase().split(/\s+/).filter(Boolean);
const facts = (kernel) => [[kernel.bytes && bytes(kernel.bytes), kernel.type].filter(Boolean).join(", "), kernel.shape].filter(Boolean);
const texts = (build, kernel) => [kernel.fused, kernel.name, kernel.whole_name, ...kernel.nodes.map((at) => build.nodes[at][0]), kernel.kind,
  kernel.reads, kernel.weights, kernel.writes, kernel.shape, kernel.format];

/** Which kernels of a build pass the filters. Words are looked for in all that is known of a kernel. */
function passing(build, { dtype, search }) {
  return build.kernels.map((kernel) => {
    const text = texts(build, kernel).join(" ").toLowerCase();
    return (dtype === "all" || kernel.dtypes.includes(dtype)) && words(search).every((word) => text.includes(word));
  });
}

/** The first text that holds a word of the search, otherwise the first text. */
function matched(texts, search) {
  return texts.find((text) => words(search).some((word) => text.toLowerCase().includes(word))) ?? texts[0];
}

/** Where a search finds kernels that finds none here. */
function elsewhere(data, state) {
  const number = (build, dtype) => passing(build, { dtype, search: state.search }).filter(Boolean).length;
  const places = data.builds.flatMap((build, at) => [
    at === state.build ? [0] : [number(build, state.dtype), `in the build ${build.label}`],
    [state.dtype === "all" ? 0 : number(build, "all"), `with another type${at === state.build ? "" : ` in the build ${build.label}`}`]]);
  return places.filter(([one]) => one).map((one) => one.join(" ")).join(", ") ;
}

const count = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

/** The rows on the left: their nodes, and the kernels that compute them. A node may have none, or several, which share one row unless each has its own. */
function rowsOf({ nodes, kernels }, collapsed) {
  if (collapsed) return kernels.flatMap((kernel, at) => (kernel.nodes.length ? [{ nodes: kernel.nodes, kernels: [at] }] : []));
  return nodes.map((_, node) => ({ nodes: [node], kernels: kernels.flatMap((kernel, at) => (kernel.nodes.includes(node) ? [at] : [])) }));
}

/** What became of a kernel of one build in the other one, "" where there is none or nothing changed. */
function counterpart(data, state) {
  if (data.builds.length < 2) return "";
  const change = data.changes.find((one) => one.kernels[state.build].includes(state.kernel));
  if (!change) return "";
  const other = 1 - state.build, there = change.kernels[other].map((at) => data.builds[other].kernels[at]);
  if (!there.length) return "no such kernel";
  const properties = new Map(); // what differs in the same way is one phrase
  for (const [property, values] of Object.entries(change.differs)) {
    const [before, after] = values.map((value) => value || "unknown"), phrase = `${before} before, ${after} after`;
    properties.set(phrase, [...(properties.get(phrase) ?? []), property]);
  }
  const kernels = there.length > 2 ? "" : there.length > 1 || change.kernels[state.build].length > 1 ? ` (${there.map((kernel) => kernel.fused || kernel.name).join("; ")})` : "";
  return [`${change.kind}, ${count(there.length, "kernel")}${kernels}`, ...[...properties].map(([phrase, names]) => `${names.join(", ")} ${phrase}`)].join("; ");
}

const WIDGET = {
  name: "Kernels of an engine",

  controls(data) {
    const dtypes = [...new Set(data.builds.flatMap(({ kernels }) => kernels.flatMap((kernel) => kernel.dtypes)))].sort();
    const builds = { name: "build", label: "Build", kind: "choice", options: data.builds.map((one, at) => [one.label, at]) };
    return [
      ...(data.builds.length > 1 ? [builds] : []),
      { name: "dtype", label: "Computes with", kind: "choice", options: ["all", ...dtypes].map((one) => [one, one]) },
      { name: "search", label: "Name contains", kind: "text", placeholder: "kernel, operator or ONNX node" },
      { name: "collapsed", label: "One row per kernel", kind: "switch" },
    ];
  },

  describe(data, state) {
    const build = data.builds[state.build], shown = passing(build, state).filter(Boolean).length;
    const nodes = new Set(build.kernels.flatMap((kernel) => kernel.nodes)).size;
    const which = data.builds.length > 1 ? `${build.label}: ` : "";
    const title = `${which}${count(build.kernels.length, "kernel")} for ${nodes < build.nodes.length ? `${nodes} of ` : ""}${count(build.nodes.length, "ONNX node")}`;
    if (!shown) {
      const places = elsewhere(data, state);
      return { title, facts: [["shown", "0"], ["matches", places || `none in ${data.builds.length > 1 ? "either build" : "this build"}`]] };
    }
    const moved = bytes(build.kernels.reduce((sum, one) => sum + one.bytes, 0)), kernel = build.kernels[state.kernel];
    const filtered = ["shown", shown < build.kernels.length ? `${shown} of ${build.kernels.length}` : ""];
    if (!kernel) {
      return { title, facts: [filtered, ["types", Object.entries(build.dtypes).map(([name, number]) => `${name} in ${number}`).join(", ")],
        ["read and written", `${moved}${build.dynamic ? " for N = 1 (batch 1)" : ""}`], ["from before to after", data.headline]] };
    }
    return { title: `Kernel ${state.kernel + 1}, ${kernel.fused || "added by the compiler"}`, facts: [
      ["reads", kernel.reads], ["weights", kernel.weights], ["writes", kernel.writes], ["shape", kernel.shape], ["format", kernel.format], ["moves", kernel.bytes ? `${bytes(kernel.bytes)} of ${moved}` : ""],
      filtered, ["name", `${shortened(kernel.name, 48)}${kernel.words && ` (${kernel.words})`}`], [data.builds.length > 1 ? `in ${data.builds[1 - state.build].label}` : "", counterpart(data, state)]] };
  },

  picks: (data) => data.builds.flatMap(({ kernels }, build) => kernels.map((_, kernel) => ({ build, kernel }))),

  draw(stage, { data, state, width, change }) {
    const build = data.builds[state.build], shown = passing(build, state), all = build.kernels;
    const rows = rowsOf(build, state.collapsed);
    const brief = width < 760, narrow = width < 500, [nodeRight, kernelLeft] = (narrow ? [0.36, 0.45] : [0.4, 0.54]).map((share) => share * width), room = width - kernelLeft - 12;
    const measure = measurer(stage), measureBold = measurer(stage, "bold"), oneLine = all.every((kernel) => measure(facts(kernel).join(", ")) <= room);
    const tall = (oneLine ? 2 : 3) * LINE + 10, distance = tall + 6, span = Math.max(rows.length * ROW, all.length * distance), top = 22;
    const middle = rows.map((_, at) => top + ((at + 0.5) * span) / Math.max(rows.length, 1));
    const joined = all.map((_, at) => rows.flatMap(({ kernels }, row) => (kernels.includes(at) ? [row] : [])));
    const places = stacked(joined.map((rows) => rows.map((row) => middle[row])), top, span, distance);
    const most = Math.max(...all.map((kernel) => kernel.bytes), 1);
    const svg = shape("svg", { width, height: top + span + 6, role: "group", "aria-label": `ONNX nodes and kernels. ${WIDGET.describe(data, state).title}` },
      label(0, 12, brief ? "ONNX nodes" : "ONNX nodes, in the graph's order", { opacity: 0.75 }), label(kernelLeft, 12, brief ? "kernels; bar: bytes" : "kernels in order; bar: bytes moved; click one", { opacity: 0.75 }));
    all.forEach((kernel, at) => {
      const kind = kindOf(kernel), faded = shown[at] ? 1 : 0.15, chosen = at === state.kernel;
      const part = tall / Math.max(joined[at].length, 1), edge = places[at] - tall / 2;
      joined[at].forEach((row, place) => {
        const y = edge + place * part, half = ROW * 0.4, x = (nodeRight + kernelLeft) / 2, from = middle[row];
        svg.append(shape("path", { fill: kind.color, opacity: (chosen ? 0.7 : at % 2 ? 0.4 : 0.25) * faded, "data-kernel": at,
          d: `M${nodeRight} ${from - half} C${x} ${from - half} ${x} ${y} ${kernelLeft} ${y} v${part} C${x} ${y + part} ${x} ${from + half} ${nodeRight} ${from + half} z` }));
      });
      const pick = () => change({ kernel: chosen ? -1 : at });
      const box = shape("g", { class: state.search && at === shown.indexOf(true) ? "course-found" : undefined, role: "button", tabindex: at === Math.max(state.kernel, 0) ? 0 : -1, opacity: faded, "data-key": at, "aria-pressed": String(chosen),
        "aria-label": `Kernel ${at + 1}: ${kernel.fused || kernel.name}`, onclick: pick, onkeydown: (event) => keys(event, stage, all.length, at, pick) },
      shape("title", {}, `${kernel.whole_name} (${kernel.kind})`),
      boxOf(kind, { x: kernelLeft, y: edge, width: width - kernelLeft - 1, height: tall, "stroke-width": chosen ? 3 : 1 }),
      shape("rect", { x: kernelLeft, y: edge + tall - 6, width: (width - kernelLeft - 1) * (kernel.bytes / most), height: 6, fill: "currentColor", opacity: 0.6 }),
      label(kernelLeft + 6, edge + 12, fitted(state.search && shown[at] ? matched(texts(build, kernel), state.search) : kernel.fused || "added", room, measureBold), { "font-weight": "bold" }),
      ...(oneLine ? [facts(kernel).join(", ")] : facts(kernel)).map((fact, line) => label(kernelLeft + 6, edge + 26 + line * LINE, fitted(fact, room, measure), { opacity: 0.85 })));
      box.addEventListener("pointerenter", () => hover(svg, at));
      box.addEventListener("pointerleave", () => hover(svg, -1));
      keepKeys(box);
      svg.append(box);
    });
    rows.forEach(({ nodes, kernels }, row) => {
      const owner = kernels[kernels.length - 1] ?? -1, kind = owner < 0 ? WITHOUT : kindOf(all[owner]), faded = (owner < 0 ? shown.every(Boolean) : shown[owner]) ? 1 : 0.15, names = nodes.map((node) => build.nodes[node][0]), operators = nodes.map((node) => build.nodes[node][1] || build.nodes[node][0]);
      const box = shape("g", { opacity: faded },
        shape("title", {}, names.join("\n")),
        boxOf(kind, { x: 1, y: middle[row] - ROW * 0.4, width: nodeRight - 1, height: ROW * 0.8 }),
        label(6, middle[row] + 4, fitted(matched([operators.join(" + "), ...names], state.search), nodeRight - 12, measure)));
      box.addEventListener("pointerenter", () => hover(svg, owner));
      box.addEventListener("pointerleave", () => hover(svg, -1));
      svg.append(box);
    });
    const present = new Set([...all.map(kindOf), ...(rows.every(({ kernels }) => kernels.length) ? [] : [WITHOUT])]);
    const legend = [FUSED, ALONE, ADDED, WITHOUT].filter((kind) => present.has(kind)).map((kind) => element("span", {}, shape("svg", { viewBox: "0 0 14 14" }, boxOf(kind, { x: 1, y: 1, width: 12, height: 12 })), kind.name));
    stage.append(element("div", { class: "course-legend", "aria-hidden": "true" }, ...legend), element("div", { class: "course-scroll" }, svg));
  },
};

/** One tab stop for all kernels: arrow keys move between them, Enter picks one. */
function keys(event, stage, number, at, pick) {
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: number - 1 }[event.key];
  if (to !== undefined) stage.querySelector(`[data-key="${Math.min(Math.max(to, 0), number - 1)}"]`).focus();
  else if (event.key === "Enter" || event.key === " ") pick();
  else return;
  event.preventDefault();
}

function hover(svg, at) {
  svg.querySelectorAll("path[data-kernel]").forEach((band) => { band.style.opacity = at < 0 ? "" : Number(band.dataset.kernel) === at ? 0.8 : 0.12; });
}

/** Position of each kernel: level with its nodes as far as the order of execution and the space allow. */
function stacked(nodes, top, span, distance) {
  const places = [];
  nodes.forEach((beside, at) => {
    const earliest = at ? places[at - 1] + distance : top + distance / 2;
    places.push(beside.length ? Math.max(earliest, beside.reduce((sum, y) => sum + y, 0) / beside.length) : earliest);
  });
  for (let at = places.length - 1, last = top + span - distance / 2; at >= 0; at--, last -= distance) places[at] = Math.min(places[at], last);
  return places;
}
