// The contents at the right follow the page: the theme marks the current section, and it stays in view. The page does not move.
document.addEventListener("DOMContentLoaded", () => {
  const contents = document.querySelector(".bd-sidebar-secondary");
  if (!contents) return;
  new MutationObserver(() => {
    const current = [...contents.querySelectorAll(".nav-link.active")].pop();
    if (!current) return;
    const [item, box] = [current.getBoundingClientRect(), contents.getBoundingClientRect()];
    if (item.top < box.top || item.bottom > box.bottom) contents.scrollTop += item.top - box.top - box.height / 2;
  }).observe(contents, { attributeFilter: ["class"], subtree: true });
});
