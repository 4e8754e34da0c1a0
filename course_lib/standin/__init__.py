"""A stand-in for TensorRT and pycuda on machines without a GPU: the same calls, and the same errors if a call is wrong.

It runs plans on the CPU through ONNX Runtime. Work on a stream runs late, when the host waits for it, and fresh device memory holds
NaN, so that a missing wait or copy shows. docs/api/standin.md lists what it cannot do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy

if TYPE_CHECKING:
    from course_lib.standin.installation import install as install
    from course_lib.standin.installation import installed as installed

__getattr__, __dir__, __all__ = lazy(__name__)
