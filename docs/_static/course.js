// The contents at the right follow the page: the current section stays in view. The page itself does not move.
document.addEventListener("activate.bs.scrollspy", ({ relatedTarget: link }) => {
  const contents = link.closest(".bd-sidebar-secondary");
  if (!contents) return;
  const [item, box] = [link.getBoundingClientRect(), contents.getBoundingClientRect()];
  if (item.top < box.top || item.bottom > box.bottom) contents.scrollTop += item.top - box.top - box.height / 2;
});
