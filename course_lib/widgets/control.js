// One labelled control made of the browser's own elements, which a keyboard and a screen reader know.
// `model` holds the traits of `course_lib.widgets.control.Control`.

const PLACES = 1000; // positions of a slider

function element(tag, attributes) {
  return Object.assign(document.createElement(tag), attributes);
}

/** Calls `commit` when Enter is pressed in a text box or the box is left. In JupyterLab, Enter alone does not fire a change event. */
function onCommit(box, commit) {
  box.addEventListener("change", commit);
  box.addEventListener("keydown", (event) => { if (event.key === "Enter") commit(); });
}

/** A slider and a text box for the same number: the box holds it exactly, the slider is as near as it gets. */
function number(model, name, read, write) {
  const { low, high, least, most, step, log } = model.get("limits");
  const to = log ? Math.log10 : (value) => value;
  const [first, last] = [to(low), to(high)];
  const places = step ? Math.round((last - first) / step) : PLACES;
  const slider = element("input", { type: "range", min: 0, max: places, step: 1 });
  const box = element("input", { type: "number", step: model.get("limits").whole ? 1 : "any", min: least, max: most });
  slider.setAttribute("aria-label", name);
  box.setAttribute("aria-label", `${name}, exact value`);
  const show = () => {
    const value = read();
    slider.value = Math.round((to(Math.min(Math.max(value, low), high)) - first) * places / (last - first));
    slider.setAttribute("aria-valuetext", String(value));
    box.value = String(value);
  };
  slider.addEventListener("input", () => {
    const place = first + slider.value * (last - first) / places;
    write(Number((log ? 10 ** place : place).toPrecision(log ? 3 : 12)));
  });
  onCommit(box, () => {
    if (Number.isFinite(box.valueAsNumber)) write(Math.min(Math.max(box.valueAsNumber, least), most));
    show();
  });
  return { elements: [slider, box], show };
}

const KINDS = {
  number(model, write) {
    return number(model, model.get("description"), () => model.get("value"), write);
  },

  span(model, write) {
    const end = (at, word) =>
      number(model, `${model.get("description")} ${word}`, () => model.get("value")[at], (value) => {
        const both = [...model.get("value")];
        both[at] = value;
        // the end that moves stops at the other one
        if (both[0] > both[1]) both[at] = both[1 - at];
        write(both);
      });
    const ends = [end(0, "from"), end(1, "to")];
    return { elements: ends.flatMap((one) => one.elements), show: () => ends.forEach((one) => one.show()) };
  },

  choice(model, write) {
    const list = element("select", {});
    model.get("labels").forEach((label, at) => list.add(new Option(label, at)));
    list.addEventListener("change", () => write(Number(list.value)));
    return { elements: [list], show: () => { list.value = model.get("at"); } };
  },

  switch(model, write) {
    const box = element("input", { type: "checkbox" });
    box.addEventListener("change", () => write(box.checked));
    return { elements: [box], show: () => { box.checked = model.get("value"); } };
  },

  text(model, write) {
    const line = element("input", { type: "text", placeholder: model.get("placeholder") });
    onCommit(line, () => write(line.value));
    return { elements: [line], show: () => { line.value = model.get("value"); } };
  },
};

function render({ model, el }) {
  const kind = model.get("kind");
  const trait = kind === "choice" ? "at" : "value";
  el.classList.add("course-control", `course-control-${kind}`);
  const { elements, show } = KINDS[kind](model, (value) => {
    model.set(trait, value);
    model.save_changes();
  });
  // JupyterLab takes keys such as ArrowDown and B for its commands. It looks for this attribute from the focused element upward, and stops
  // at the first element that one of its selectors matches, which is the focused one: an ancestor's attribute would come too late.
  elements.forEach((one) => one.setAttribute("data-lm-suppress-shortcuts", "true"));
  // each widget evaluates this file anew, so a counter would give every control the same id
  elements[0].id = `course-control-${Math.random().toString(36).slice(2)}`;
  const label = element("label", { textContent: model.get("description"), htmlFor: elements[0].id });
  el.append(label, ...elements);
  const enable = () => elements.forEach((one) => { one.disabled = model.get("disabled"); });
  show();
  enable();
  model.on(`change:${trait}`, show);
  model.on("change:disabled", enable);
  return () => {
    model.off(`change:${trait}`, show);
    model.off("change:disabled", enable);
  };
}

export default { render };
