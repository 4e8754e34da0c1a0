"""Where time goes and what changed: drawings of layer tables and of the workflow around them."""

from course_lib.profiling.drawing import draw
from course_lib.profiling.pictures import bars, gallery, promise, variants, workflow

__all__ = ["bars", "draw", "gallery", "promise", "variants", "workflow"]
