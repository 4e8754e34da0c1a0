// What is wrong on a page of the book. Scrolling boxes are fine on a telephone; on a wide screen all code is seen at once.
wide => {
  const faults = [], root = document.documentElement, article = document.querySelector(".bd-article");
  const shown = element => element.textContent.trim().slice(0, 60);
  if (root.scrollWidth > root.clientWidth + 1) faults.push(`the page scrolls: ${root.scrollWidth} > ${root.clientWidth}`);
  if (!article) return faults;  // the search page and the like
  for (const box of article.querySelectorAll("pre")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
    if (box.scrollWidth > box.clientWidth + 1 && (wide || !scrolls)) faults.push(`code is cut off: ${shown(box)}`);
  }
  for (const row of article.querySelectorAll(".cell_output tr")) {
    const lines = row.getBoundingClientRect().height / parseFloat(getComputedStyle(row).lineHeight);
    if (lines > 6) faults.push(`a row of ${Math.round(lines)} lines: ${shown(row)}`);
  }
  for (const image of article.querySelectorAll("img")) {
    if (!image.alt.trim()) faults.push(`no alt text: ${image.src.slice(-60)}`);
    if (!image.complete || !image.naturalWidth) faults.push(`not loaded: ${image.src.slice(-60)}`);
  }
  for (const formula of article.querySelectorAll(".math")) {
    if (!formula.querySelector("mjx-container")) faults.push(`raw formula: ${shown(formula)}`);
  }
  for (const error of article.querySelectorAll("mjx-merror")) faults.push(`wrong formula: ${shown(error)}`);
  const text = article.cloneNode(true);
  text.querySelectorAll("pre, code, dt.sig, mjx-container, script").forEach(element => element.remove());
  const raw = text.textContent.match(/\\\(|\\\[|\$[^$\n]*\\[a-z]+[^$\n]*\$|^\s*\[ \] .*|Output\(\)/m);
  if (raw) faults.push(`raw source: ${raw[0].slice(0, 60)}`);
  return faults;
}
