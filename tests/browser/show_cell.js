// Scrolls to a cell of the notebook in front, and marks it.
id => {
  const content = window.jupyterapp.shell.currentWidget.content;
  const index = content.widgets.findIndex(w => w.model.id === id);
  content.activeCellIndex = index;
  content.deselectAll();
  content.widgets[index].node.setAttribute("data-shown", id);
  return content.scrollToItem(index, "start");
}
