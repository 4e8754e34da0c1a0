// An optimization profile over real traffic: what it covers, what it rejects, and how long the answers take.

/** Latency in ms at a size: a straight line between measured sizes, the end's value beyond them. */
function latency(curve, size) {
  if (size <= curve[0][0]) return curve[0][1];
  for (let at = 1; at < curve.length; at++) {
    const [[x0, y0], [x1, y1]] = [curve[at - 1], curve[at]];
    if (size <= x1) return y0 + ((size - x0) / (x1 - x0)) * (y1 - y0);
  }
  return curve[curve.length - 1][1];
}

const valid = ({ low, opt, high }) => low <= opt && opt <= high;

/** Mean and slowest latency of the answered requests with the engine that was built for `opt`. */
function times(data, state, opt) {
  const answered = data.requests.filter(([size]) => size >= state.low && size <= state.high);
  const all = answered.map(([size, count]) => [latency(data.curves[opt], size), count]);
  const total = all.reduce((sum, [, count]) => sum + count, 0);
  return { total, mean: all.reduce((sum, [ms, count]) => sum + ms * count, 0) / total, slowest: Math.max(...all.map(([ms]) => ms)) };
}

const WIDGET = {
  name: "Optimization profile over recorded traffic",

  controls(data) {
    const end = { kind: "number", low: 1, high: data.largest, step: 1, grid: 1 };
    return [
      { name: "low", label: `min ${data.dimension}`, ...end },
      { name: "opt", label: `opt ${data.dimension}`, kind: "choice", options: Object.keys(data.curves).map((opt) => [opt, Number(opt)]) },
      { name: "high", label: `max ${data.dimension}`, ...end },
    ];
  },

  describe(data, state) {
    const { low, opt, high } = state;
    if (!valid(state)) {
      return { title: "Not a profile: min <= opt <= max does not hold", facts: [["the builder rejects", `min ${low}, opt ${opt}, max ${high}`]] };
    }
    const count = data.requests.reduce((sum, [, n]) => sum + n, 0), mine = times(data, state, opt);
    const outside = data.requests.filter(([size]) => size < low || size > high).map(([size]) => size), rejected = count - mine.total;
    const title = `${data.dimension} ${low} to ${high}, tuned for ${opt}: ${percent(rejected / count)} rejected`;
    const sizes = rejected ? ` (of sizes ${Math.min(...outside)} to ${Math.max(...outside)})` : "";
    const facts = [["rejected", `${whole(rejected)} of ${whole(count)} requests${sizes}`]];
    if (!mine.total) return { title, facts };
    const latencies = Object.keys(data.curves).map((opt) => [opt, times(data, state, opt)]);
    return { title: `${title}, mean ${digits(mine.mean)} ms`,
      facts: [...facts, ...latencies.map(([opt, { mean, slowest }]) => [`tuned for ${opt}`, `mean ${digits(mean)} ms, slowest ${digits(slowest)} ms`])] };
  },

  draw(stage, { data, state, width }) {
    const left = 50, right = width - 50, top = 14, middle = 170, gap = 40, bottom = 314;
    const place = (size) => left + (size / (data.largest + 1)) * (right - left);
    const highest = 1.1 * Math.max(...Object.values(data.curves).flat().map(([, ms]) => ms)), y = (ms) => middle - (ms / highest) * (middle - top);
    const svg = shape("svg", { width, height: bottom + 40, role: "img",
      "aria-label": `Latency over ${data.dimension} size for each opt, above the histogram of requests. ${WIDGET.describe(data, state).title}` });
    if (valid(state)) {
      svg.append(shape("rect", { x: place(state.low - 0.5), y: top, width: place(state.high + 0.5) - place(state.low - 0.5), height: bottom - top, fill: COLORS[2], opacity: 0.12 }),
        ...[[top, middle], [middle + gap, bottom]].map(([y1, y2]) => shape("line", { x1: place(state.opt), x2: place(state.opt), y1, y2, stroke: "currentColor", "stroke-dasharray": "5 4" })),
        label(Math.max(place(state.opt), 84), 10, `opt ${state.opt}`, { "text-anchor": place(state.opt) < 100 ? "start" : "middle" }));
    }
    const lines = Object.entries(data.curves).map(([opt, curve]) =>
      ({ name: `opt ${opt}`, points: curve.map(([size, ms]) => [place(size), y(ms)]), chosen: Number(opt) === state.opt }));
    svg.append(namedLines(lines, Math.max(...lines.map(({ points }) => points[points.length - 1][0]))), label(0, 10, "latency (ms)"), ...ticks(0, highest, 4).map((ms) => label(left - 6, y(ms) + 4, digits(ms), { "text-anchor": "end" })),
      shape("line", { x1: left, x2: right, y1: middle, y2: middle, stroke: FAINT }));
    const most = Math.max(...data.requests.map(([, count]) => count)), floor = middle + gap, { y: height, labels } = logCounts(most, left - 2, floor, bottom), bar = Math.max((right - left) / (data.largest + 1) - 0.5, 1);
    for (const [size, count] of data.requests) {
      const answered = valid(state) && size >= state.low && size <= state.high;
      svg.append(shape("rect", { x: place(size) - bar / 2, y: height(count), width: bar, height: bottom - height(count), fill: COLORS[answered ? 2 : 1] }));
    }
    svg.append(label(0, floor - 16, "requests (log; green: answered, orange: rejected)"), ...labels,
      axis(left, right, bottom, ticks(0, data.largest), place, `${data.dimension} size`));
    stage.append(svg);
  },
};
