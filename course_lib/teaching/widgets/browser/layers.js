// The fusion drawing: ONNX nodes on the left, kernels on the right, a band from each node to the kernel that computes it.

const ROW = 20, LINE = 14; // px
const KINDS = [["several nodes fused", COLORS[1]], ["one node alone", COLORS[0]], ["added by the compiler", "none"]];

/** The place of a kernel's kind. */
const kindOf = ({ nodes }) => (nodes.length > 1 ? 0 : nodes.length ? 1 : 2);

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

/** What became of a kernel of one build in the other one, "" where there is none or nothing changed. */
function counterpart(data, state) {
  if (data.builds.length < 2) return "";
  const change = data.changes.find((one) => one.kernels[state.build].includes(state.kernel));
  if (!change) return "";
  const other = 1 - state.build, there = change.kernels[other].map((at) => data.builds[other].kernels[at]);
  const side = data.builds[other].label, names = there.map((kernel) => kernel.fused || kernel.name).join("; ");
  const differs = Object.entries(change.differs).map(([what, [was, is]]) => `${what} ${was || "unknown"} before and ${is || "unknown"} after`);
  return there.length ? ` In the other build: ${change.kind}; ${side}: ${count(there.length, "kernel")} (${names})${differs.length ? `; ${differs.join(", ")}` : ""}.`
    : " The other build has no such kernel.";
}

const WIDGET = {
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
    const title = `${which}${count(build.kernels.length, "kernel")} for ${nodes < build.nodes.length ? `${nodes} of ` : ""}${count(build.nodes.length, "ONNX node")}; ${shown} shown`;
    const types = Object.entries(build.dtypes).map(([name, number]) => `${number} with ${name}`).join(", ");
    const kernel = build.kernels[state.kernel];
    if (!shown) {
      const places = elsewhere(data, state);
      return { title, text: places ? `Matches elsewhere: ${places}.` : `No kernel of ${data.builds.length > 1 ? "either build" : "this build"} matches.` };
    }
    const moved = bytes(build.kernels.reduce((sum, one) => sum + one.bytes, 0));
    if (!kernel) return { title, text: `By type: ${types}. Together they read and write ${moved}${build.dynamic ? " for N = 1 (batch 1)" : ""}.`
      + `${data.headline ? ` From before to after: ${data.headline}.` : ""} Pick a kernel to read what it holds.` };
    const known = [["reads", kernel.reads], ["weights", kernel.weights], ["writes", kernel.writes], ["shape", kernel.shape], ["format", kernel.format],
      ["moves", kernel.bytes ? `${bytes(kernel.bytes)} of ${moved}` : ""]];
    return { title, text: `Kernel ${state.kernel + 1}, ${kernel.fused || "added by the compiler"}: ${known.filter(([, fact]) => fact).map((one) => one.join(" ")).join(", ")}. `
      + `Name: ${kernel.name}${kernel.words && ` (${kernel.words})`}.${counterpart(data, state)}` };
  },

  draw(stage, { data, state, width, change }) {
    const build = data.builds[state.build], shown = passing(build, state), all = build.kernels;
    const rows = state.collapsed ? all.map((kernel) => kernel.nodes).filter((nodes) => nodes.length) : build.nodes.map((_, at) => [at]);
    const brief = width < 760, narrow = width < 500, [nodeRight, kernelLeft] = (narrow ? [0.36, 0.45] : [0.4, 0.54]).map((share) => share * width), room = width - kernelLeft - 12;
    const measure = measurer(stage), measureBold = measurer(stage, "bold"), oneLine = all.every((kernel) => measure(facts(kernel).join(", ")) <= room);
    const tall = (oneLine ? 2 : 3) * LINE + 10, distance = tall + 6, span = Math.max(rows.length * ROW, all.length * distance), top = 22;
    const middle = rows.map((_, at) => top + ((at + 0.5) * span) / Math.max(rows.length, 1));
    const rowOf = new Map(rows.flatMap((nodes, at) => nodes.map((node) => [node, at])));
    const places = stacked(all.map((kernel) => kernel.nodes.map((node) => middle[rowOf.get(node)])), top, span, distance);
    const home = new Map(), most = Math.max(...all.map((kernel) => kernel.bytes), 1);
    const svg = shape("svg", { width, height: top + span + 6, role: "group", "aria-label": `ONNX nodes and kernels. ${WIDGET.describe(data, state).title}` },
      label(0, 12, brief ? "ONNX nodes" : "ONNX nodes, in the graph's order", { opacity: 0.75 }), label(kernelLeft, 12, brief ? "kernels; bar: bytes" : "kernels, in order of execution; bar: bytes that each one moves", { opacity: 0.75 }));
    all.forEach((kernel, at) => {
      const color = KINDS[kindOf(kernel)][1], faded = shown[at] ? 1 : 0.15, chosen = at === state.kernel;
      const joined = [...new Set(kernel.nodes.map((node) => rowOf.get(node)))].sort((a, b) => a - b), part = tall / Math.max(joined.length, 1), edge = places[at] - tall / 2;
      kernel.nodes.forEach((node) => home.set(rowOf.get(node), { color, faded, at }));
      joined.forEach((row, place) => {
        const y = edge + place * part, half = ROW * 0.4, x = (nodeRight + kernelLeft) / 2, from = middle[row];
        svg.append(shape("path", { fill: color, opacity: (chosen ? 0.7 : at % 2 ? 0.4 : 0.25) * faded, "data-kernel": at,
          d: `M${nodeRight} ${from - half} C${x} ${from - half} ${x} ${y} ${kernelLeft} ${y} v${part} C${x} ${y + part} ${x} ${from + half} ${nodeRight} ${from + half} z` }));
      });
      const pick = () => change({ kernel: chosen ? -1 : at });
      const box = shape("g", { class: state.search && at === shown.indexOf(true) ? "course-found" : undefined, role: "button", tabindex: at === Math.max(state.kernel, 0) ? 0 : -1, opacity: faded, "data-key": at, "aria-pressed": String(chosen),
        "aria-label": `Kernel ${at + 1}: ${kernel.fused || kernel.name}`, onclick: pick, onkeydown: (event) => keys(event, stage, all.length, at, pick) },
      shape("title", {}, `${kernel.whole_name} (${kernel.kind})`),
      shape("rect", { x: kernelLeft, y: edge, width: width - kernelLeft - 1, height: tall, fill: color, "fill-opacity": 0.25, stroke: color === "none" ? "currentColor" : color,
        "stroke-width": chosen ? 3 : 1, "stroke-dasharray": kernel.nodes.length ? undefined : "4 3" }),
      shape("rect", { x: kernelLeft, y: edge + tall - 6, width: (width - kernelLeft - 1) * (kernel.bytes / most), height: 6, fill: "currentColor", opacity: 0.6 }),
      label(kernelLeft + 6, edge + 12, fitted(state.search && shown[at] ? matched(texts(build, kernel), state.search) : kernel.fused || "added", room, measureBold), { "font-weight": "bold" }),
      ...(oneLine ? [facts(kernel).join(", ")] : facts(kernel)).map((fact, line) => label(kernelLeft + 6, edge + 26 + line * LINE, fitted(fact, room, measure), { opacity: 0.85 })));
      box.addEventListener("pointerenter", () => hover(svg, at));
      box.addEventListener("pointerleave", () => hover(svg, -1));
      keepKeys(box);
      svg.append(box);
    });
    rows.forEach((nodes, row) => {
      const { color = "none", faded = shown.every(Boolean) ? 1 : 0.15, at = -1 } = home.get(row) ?? {}, names = nodes.map((node) => build.nodes[node][0]), operators = nodes.map((node) => build.nodes[node][1] || build.nodes[node][0]);
      const box = shape("g", { opacity: faded },
        shape("title", {}, names.join("\n")),
        shape("rect", { x: 1, y: middle[row] - ROW * 0.4, width: nodeRight - 1, height: ROW * 0.8, fill: color, "fill-opacity": 0.25, stroke: color === "none" ? "currentColor" : color, "stroke-dasharray": at < 0 ? "1 3" : undefined }),
        label(6, middle[row] + 4, fitted(matched([operators.join(" + "), ...names], state.search), nodeRight - 12, measure)));
      box.addEventListener("pointerenter", () => hover(svg, at));
      box.addEventListener("pointerleave", () => hover(svg, -1));
      svg.append(box);
    });
    const kinds = rows.every((_, row) => home.has(row)) ? KINDS : [...KINDS, ["node without a kernel", "dotted"]];
    const legend = kinds.map(([name, color]) => element("span", {}, element("i", { style: color === "dotted" ? "border:1px dotted" : color === "none" ? "border:1px dashed" : `border:1px solid ${color};background:color-mix(in srgb, ${color} 25%, transparent)` }), name));
    stage.append(element("div", { class: "course-legend", "aria-hidden": true }, ...legend), element("div", { class: "course-scroll" }, svg));
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
