// The notebook in front: its cells' ids, execution counts and kinds, and whether the kernel is busy.
() => {
  const panel = window.jupyterapp.shell.currentWidget;
  if (!panel || !panel.content || !panel.content.model || !panel.sessionContext) return null;
  return {
    path: panel.context.path,
    status: panel.sessionContext.kernelDisplayStatus,
    cells: Array.from(panel.content.model.cells, c => ({id: c.id, type: c.type, count: c.executionCount ?? null})),
  };
}
