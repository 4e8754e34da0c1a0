"""What builds and measurements of one network start from: ONNX files, inputs, calibration data, Q/DQ models."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx

from benchmarks.attention_parts.fused_attention import fuse_attention
from benchmarks.headline.cases import Network
from course_lib import models
from course_lib.models import Frame, video
from course_lib.models.digit_video import prepared
from course_lib.precision import PercentileCalibrator, activations, calibrate, cast, insert_qdq

OPSET = 17  # the newest that TensorRT 8.6 reads
_SAMPLES, _SAMPLES_ON_CPU = 64, 16  # of calibration


def frames(count: int) -> list[Frame]:
    """Pictures of the digit video, each of its own scene, with their truth."""
    return list(itertools.islice(video(2, scene_frames=1), count))


def prepare(network: Network, folder: Path, images: int) -> None:
    """Write ``NAME.onnx`` and ``NAME.fp16.onnx``, inputs and calibration data into `folder`.

    The inputs come last: where they are, the others are.
    """
    if inputs_file(network, folder).exists():
        return
    from benchmarks import yardsticks  # its networks need torch, which other interpreters of this module lack

    folder.mkdir(parents=True, exist_ok=True)
    model = yardsticks.make(network.factory, *network.arguments)
    exported = models.export_onnx(model, onnx_file(network, folder), opset=OPSET)
    # cast, not exported in half precision: the exporter runs the network, and a CPU takes minutes for FP16 convolutions
    onnx.save(cast(exported, "fp16"), onnx_file(network, folder, ".fp16"))
    if network.frames:
        samples = _pixels(list(itertools.islice(video(3, split="train", scene_frames=1), _SAMPLES)))
        inputs = _pixels(frames(images))
    else:
        rng, (shape,) = np.random.default_rng(0), model.signature().inputs.values()
        inputs, samples = (rng.standard_normal((n, *shape[1:]), dtype=np.float32) for n in (images, _SAMPLES))
    np.save(calibration_file(network, folder), samples)
    partial = inputs_file(network, folder).with_suffix(".partial.npy")
    np.save(partial, inputs)
    partial.rename(inputs_file(network, folder))


def _pixels(seen: list[Frame]) -> np.ndarray:
    return prepared(np.stack([frame.image for frame in seen]))


def made(network: Network, folder: Path, kind: str) -> Path:
    """The ONNX file of a kind, made when it is first asked for: not every network needs each.

    Args:
        kind: empty for the exported file; ``.fp16``; ``.attention`` or ``.fp16-attention``, in which each attention is the plugin's
            node; ``.qdq`` or ``.qdq-per-tensor``, whose ranges are from the course's calibrator on a few of the samples, because a CPU
            is slow at this.
    """
    if onnx_file(network, folder, kind).exists():
        return onnx_file(network, folder, kind)
    if kind.endswith("attention"):
        model = onnx.load(onnx_file(network, folder, kind.removesuffix("attention").rstrip(".-")))
        onnx.save(fuse_attention(model, network.heads), onnx_file(network, folder, kind))
    else:
        model = onnx.load(onnx_file(network, folder))
        samples = np.load(calibration_file(network, folder))[:_SAMPLES_ON_CPU]
        batches = [{model.graph.input[0].name: samples[at : at + 1]} for at in range(len(samples))]
        ranges = calibrate(model, batches, PercentileCalibrator(99.99), tensors=activations(model), progress=False)
        for name, per_channel in ((".qdq", True), (".qdq-per-tensor", False)):
            onnx.save(insert_qdq(model, ranges, per_channel=per_channel), onnx_file(network, folder, name))
    return onnx_file(network, folder, kind)


def onnx_file(network: Network, folder: Path, kind: str = "") -> Path:
    return folder / f"{network.name}{kind}.onnx"


def inputs_file(network: Network, folder: Path) -> Path:
    return folder / f"{network.name}.inputs.npy"


def calibration_file(network: Network, folder: Path) -> Path:
    return folder / f"{network.name}.calibration.npy"
