// The roofline: every kernel a point that can be picked, with its distance from the roof and what it is bound by.

const BOUNDS = { memory: "memory", compute: "arithmetic", latency: "latency: neither memory nor arithmetic is full", "": "not measured" };

const roof = (data, intensity) => Math.min(data.peak_flops, intensity * data.peak_bandwidth);
const placed = (kernel) => kernel.intensity > 0 && kernel.speed > 0;

function prefixed(value) {
  for (const [prefix, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6]]) if (value >= size) return `${digits(value / size)} ${prefix}`;
  return `${digits(value)} `;
}

const WIDGET = {
  name: "Roofline: one kernel and its limit",

  controls(data) {
    return [{ name: "index", label: "Kernel", kind: "choice", options: data.kernels.map(({ name }, at) => [`${at + 1}  ${name}`, at]) }];
  },

  describe(data, { index }) {
    const kernel = data.kernels[index];
    const time = ["takes", duration(kernel.us)], bound = ["bound by", BOUNDS[kernel.bound]];
    if (!placed(kernel)) {
      const moved = kernel.bandwidth ? `${digits(kernel.bandwidth / 1e12)} TB/s, ${percent(kernel.bandwidth / data.peak_bandwidth)} of the bandwidth` : "";
      return { title: `${kernel.name} has no place on the axes${kernel.bandwidth ? ": no operations were counted" : ""}`, facts: [time, ["moves", moved], bound] };
    }
    const top = roof(data, kernel.intensity), limit = top < data.peak_flops ? "memory" : "the arithmetic units";
    return { title: `${kernel.name} reaches ${percent(kernel.speed / top)} of its roof`, facts: [time, ["intensity", `${digits(kernel.intensity)} FLOP per byte`],
      ["speed", `${digits(kernel.speed / 1e12)} of the ${digits(top / 1e12)} TFLOP/s that ${limit} would allow`], bound] };
  },

  draw(stage, { data, state, width, change }) {
    const left = 44, right = width - 14, top = 28, bottom = 290, ridge = data.peak_flops / data.peak_bandwidth;
    const points = data.kernels.filter(placed), xs = [ridge, ...points.map(({ intensity }) => intensity)], ys = [data.peak_flops, ...points.map(({ speed }) => speed)];
    const [low, high] = [Math.floor(Math.log10(Math.min(...xs)) - 0.7), Math.ceil(Math.log10(Math.max(...xs)) + 0.4)];
    const [floor, ceiling] = [Math.floor(Math.log10(Math.min(...ys)) - 0.3), Math.ceil(Math.log10(data.peak_flops) + 0.1)];
    const x = (value) => left + ((Math.log10(value) - low) / (high - low)) * (right - left);
    const y = (value) => bottom - ((Math.log10(value) - floor) / (ceiling - floor)) * (bottom - top);
    const start = Math.max(10 ** low, 10 ** floor / data.peak_bandwidth);
    const svg = shape("svg", { width, height: bottom + 40, role: "group", "aria-label": `Roofline: speed over arithmetic intensity. ${WIDGET.describe(data, state).title}` },
      shape("polyline", { points: `${x(start)},${y(start * data.peak_bandwidth)} ${x(ridge)},${y(data.peak_flops)} ${x(10 ** high)},${y(data.peak_flops)}`, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }),
      label(right, y(data.peak_flops) - 13, `${prefixed(data.peak_flops)}FLOP/s`, { "text-anchor": "end" }),
      label(x(Math.sqrt(start * ridge)) - 6, y(Math.sqrt(start * ridge) * data.peak_bandwidth) - 4, `${prefixed(data.peak_bandwidth)}B/s`, { "text-anchor": "end" }),
      label(0, 12, "speed (FLOP/s, log)"));
    for (let power = floor; power <= ceiling; power++) svg.append(label(left - 6, y(10 ** power) + 4, powerOfTen(power), { "text-anchor": "end" }));
    const powers = Array.from({ length: high - low + 1 }, (_, at) => low + at);
    svg.append(axis(left, right, bottom, powers, (power) => x(10 ** power), "arithmetic intensity (FLOP per byte, log)", powerOfTen));
    const chosen = data.kernels[state.index];
    if (placed(chosen)) {
      svg.append(shape("line", { x1: x(chosen.intensity), x2: x(chosen.intensity), y1: y(chosen.speed), y2: y(roof(data, chosen.intensity)), stroke: "currentColor", "stroke-dasharray": "4 3" }));
    }
    data.kernels.forEach((kernel, at) => {
      if (!placed(kernel)) return;
      const pick = () => change({ index: at }), point = shape("g", { role: "button", tabindex: 0, "data-key": at, "aria-pressed": String(at === state.index),
        "aria-label": `${at + 1}: ${kernel.name}`, onclick: pick, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } } },
      shape("title", {}, kernel.name),
      shape("circle", { cx: x(kernel.intensity), cy: y(kernel.speed), r: 9, fill: COLORS[at === state.index ? 1 : 0], stroke: "currentColor", "stroke-width": at === state.index ? 3 : 0 }),
      shape("text", { x: x(kernel.intensity), y: y(kernel.speed) + 3.5, "font-size": 10, "font-weight": "bold", fill: at === state.index ? "#000" : "#fff", "text-anchor": "middle" }, String(at + 1)));
      keepKeys(point);
      svg.append(point);
    });
    if (placed(chosen)) {
      const right_half = x(chosen.intensity) > (left + right) / 2, room = right_half ? x(chosen.intensity) - left : right - x(chosen.intensity);
      svg.append(label(x(chosen.intensity) + (right_half ? 9 : -9), y(chosen.speed) + 23, shortened(chosen.name, Math.floor(room / 6.5)), { "font-weight": "bold", "text-anchor": right_half ? "end" : "start", "pointer-events": "none" }));
    }
    stage.append(svg);
  },
};
