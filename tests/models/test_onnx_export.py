"""The exported models compute what torch computes, under the promised names, shapes and dtypes."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto
from torch import nn

from course_lib.models import Signature, classifier, export_onnx
from tests import exports_once
from tests.exported import exported, network
from tests.sessions import session

NAMES = ("small", "wide", "encoder", "resnet50")


@cache
def opened(name: str, **options: Any) -> onnxruntime.InferenceSession:
    return session(exported(name, **options))


def example(name: str, batch: int, **sizes: int) -> torch.Tensor:
    return network(name).signature().example(batch=batch, **sizes)[0]


def error(name: str, x: torch.Tensor, **options: Any) -> float:
    """Largest difference between ONNX Runtime and float32 torch, relative to the largest output."""
    (logits,) = opened(name, **options).run(["logits"], {next(iter(network(name).signature().inputs)): x.numpy()})
    with torch.no_grad():
        expected = network(name)(x).numpy()
    assert logits.dtype == np.float32 and logits.shape == expected.shape
    assert np.isfinite(logits).all()
    return float(np.abs(logits - expected).max() / np.abs(expected).max())


def dimensions(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    ("name", "batch"), [("resnet50", 3), *((name, batch) for name in NAMES if name != "resnet50" for batch in (1, 3, 32))]
)
def test_agrees_with_torch(name: str, batch: int) -> None:
    assert error(name, example(name, batch)) < 1e-4


@pytest.mark.parametrize("rows", [1, 17, 100])
def test_encoder_takes_any_sequence_length(rows: int) -> None:
    assert error("encoder", example("encoder", 3, sequence=rows)) < 1e-4


@pytest.mark.parametrize(
    ("name", "shape", "opset"),
    [
        ("small", ["batch", 1, 32, 32], None),
        ("small", ["batch", 1, 32, 32], 17),
        ("encoder", ["batch", "sequence", 32], None),
        ("encoder", ["batch", "sequence", 32], 17),
        ("resnet50", ["batch", 3, 224, 224], None),
    ],
)
def test_names_and_dynamic_dimensions(name: str, shape: list[int | str], opset: int | None) -> None:
    graph = exported(name, opset).graph
    assert [value.name for value in graph.input] == ["tokens" if name == "encoder" else "image"]
    assert [value.name for value in graph.output] == ["logits"]
    assert dimensions(graph.input[0]) == shape
    assert dimensions(graph.output[0]) == ["batch", 1000 if name == "resnet50" else 10]


def test_nodes_are_called_after_their_modules_and_norms_are_folded() -> None:
    names = {node.name for node in exported("small").graph.node}
    assert {"/stem+norm/Conv", "/block2/conv1+norm1/Conv", "/block2/shortcut/0+1/Conv", "/block2/Add", "/head/Gemm"} <= names
    names = {node.name for node in exported("encoder").graph.node}
    assert {"/embed/MatMul", "/blocks/3/qkv/MatMul", "/blocks/0/norm2/LayerNormalization", "/blocks/1/Softmax"} <= names
    assert len(operators(exported("small"))) == 21 and 115 <= len(operators(exported("resnet50"))) <= 125
    assert "BatchNormalization" not in operators(exported("resnet50"))


@pytest.mark.parametrize("name", NAMES)
def test_names_are_unique_and_dtype_does_not_change_them(name: str) -> None:
    nodes = [node.name for node in exported(name).graph.node]
    assert len(set(nodes)) == len(nodes)
    if name in ("small", "encoder"):
        half = {node.name for node in exported(name, dtype="fp16").graph.node if node.op_type != "Cast"}
        assert half == set(nodes)
    for initializer in exported(name).graph.initializer:
        assert not initializer.name.startswith(("val_", "node_")), "a name that the exporter made up"


@pytest.mark.parametrize(("name", "opset"), [("small", None), ("encoder", None), ("small", 17), ("encoder", 17)])
def test_half_precision_inside_only(name: str, opset: int | None) -> None:
    model = exported(name, opset, "fp16")
    kinds = {initializer.data_type for initializer in model.graph.initializer}
    assert kinds <= {TensorProto.FLOAT16, TensorProto.INT64} and TensorProto.FLOAT16 in kinds
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.tensor_type.elem_type == TensorProto.FLOAT
    assert error(name, example(name, 2), dtype="fp16", opset=opset) < 1e-2


@pytest.mark.parametrize("name", ["small", "wide", "encoder"])
def test_opset_17_for_older_tensorrt(name: str) -> None:
    model = exported(name, opset=17)
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [17]
    assert "Identity" not in operators(model)
    assert error(name, example(name, 3), opset=17) < 1e-4


def test_batch_norms_can_stay() -> None:
    model = exported("small", keep_batchnorm=True)
    assert operators(model).count("BatchNormalization") == 9
    assert error("small", example("small", 3), keep_batchnorm=True) < 1e-4
    with pytest.raises(ValueError, match="opset 17 or lower"):
        export_onnx(network("small"), keep_batchnorm=True, opset=20)


@pytest.fixture
def anew() -> Iterator[None]:
    """What this test exports is exported now and here."""
    exports_once.uninstall()
    yield
    exports_once.install()


@pytest.mark.usefixtures("anew")
def test_export_is_reproducible_and_leaves_the_model_alone() -> None:
    model = classifier("small")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    generator = torch.get_rng_state()
    once = export_onnx(model.train(), dtype="fp16").SerializeToString()
    assert model.training and model.stem.weight.dtype == torch.float32 and not model._forward_hooks
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert once == export_onnx(model, dtype="fp16").SerializeToString()
    assert str(Path(__file__).parents[2]).encode() not in once, "a path of this machine"


@pytest.mark.usefixtures("anew")
def test_writes_one_complete_quiet_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "model.onnx"
    export_onnx(network("small"), str(path), opset=17)
    returned = export_onnx(network("small"), path)
    assert onnx.load(path) == returned
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]
    assert capfd.readouterr() == ("", "")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def full_disk(descriptor: int) -> None:  # asked for after the bytes are written: a disk may reject as late as this
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        export_onnx(network("small"), path, opset=17)
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


class TwoHeads(nn.Module):
    """A learner's own network: two inputs, two outputs, no signature."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(left + right), left.mean(dim=1)


@pytest.mark.parametrize("options", [{}, {"dtype": "fp16"}, {"opset": 17}, {"opset": 17, "dtype": "fp16"}])
def test_any_module_with_a_signature(options: dict[str, Any]) -> None:
    shapes = {"left": ("batch", 4), "right": ("batch", 4)}
    model = export_onnx(TwoHeads(), signature=Signature(shapes, ("sum", "mean")), **options)
    left, right = np.ones((5, 4), np.float32), np.full((5, 4), 2, np.float32)
    total, mean = session(model).run(["sum", "mean"], {"left": left, "right": right})
    assert (total == 3).all() and (mean == 1).all() and mean.shape == (5,)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"Linear does not say what its inputs are: give it a method signature\(\)"):
        export_onnx(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="'fp32' or 'fp16'"):
        export_onnx(network("small"), dtype="int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        export_onnx(network("small"), dynamic_batch=False, batch=0)
