"""INT8 with TensorRT's own calibrators and with ours on the same data, on a real GPU: ranges and accuracy side by side."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import course_lib
from course_lib.engines import Worker, build, split_target
from course_lib.models import classifier, digits, export_onnx
from course_lib.precision import EntropyCalibrator, MinMaxCalibrator, calibrate, insert_qdq, read_cache, write_cache
from course_lib.recipe import Profile, Recipe
from tests.gpu.test_tensorrt import pytestmark, target  # noqa: F401  (the same marks, the same fixture)

SCRIPT = Path(__file__).with_name("int8_with_calibrator.py")
KINDS = {"entropy": (EntropyCalibrator(), "EntropyCalibration2"), "minmax": (MinMaxCalibrator(), "MinMaxCalibration")}


def run(target: str, script: Path, *arguments: object) -> str:  # noqa: F811
    """The last line that a script prints in TensorRT's interpreter."""
    library = str(Path(course_lib.__file__).resolve().parent.parent)
    command = [*split_target(target)[1].command, str(script), library, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout.strip())
    return (done.stdout.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("size", ["small", "wide"])
@pytest.mark.parametrize("kind", KINDS)
def test_ranges_and_accuracy(target, tmp_path, size, kind):  # noqa: F811
    model = tmp_path / "model.onnx"
    export_onnx(classifier(size), model, opset=17)
    samples, test = digits("train").images[:1000], digits("test")
    np.save(tmp_path / "calibration.npy", samples)
    np.save(tmp_path / "images.npy", test.images)
    ours, algorithm = KINDS[kind]
    ranges = calibrate(model, ({"image": samples[i : i + 50]} for i in range(0, 1000, 50)), ours, progress=False)

    accuracy = {}
    for whose in ("tensorrt", "ours"):
        cache = tmp_path / f"{whose}.cache"
        if whose == "ours":  # names that TensorRT gave to tensors of its own keep its ranges
            theirs = read_cache((tmp_path / "tensorrt.cache").read_text())
            mixed = {name: ranges.get(name, amax) for name, amax in theirs.items()}
            cache.write_text(write_cache(mixed, 8600, algorithm=algorithm))
        run(
            target, SCRIPT, model, kind, tmp_path / "calibration.npy", tmp_path / "images.npy", cache, tmp_path / f"{whose}.npy"
        )
        accuracy[whose] = float((np.load(tmp_path / f"{whose}.npy").argmax(1) == test.labels).mean())
    common = sorted(ranges.keys() & theirs.keys())
    ratios = np.array([ranges[name] / theirs[name] for name in common])
    spread = {"median": float(np.median(ratios)), "min": float(ratios.min()), "max": float(ratios.max())}
    record = {"size": size, "kind": kind, "tensors": len(common), "accuracy": accuracy, "ours_over_tensorrt": spread}
    print(json.dumps(record))
    assert len(common) >= 10
    assert abs(accuracy["ours"] - accuracy["tensorrt"]) <= 0.005
    if kind == "minmax":
        assert np.abs(ratios - 1).max() <= 0.01


@pytest.mark.parametrize("size", ["small", "wide"])
def test_explicit_quantization_has_int8_kernels_and_keeps_the_accuracy(target, tmp_path, size):  # noqa: F811
    """Q/DQ nodes with our ranges, through the course's own builder, profile and worker."""
    model, quantized = tmp_path / "model.onnx", tmp_path / "qdq.onnx"
    export_onnx(classifier(size), model, opset=17)
    samples, test = digits("train").images[:1000], digits("test")
    ranges = calibrate(model, ({"image": samples[i : i + 50]} for i in range(0, 1000, 50)), EntropyCalibrator(), progress=False)
    onnx.save(insert_qdq(onnx.load(model), ranges), quantized)
    fixed = Profile(image={"min": (50, 1, 32, 32), "opt": (50, 1, 32, 32), "max": (50, 1, 32, 32)})
    accuracy = {}
    for name, path, precision in (("fp32", model, "fp32"), ("int8", quantized, "int8")):
        plan = build(path, Recipe(precision=precision, profiles=[fixed]), backend=target)
        if precision == "int8":
            print(json.dumps({"size": size, "kernels by datatype": dict(plan.layers.dtype_counts())}))
            assert plan.layers.dtype_counts()["Int8"] >= 9
        with Worker(split_target(target)[1]) as engine:
            engine.load(plan)
            logits = [engine.infer({"image": test.images[i : i + 50]})["logits"] for i in range(0, 450, 50)]
        accuracy[name] = float((np.concatenate(logits).argmax(1) == test.labels).mean())
    print(json.dumps({"size": size, "accuracy": accuracy}))
    assert abs(accuracy["int8"] - accuracy["fp32"]) <= 0.005
