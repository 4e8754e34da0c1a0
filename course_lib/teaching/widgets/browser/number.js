// One number in one format: its bits, the numbers around it, and the range of every format.

/** The nearest number of a format, half to even; beyond the largest one infinity, NaN where the format has no infinity, INT8 clips. */
function stored(format, value) {
  if (format.name === "INT8") return Math.min(Math.max(halfToEven(value / format.smallest), -128), 127) * format.smallest;
  const size = Math.abs(value);
  if (!size) return value;
  const step = spacing(format, size), nearest = halfToEven(size / step) * step;
  return Math.sign(value) * (nearest <= format.largest ? nearest : format.infinity ? Infinity : NaN);
}

function halfToEven(value) {
  const below = Math.floor(value), rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2) ? below + 1 : below;
}

/** The power of two at or below a positive number. */
function binade(size) {
  let power = Math.floor(Math.log2(size));
  while (2 ** power > size) power--;
  while (2 ** (power + 1) <= size) power++;
  return power;
}

/** The distance from a number to the next larger magnitude; subnormal numbers, and zero, share one. */
function spacing(format, value) {
  if (format.name === "INT8") return format.smallest;
  return 2 ** (binade(Math.min(Math.max(Math.abs(value), format.normal), format.largest)) - format.mantissa);
}

/** Sign, exponent and mantissa of the nearest number as texts of zeros and ones. */
function bits(format, value) {
  const nearest = stored(format, value), text = (number, width) => number.toString(2).padStart(width, "0");
  if (format.name === "INT8") {
    const pattern = text((Math.round(nearest / format.smallest) + 256) % 256, 8);
    return [pattern[0], "", pattern.slice(1)];
  }
  const sign = value < 0 || Object.is(value, -0) ? "1" : "0";
  if (!Number.isFinite(nearest)) return [sign, "1".repeat(format.exponent), (format.infinity ? "0" : "1").repeat(format.mantissa)];
  const size = Math.abs(nearest);
  if (size < format.normal) return [sign, "0".repeat(format.exponent), text(Math.round(size / format.smallest), format.mantissa)];
  const power = binade(size), field = power - binade(format.normal) + 1;
  return [sign, text(field, format.exponent), text(Math.round((size / 2 ** power - 1) * 2 ** format.mantissa), format.mantissa)];
}

/** The formats, with the step that was chosen for INT8. */
function formats(data, state) {
  return data.formats.map((one) => (one.name === "INT8"
    ? { ...one, largest: 127 * state.scale, normal: state.scale, smallest: state.scale } : one));
}

const WIDGET = {
  name: "Number formats: one number",

  controls(data) {
    return [
      { name: "size", label: "Size of the value", kind: "number", low: 1e-9, high: 1e6, least: 0, most: 1e39, step: 0.02, log: true },
      { name: "negative", label: "Negative", kind: "switch" },
      { name: "format", label: "Format", kind: "choice", options: data.formats.map(({ name }) => [name, name]) },
      { name: "scale", label: "Step of INT8 (scale)", kind: "number", low: 1e-4, high: 100, least: 1e-9, most: 1e9, step: 0.02, log: true,
        hidden: (state) => state.format !== "INT8" },
    ];
  },

  describe(data, state) {
    const format = formats(data, state).find(({ name }) => name === state.format), name = format.name;
    const value = state.negative ? -state.size : state.size, nearest = stored(format, value), finite = Number.isFinite(nearest);
    const off = Math.abs(nearest - value), share = value ? off / Math.abs(value) : 0;
    let title = `${name} turns ${digits(value, 6)} into ${digits(nearest, 6)}: ${percent(share)} off`;
    if (!finite) title = `${digits(value, 6)} is beyond ${name}: the largest number is ${digits(format.largest, 6)}, so a cast gives ${digits(nearest)}`;
    else if (name === "INT8" && (value < -128.5 * format.smallest || value > 127.5 * format.smallest)) {
      title = `${digits(value, 6)} is beyond INT8 in steps of ${digits(format.smallest)}: it is clipped to ${digits(nearest, 6)}`;
    } else if (value && !nearest) title = `${digits(value, 6)} is too small for ${name}: it becomes 0`;
    else if (name !== "INT8" && nearest && Math.abs(nearest) < format.normal) title += ", in a subnormal number with few bits left";
    return { title, facts: [
      ["stored", digits(nearest, 9)], ["off by", finite ? digits(off) : "infinity"], ["next number", finite ? `${digits(spacing(format, nearest))} away` : "none"],
      [`positive numbers of ${name}`, `${digits(format.smallest)} to ${digits(format.largest, 6)}`], ["full precision from", name === "INT8" ? "" : digits(format.normal)]] };
  },

  draw(stage, { data, state, width }) {
    const all = formats(data, state), format = all.find(({ name }) => name === state.format);
    const value = state.negative ? -state.size : state.size;
    const height = 190 + 22 * all.length;
    const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Bits of the number, the numbers around it, and the ranges of all formats. ${WIDGET.describe(data, state).title}` });
    drawBits(svg, format, value, width);
    drawNeighbors(svg, format, value, width);
    drawRanges(svg, all, format, value, width);
    stage.append(svg);
  },
};

function drawBits(svg, format, value, width) {
  const parts = bits(format, value), count = parts.join("").length, size = Math.min(26, (width - 8) / count);
  const fills = [FAINT, "#56B4E966", "#E69F0066"];
  const names = ["sign", "exponent", format.name === "INT8" ? "integer, two's complement" : "mantissa"];
  let x = 4, shown = 0;
  parts.forEach((part, at) => {
    if (!part) return;
    const words = part.length > 1 ? `${names[at]} (${part.length})` : names[at];
    svg.append(label(x, size < 24 && shown++ % 2 ? 12 : 26, words)); // narrow boxes: two lines
    for (const bit of part) {
      svg.append(shape("rect", { x: x + 0.5, y: 32, width: size - 1, height: 24, fill: fills[at] }),
        label(x + size / 2, 49, bit, { "text-anchor": "middle", "font-family": "monospace" }));
      x += size;
    }
  });
}

function drawNeighbors(svg, format, value, width) {
  const around = 5, nearest = stored(format, value), finite = Number.isFinite(nearest);
  const center = finite ? nearest : Math.sign(value) * format.largest, step = spacing(format, center);
  const place = (steps) => width / 2 + (steps * (width - 40)) / (2 * around);
  const seen = new Set();
  for (let half = -2 * around; half <= 2 * around; half++) {
    const near = stored(format, center + (half * step) / 2);
    if (Number.isFinite(near)) seen.add((near - center) / step);
  }
  for (const steps of seen) {
    if (Math.abs(steps) > around) continue;
    const chosen = finite && steps === 0;
    svg.append(shape("line", { x1: place(steps), x2: place(steps), y1: 92, y2: 118, stroke: chosen ? COLORS[2] : COLORS[0], "stroke-width": chosen ? 4 : 1.5 }));
  }
  const offset = (value - center) / step, at = Math.min(Math.max(offset, -around), around);
  const anchor = Math.abs(at) < around - 1 ? "middle" : at < 0 ? "start" : "end";
  svg.append(label(place(at), 78, Math.abs(offset) > around ? "value, far outside" : "value", { "text-anchor": anchor }),
    shape("path", { d: `M${place(at) - 5} 82 h10 l-5 10 z`, fill: COLORS[1] }),
    shape("line", { x1: place(-around), x2: place(around), y1: 118, y2: 118, stroke: "currentColor" }),
    label(width / 2, 134, `${format.name} near it, one step is ${digits(step)}; green: the nearest`, { "text-anchor": "middle" }));
}

function drawRanges(svg, all, format, value, width) {
  const low = -46, high = 39, left = 70, top = 152;
  const place = (size) => left + ((Math.min(Math.max(Math.log10(size), low), high) - low) * (width - left - 12)) / (high - low);
  all.forEach((one, row) => {
    const y = top + 22 * row, chosen = one.name === format.name, fill = chosen ? COLORS[0] : NEUTRAL;
    svg.append(label(left - 6, y + 12, one.name, { "text-anchor": "end", "font-weight": chosen ? "bold" : "normal" }),
      shape("rect", { x: place(one.smallest), y: y + 2, width: Math.max(place(one.normal) - place(one.smallest), 0), height: 13, fill, opacity: 0.35 }),
      shape("rect", { x: place(one.normal), y: y + 2, width: Math.max(place(one.largest) - place(one.normal), 1), height: 13, fill }));
  });
  const bottom = top + 22 * all.length;
  if (value) svg.append(shape("line", { x1: place(Math.abs(value)), x2: place(Math.abs(value)), y1: top - 4, y2: bottom, stroke: "currentColor", "stroke-width": 1.5 }));
  const powers = [-40, -30, -20, -10, 0, 10, 20, 30];
  svg.append(axis(left, width - 12, bottom, width < 500 ? powers.filter((at) => at % 20 === 0) : powers, (at) => place(10 ** at),
    "size of positive numbers (pale: subnormal)", powerOfTen));
}
