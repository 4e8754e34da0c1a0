"""What a reader writes for the scoreboard of each lecture: one function per lecture, from the given objects to the result."""

from __future__ import annotations

from math import prod

from course_lib.benchmark import compare
from course_lib.engines import build
from course_lib.models import export_onnx
from course_lib.precision import MSECalibrator, activations, cast, insert_qdq, observe, train
from course_lib.profiling import profile_onnxruntime
from course_lib.recipe import Profile, Recipe
from course_lib.teaching.auto_tuning.tiles import Tiling
from course_lib.teaching.qat.by_hand import export_wrapped, wrap

ADA = Recipe(targets=["sm89"])


def lecture02(network):
    """The received network as ONNX, with its debug outputs and batch norms."""
    return export_onnx(network, dynamic_batch=False, batch=32, keep_batchnorm=True)


def lecture03(network):
    """The network without what blocks fusion."""
    return export_onnx(network, dynamic_batch=False, batch=32)


def lecture04(rows, columns):
    """The share of 132 multiprocessors that have a tile."""
    return Tiling(rows, columns, tile=(128, 64), multiprocessors=132).busy


def lecture05(model):
    """The network in FP16."""
    return cast(model, "fp16")


def lecture06(model, batches):
    """The network with Q/DQ pairs."""
    seen = observe(model, batches, tensors=activations(model), progress=False)
    return insert_qdq(model, seen.ranges(MSECalibrator()))


def lecture07(folded, ranges, batches, export):
    """The network after one epoch of training with rounding."""
    qat = wrap(folded, ranges)
    train(qat, batches, epochs=1, learning_rate=1e-4)
    return export_wrapped(qat, export)


def lecture08(any_batch):
    """Kernels of the plan for batches 1 to 32."""
    images = {"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}
    recipe = Recipe(targets=["sm89"], profiles=[Profile(image=images)])
    return len(build(any_batch, recipe, backend="tensorrt_rtx").layers.kernels)


def lecture09(trips):
    """The share of the bytes in kernels without a Conv or a Gemm."""
    others = [trip.total_bytes for trip in trips if "Conv" not in trip.operators and "Gemm" not in trip.operators]
    return sum(others) / sum(trip.total_bytes for trip in trips)


def lecture10(tensors):
    """Megabytes that one call copies."""
    return sum(4 * prod(tensor.shape) for tensor in tensors) / 1e6


def lecture11(subjects, pictures):
    """Half the width of the interval over its median."""
    return compare(subjects, pictures, baseline="PyTorch eager", time_limit_s=6).speedups["engine"].half_width


def lecture12(model, feeds):
    """The share of the slowest layer."""
    _, timings = profile_onnxruntime(model, feeds, runs=5)
    return max(layer.share for layer in timings.layers())
