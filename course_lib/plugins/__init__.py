"""Custom operators: RoPE from its formula to a CUDA kernel, to plugins in Python and C++, to a node in an ONNX model.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy

if TYPE_CHECKING:
    from course_lib.plugins.compilers import compile_for_host, compile_with_nvcc
    from course_lib.plugins.cpp_plugin import build_plugin
    from course_lib.plugins.launchers import Launcher, RopeLibrary, cuda_launcher, host_launcher, rope_on_host
    from course_lib.plugins.onnx_op import expand_rope, rope_model, rope_node
    from course_lib.plugins.python_plugin import RopePlugin, register_rope, rope_plugin
    from course_lib.plugins.quick_plugin import quick_rope
    from course_lib.plugins.reference import rope, rope_tables

__getattr__, __dir__, __all__ = lazy(__name__)
