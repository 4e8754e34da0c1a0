"""The base of all views: data, a state, and a script that draws them in the browser.

In JupyterLab a view is an anywidget, and Python receives the reader's choice as `View.state`. On a page without a kernel, such as
the book's, the same script draws the same view from the data in the page. `browser/view.js` documents what a script defines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import anywidget

_BROWSER = Path(__file__).parent / "browser"


class View:
    """An interactive figure.

    Args:
        script: name of its file in browser/, without ".js".
        data: plain JSON values to draw.
        state: values that the reader can change, by name.
    """

    def __init__(self, script: str, data: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self.script, self.data = script, dict(data)
        self._first = dict(state)

    @property
    def state(self) -> dict[str, object]:
        """The reader's current choice."""
        return dict(self.widget.state)

    def choose(self, **changes: Any) -> None:
        """Do what the reader does with the controls.

        Raises:
            ValueError: there is no such choice.
        """
        if unknown := changes.keys() - self._first.keys():
            raise ValueError(f"{type(self).__name__} has {', '.join(self._first)} to choose, not {', '.join(sorted(unknown))}")
        self.widget.state = {**self.state, **changes}

    @cached_property
    def widget(self) -> anywidget.AnyWidget:
        """The view in Jupyter."""
        return _widget_class(self.script)(data=self.data, state=self._first)

    def html(self) -> str:
        """The view for a page that has no kernel and no network: a script with its data."""
        data, state = (json.dumps(values, allow_nan=False).replace("</", "<\\/") for values in (self.data, self.state))
        style = json.dumps((_BROWSER / "view.css").read_text("utf-8"))
        return (
            "<div></div><script>(() => {\n"
            "const el = document.currentScript.previousElementSibling;\n"
            f"el.append(Object.assign(document.createElement('style'), {{ textContent: {style} }}));\n"
            f"{source(self.script)}\nmount(WIDGET, el, {data}, {state}, () => {{}});\n}})();</script>"
            "<noscript>This figure needs JavaScript.</noscript>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        shown: Any = self.widget._repr_mimebundle_()
        return {**(shown[0] if isinstance(shown, tuple) else shown), "text/html": self.html(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: an interactive figure, shown in JupyterLab and in the book>"


@cache
def source(script: str) -> str:
    """The code of a view: the shared part and its own."""
    return "\n".join((_BROWSER / f"{name}.js").read_text("utf-8") for name in ("view", script))


@cache
def _widget_class(script: str) -> type[anywidget.AnyWidget]:
    import anywidget
    import traitlets

    class Shown(anywidget.AnyWidget):
        _esm = f"{source(script)}\n{(_BROWSER / 'jupyter.js').read_text('utf-8')}"
        _css = (_BROWSER / "view.css").read_text("utf-8")
        data = traitlets.Dict().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

    return Shown
