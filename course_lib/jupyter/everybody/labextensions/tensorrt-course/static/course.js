// An extension as JupyterLab loads it: `get` returns what makes its plugin. It adds the style of the course, marks the cells that a
// learner fills in, says below a cell for how long it has been running, and does not call a notebook changed that
// was only opened.
{
  const SHOWN_AFTER_S = 2;
  const style = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("course.css", document.currentScript.src).href });

  /** A solution of a lab, an exercise of a lecture, or a step of the scoreboard. */
  const isAnswer = (model) => Boolean(model.getMetadata("nbgrader")?.solution) || /^(exercise-\d+-\d+|scoreboard-step)$/.test(model.id);

  function follow(cell) {
    let started = 0, timer;
    const show = () => {
      const seconds = Math.round((performance.now() - started) / 1000);
      cell.node.style.setProperty("--course-running", seconds < SHOWN_AFTER_S ? "none" : `"running for ${seconds} s"`);
    };
    cell.model.stateChanged.connect((model, { name }) => {
      if (name !== "executionState") return;
      const running = model.executionState === "running";
      cell.toggleClass("course-running", running);
      clearInterval(timer);
      if (!running) return;
      started = performance.now();
      timer = setInterval(show, 1000);
      show();
    });
  }

  const known = new WeakSet();

  function prepare(notebook) {
    for (const cell of notebook.widgets) {
      cell.toggleClass("course-answer", isAnswer(cell.model));
      if (cell.model.type === "code" && !known.has(cell)) follow(cell);
      known.add(cell);
    }
  }

  /** When a kernel starts, JupyterLab writes what it says of its language into the notebook. The reader did not change it. */
  function keepClean(model) {
    let changed = 0;
    model.stateChanged.connect((_, { name }) => { if (name === "dirty" && model.dirty) changed = performance.now(); });
    model.metadataChanged.connect((_, { key }) => {
      const now = performance.now(), before = model.dirty && now - changed > 50;
      if (!before && ["language_info", "kernelspec"].includes(key)) setTimeout(() => { model.dirty = false; });
    });
  }

  const plugin = {
    id: "tensorrt-course:notebook",
    autoStart: true,
    activate(app) {
      style.onload = () => app.restored.then(() => { for (const side of app.shell.widgets("left")) side.fit(); }); // it has a least width
      document.head.append(style);
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew({ content, context }) {
          keepClean(context.model);
          context.ready.then(() => {
            prepare(content);
            content.model.cells.changed.connect(() => prepare(content));
          });
        },
      });
    },
  };

  (window._JUPYTERLAB ??= {})["tensorrt-course"] = { init() {}, get: async () => () => plugin };
}
