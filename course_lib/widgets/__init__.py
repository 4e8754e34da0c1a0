"""Interactive figures for notebooks: move a slider and read the numbers. Without a kernel each one is a static figure.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.lazy import lazy

if TYPE_CHECKING:
    from course_lib.widgets.layer_viewer import LayerViewer
    from course_lib.widgets.precision_explorer import PrecisionExplorer
    from course_lib.widgets.profile_explorer import ProfileExplorer
    from course_lib.widgets.roofline_viewer import RooflineViewer
    from course_lib.widgets.timeline_viewer import TimelineViewer

__all__ = ["LayerViewer", "PrecisionExplorer", "ProfileExplorer", "RooflineViewer", "TimelineViewer"]

_LAZY = {
    "LayerViewer": "layer_viewer",
    "PrecisionExplorer": "precision_explorer",
    "ProfileExplorer": "profile_explorer",
    "RooflineViewer": "roofline_viewer",
    "TimelineViewer": "timeline_viewer",
}

__getattr__, __dir__ = lazy(__name__, _LAZY)
