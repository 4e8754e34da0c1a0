// A tensor in eight bits: what a threshold clips, and what quality it leaves.

/** What Python computed for a threshold and a format. Thresholds are whole percents of the largest magnitude. */
function at(data, state) {
  const place = Math.min(Math.max(Math.round(state.percent), 1), 100) - 1;
  const curve = data.curves[state.format];
  return { threshold: (data.largest * (place + 1)) / 100, clipped: data.clipped[place], decibels: curve[place], best: curve.indexOf(Math.max(...curve)) };
}

const WIDGET = {
  name: "Eight bits: where to clip a tensor",

  controls(data) {
    return [
      { name: "percent", label: "Threshold (% of largest)", kind: "number", low: 1, high: 100, step: 1, grid: 1 },
      { name: "format", label: "Format", kind: "choice", options: Object.keys(data.curves).map((name) => [name, name]) },
    ];
  },

  describe(data, state) {
    const { threshold, clipped, decibels, best } = at(data, state), { format } = state;
    const plain = Object.entries(data.plain).map(([name, db]) => `${name} ${db === null ? "-inf" : db.toFixed(1)} dB`).join(", ");
    const sample = data.sampled < data.count ? ` (SQNR from ${whole(data.sampled)} of them)` : "";
    return {
      title: `${format} up to ${digits(threshold, 4)} clips ${percent(clipped)} and leaves ${decibels.toFixed(1)} dB`,
      facts: [[data.name, `${whole(data.count)} values${sample}`], ["largest magnitude", digits(data.largest, 4)],
        ["one step", format === "INT8" ? digits(threshold / 127) : ""],
        [`best threshold for ${format}`, `${best + 1} % of the largest, ${data.curves[format][best].toFixed(1)} dB`], ["casts without a scale", plain]],
    };
  },

  draw(stage, { data, state, width }) {
    const beside = width >= 640, part = beside ? (width - 30) / 2 : width, height = 250;
    const svg = shape("svg", { width, height: beside ? height : 2 * height + 10, role: "img",
      "aria-label": `Histogram of ${data.name} and SQNR over the threshold. ${WIDGET.describe(data, state).title}` });
    svg.append(drawHistogram(data, state, part, height),
      shape("g", { transform: beside ? `translate(${part + 30} 0)` : `translate(0 ${height + 10})` }, drawQuality(data, state, part, height)));
    stage.append(svg);
  },
};

function drawHistogram(data, state, width, height) {
  const left = 44, bottom = height - 40, top = 20, { threshold } = at(data, state), group = shape("g");
  const { y, labels } = logCounts(Math.max(...data.histogram), left, top, bottom), bar = (width - left - 8) / data.histogram.length;
  data.histogram.forEach((count, index) => {
    const middle = ((index + 0.5) / data.histogram.length) * data.largest;
    group.append(shape("rect", { x: left + index * bar, y: y(count), width: bar, height: bottom - y(count), "shape-rendering": "crispEdges", fill: COLORS[middle <= threshold ? 0 : 1] }));
  });
  const place = (value) => left + (value / data.largest) * (width - left - 8);
  group.append(shape("line", { x1: place(threshold), x2: place(threshold), y1: top, y2: bottom, stroke: "currentColor", "stroke-width": 1.5 }),
    axis(left, width - 8, bottom, ticks(0, data.largest, 4), place, `absolute value of ${data.name}`),
    label(0, 10, "values per bin (log); orange is clipped"), ...labels);
  return group;
}

function drawQuality(data, state, width, height) {
  const left = 34, right = width - 74, bottom = height - 40, top = 24;
  const plain = Object.entries(data.plain).filter(([, db]) => db !== null), values = [...Object.values(data.curves).flat(), ...plain.map(([, db]) => db)];
  const low = Math.min(...values, 0), high = Math.max(...values) * 1.05;
  const x = (share) => left + (share / 100) * (right - left), y = (db) => bottom - ((db - low) / (high - low)) * (bottom - top);
  const lines = [
    ...Object.entries(data.curves).map(([name, curve]) => ({ name, points: curve.map((db, place) => [x(place + 1), y(db)]), chosen: name === state.format })),
    ...plain.map(([name, db]) => ({ name: `plain ${name}`, points: [[left, y(db)], [right, y(db)]], dashed: true }))];
  return shape("g", {}, namedLines(lines, right),
    shape("circle", { cx: x(Math.round(state.percent)), cy: y(at(data, state).decibels), r: 5, fill: "currentColor" }),
    axis(left, right, bottom, ticks(0, 100, 5), x, "threshold (% of largest)"), label(0, 10, "SQNR (dB), higher is better"),
    ...ticks(low, high, 5).map((db) => label(left - 4, y(db) + 4, digits(db), { "text-anchor": "end" })));
}
