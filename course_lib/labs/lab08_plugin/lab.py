"""Lab 08, plugin: partial rotation as a CUDA kernel, and the IPluginV3 through which TensorRT would call it."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import MISSING_FILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab08_plugin import checks


class PluginLab(Lab):
    """The submission is `rotary.cu` and `rotary_plugin.py`."""

    name = "lab08_plugin"
    title = "Lab 08: a plugin of your own"
    work_class = checks.PluginWork
    artifacts: ClassVar = {"rotary.cu": checks.MOST_BYTES, "rotary_plugin.py": checks.MOST_BYTES}
    tasks = (
        Task("kernel", "A correct rotation kernel", 4, checks.kernel),
        Task("memory", "Efficient memory access", 3, checks.memory),
        Task("plugin", "A plugin that meets its contract", 3, checks.plugin),
    )
    run_hint = "The message names the file and the line: compare them with what the notebook's cell writes."
    build_hints: ClassVar = {  # "compile" is the compiler's complaint
        MISSING_FILE: "The task's cell writes the file: run it, then check again.",
        "launch": "As in lecture 9: a config with gridDim, blockDim and stream, then cudaLaunchKernelEx(&config, kernel, arguments...).",
        "empty": "Write the missing part in task 1 and run its cell, which writes rotary.cu.",
        "shared": "Each thread computes its own number, from blockIdx, blockDim and threadIdx.",
        "call": "A kernel cannot call a library, open a file or print. What do you need this call for?",
        "compile": "The line is one of rotary.cu. Compare it with the declarations above it, and read the first error only.",
    }


lab = PluginLab()
