"""Attention as an AOT quick plugin, for TensorRT 10.9 and newer: the engine file holds the compiled kernel and needs no Python to run.

RoPE's quick plugin is a Python function that TensorRT calls in every inference. Here TensorRT calls Python only at build time. It gets
the kernel's PTX, and launches the kernel itself. The grid and the kernel's numbers are expressions of the input's shape, so one
kernel serves all shapes of a profile. The plugin has the name of the plugin for TensorRT 8, so `fuse_attention` makes nodes for both.

Source: NVIDIA TensorRT documentation, "Python Plugin Guide", section "Providing an Ahead-of-Time (AOT) Implementation".
"""

# No `from __future__ import annotations`: TensorRT reads the annotations of the functions, and they must be types, not text.

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from course_lib.errors import BackendUnavailable
from course_lib.plugins.compilers import compile_to_ptx
from course_lib.plugins.fused_attention import FOLDER, HEAD_SIZE, NAME, NAMESPACE
from course_lib.plugins.quick_plugin import plugin_module

ID = f"{NAMESPACE}::{NAME}"
SOURCE = FOLDER / "attention.cu"

# The kernel's name in the source, and what a block has: kQueries, kThreads and sizeof(Shared).
KERNEL = "attentionKernel"
QUERIES = 128
THREADS = 128
SHARED_BYTES = 48 * 1024  # the most that a kernel gets without being configured, and TensorRT does not configure it


def quick_attention(trt: Any, ptx: str | None = None) -> Any:
    """Register the quick plugin ``course::CourseAttention`` with the input qkv and the attribute ``heads``.

    ``network.add_plugin(quick_attention(trt)(qkv, heads=np.array([12], np.int32)), aot=True)`` adds it to a network. For a graph of
    `fuse_attention`, create the network with the flag ``PREFER_AOT_PYTHON_PLUGINS``. ``qkv`` is ``(batch, sequence, heads * 3 * 64)`` in
    FP16, ordered as in `fuse_attention`. The output is ``(batch, sequence, heads * 64)``.

    Args:
        trt: the module ``tensorrt``.
        ptx: the compiled kernel; None compiles it with nvcc. The driver must be as new as that nvcc, or newer.

    Returns:
        a function that makes a plugin from tensors of a network.

    Raises:
        BackendUnavailable: this TensorRT has no AOT quick plugins, or the kernel must be compiled and there is no nvcc.
    """
    trtp: Any = plugin_module(trt)
    if not hasattr(trtp, "aot_impl"):
        raise BackendUnavailable(f"TensorRT {trt.__version__} has no AOT quick plugins: they came with 10.9")
    code = compile_to_ptx(SOURCE) if ptx is None else ptx
    Described: TypeAlias = trtp.TensorDesc
    Formats: TypeAlias = list[trtp.AutoTuneCombination]
    # An array of one number: TensorRT 10.15 to 11.0 cannot read an attribute of type int with NumPy 2.4
    Heads: TypeAlias = npt.NDArray[np.int32]
    Kernel: TypeAlias = tuple[str, str, trtp.KernelLaunchParams, trtp.SymIntExprs]

    @trtp.register(ID)
    def describe(qkv: Described, heads: Heads) -> Described:
        wanted = int(heads[0]) * 3 * HEAD_SIZE
        width = qkv.shape_expr[qkv.ndim - 1]
        # TensorRT also asks for the type alone; then the sizes are fake
        if not width.is_fake and not (qkv.ndim == 3 and width.is_constant and width.constant_value() == wanted):
            raise ValueError(f"qkv must be (batch, sequence, {wanted}) for {heads[0]} heads of {HEAD_SIZE} numbers")
        answer = qkv.like()
        answer.shape_expr[2] = width // 3
        return answer

    @trtp.autotune(ID)
    def formats(qkv: Described, outputs: tuple[Described]) -> Formats:
        return [trtp.AutoTuneCombination("FP16, FP16", "LINEAR")]

    # Every attribute is a parameter here: TensorRT passes all of them, although its documentation allows a subset
    @trtp.aot_impl(ID)
    def kernel(qkv: Described, heads: Heads, outputs: tuple[Described], tactic: int) -> Kernel:
        batch, sequence, _ = qkv.shape_expr
        head_count = trtp.SymInt32(int(heads[0]))
        grid = {"grid_x": trtp.cdiv(sequence, QUERIES), "grid_y": head_count, "grid_z": batch}
        launch = trtp.KernelLaunchParams(**grid, block_x=THREADS, shared_mem=SHARED_BYTES)
        return KERNEL, code, launch, trtp.SymIntExprs.from_tuple((sequence, head_count))

    return getattr(getattr(trtp.op, NAMESPACE), NAME)
