// The faults of a page, for legible.py. A text is a line of a text node, or a group of glyphs in a figure of matplotlib.
() => {
  const faults = [], root = document.documentElement, texts = [];
  const shown = text => text.words.trim().replace(/\s+/g, " ").slice(0, 50);
  const visible = element => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const inside = (a, b) => a.left >= b.left - 2 && a.right <= b.right + 2 && a.top >= b.top - 2 && a.bottom <= b.bottom + 2;
  const common = (a, b) => [Math.min(a.right, b.right) - Math.max(a.left, b.left), Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
  if (root.scrollWidth > root.clientWidth + 1) faults.push(`the page scrolls: ${root.scrollWidth} > ${root.clientWidth}`);

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || !visible(element) || element.matches("details:not([open])") || element.closest("script, style, noscript, option, title, mjx-container")) continue;
    range.selectNodeContents(node);
    const color = getComputedStyle(element)[element.closest("svg") ? "fill" : "color"];
    for (const box of range.getClientRects()) if (box.width > 1 && box.height > 1) texts.push({words: node.data, element, box, color});
  }
  for (const element of document.querySelectorAll("svg g[id^=text_]")) {
    const glyphs = element.querySelector("use, path"), comment = [...element.childNodes].find(node => node.nodeType === 8);
    if (!glyphs || !visible(element)) continue;
    texts.push({words: comment?.data ?? "", element, box: element.getBoundingClientRect(), color: getComputedStyle(glyphs).fill});
  }

  // What is seen of a text: a box that scrolls hides the rest on purpose, any other box clips it.
  const seen = texts.filter(text => {
    for (let e = text.element; e && e !== root; e = e.parentElement) {
      const style = getComputedStyle(e), edges = e.getBoundingClientRect();
      if (edges.width <= 1 || edges.height <= 1) return false;  // for screen readers
      if (e === document.body || [style.overflowX, style.overflowY].every(one => one === "visible")) continue;
      const scrolls = [style.overflowX, style.overflowY].some(one => one === "auto" || one === "scroll");
      if (!inside(text.box, edges) && !scrolls) {
        const [wide, tall] = common(text.box, edges);
        if (style.position === "fixed" || wide <= 0 || tall <= 0) return false;  // wholly outside: a menu that is closed
        faults.push(`clipped: ${shown(text)}`);
        return false;
      }
      if (Math.min(...common(text.box, edges)) < 2) return false;
    }
    return text.box.right > 0 && text.box.bottom > 0 && text.box.left < root.clientWidth;
  });

  seen.sort((a, b) => a.box.top - b.box.top);
  seen.forEach((a, at) => {
    for (let next = at + 1; next < seen.length && seen[next].box.top < a.box.bottom; next++) {
      const b = seen[next], [wide, tall] = common(a.box, b.box);
      if (a.element.closest("nav, header, .bd-sidebar, .bd-header") !== b.element.closest("nav, header, .bd-sidebar, .bd-header")) continue;
      if (wide > 2 && tall > 0.35 * Math.min(a.box.height, b.box.height)) faults.push(`overlap: ${shown(a)} | ${shown(b)}`);
    }
  });

  // A drawn line that runs through a word.
  for (const svg of document.querySelectorAll("svg")) {
    const words = seen.filter(text => svg.contains(text.element));
    if (!words.length) continue;
    for (const line of svg.querySelectorAll("path, line, polyline")) {
      const style = getComputedStyle(line);
      if (style.stroke === "none" || style.fill !== "none" || line.closest("defs, clipPath, g[id^=text_]") || !line.getTotalLength) continue;
      const length = line.getTotalLength(), matrix = line.getScreenCTM();
      for (let step = 0; step <= 80; step++) {
        const point = line.getPointAtLength(length * step / 80).matrixTransform(matrix);
        const crossed = words.find(({box}) => point.x > box.left + 2 && point.x < box.right - 2
          && point.y > box.top + 3 && point.y < box.bottom - 3);
        const stack = crossed ? document.elementsFromPoint(point.x, point.y) : [], above = stack.slice(0, stack.indexOf(line));
        if (!stack.includes(line) || above.some(e => e instanceof SVGGeometryElement && getComputedStyle(e).fill !== "none")) continue;
        faults.push(`crossed by a line: ${shown(crossed)}`);
        break;
      }
    }
  }

  // WCAG 2.2: the contrast of a text and of what is painted behind its middle.
  const rgba = color => { const all = (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number); return [all[0], all[1], all[2], all[3] ?? 1]; };
  const over = (front, back) => front.slice(0, 3).map((c, i) => c * front[3] + back[i] * (1 - front[3])).concat(1);
  const luminance = color => color.slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const opacity = element => (element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1);
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.background = "Canvas";  // what the browser paints where no element has a background
  const paper = rgba(getComputedStyle(root).backgroundColor), canvas = rgba(getComputedStyle(probe).backgroundColor);
  probe.remove();
  for (const text of seen) {
    const {box, element} = text, layers = [];
    const stack = document.elementsFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    const own = stack.indexOf(element);
    if (own < 0 && !element.matches("g")) continue;  // something lies above it, such as a menu, or it is scrolled away
    for (const behind of stack.slice(Math.max(own, 0))) {
      if (element.contains(behind) && behind !== element) continue;
      const style = getComputedStyle(behind), drawn = behind instanceof SVGGeometryElement;
      if (behind.matches("img, canvas, video")) { layers.length = 0; layers.push(null); break; }
      const color = rgba(drawn ? style.fill : style.backgroundColor);  // "none" and a group's background are transparent
      if (drawn) color[3] *= Number(style.fillOpacity) * opacity(behind);
      layers.push(color);
      if (color[3] === 1) break;
    }
    if (layers.includes(null)) continue;  // over a picture
    const back = [...layers].reverse().reduce((below, above) => over(above, below), over(paper, canvas));
    const front = rgba(text.color);
    front[3] *= opacity(element);
    const [low, high] = [luminance(over(front, back)), luminance(back)].sort((a, b) => a - b), ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.495 && !element.closest(":disabled, [aria-disabled=true]")) faults.push(`contrast ${ratio.toFixed(1)}: ${shown(text)}`);
  }
  return [...new Set(faults)];
}
