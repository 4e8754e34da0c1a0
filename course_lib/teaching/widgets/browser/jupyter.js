export default {
  render({ model, el }) {
    const save = (state) => { model.set("state", state); model.save_changes(); };
    const view = mount(WIDGET, el, model.get("data"), { ...model.get("state") }, save);
    const follow = () => view.update(model.get("state"));
    model.on("change:state", follow);
    return () => { model.off("change:state", follow); view.end(); };
  },
};
