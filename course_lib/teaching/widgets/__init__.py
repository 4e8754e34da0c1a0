"""Interactive figures for notebooks: move a slider and read the numbers. Without a kernel each one is a static figure.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy

if TYPE_CHECKING:
    from course_lib.teaching.widgets.layer_viewer import LayerViewer
    from course_lib.teaching.widgets.precision_explorer import PrecisionExplorer
    from course_lib.teaching.widgets.profile_explorer import ProfileExplorer
    from course_lib.teaching.widgets.roofline_viewer import RooflineViewer
    from course_lib.teaching.widgets.timeline_viewer import TimelineViewer

__getattr__, __dir__, __all__ = lazy(__name__)
