"""Networks of the kinds that people bring: exported, run by an engine and compared with PyTorch; and one line where that fails."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from course_lib import engines
from course_lib.benchmark import compare
from course_lib.engines import ModelSource
from course_lib.errors import CourseError, EngineError
from course_lib.models import Signature, export_onnx
from tests.one_line import one_line


class Decoder(nn.Module):
    """The end of a U-Net with SiLU: a skip connection, group norm, a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 3, 2, 2)

    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([image, self.up(self.down(image))], 1)

    def signature(self) -> Signature:
        return Signature({"image": ("batch", 3, "height", "width")}, ("mask",), {"height": 16, "width": 24})


class Reader(nn.Module):
    """Token numbers to an LSTM, whose state is an output, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(50, 8), nn.LSTM(8, 4, batch_first=True)

    def forward(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs: tuple[Tensor, tuple[Tensor, Tensor]] = self.lstm(self.table(ids))
        return outputs

    def signature(self) -> Signature:
        return Signature({"ids": ("batch", 6)}, ("y", "hidden", "cell"), integers={"ids": 50})


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(tokens)).mean(1)

    def signature(self) -> Signature:
        return Signature({"tokens": ("batch", 5, 16)}, ("y",))


class Station(nn.Module):
    """A float and an integer input, and the outputs in a dictionary, one of them of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.line = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, series: Tensor, station: Tensor) -> dict[str, Tensor]:
        scores = self.line(series + self.table(station))
        return {"scores": scores, "best": scores.argmax(1)}

    def signature(self) -> Signature:
        return Signature({"series": ("batch", 4), "station": ("batch",)}, ("scores", "best"), integers={"station": 7})


class Silent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Undecided(Silent):
    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x

    def signature(self) -> Signature:
        return Signature({"x": ("batch", 4)}, ("y",))


class TwoOutputs(Silent):
    def signature(self) -> Signature:
        return Signature({"x": ("batch", 4)}, ("y", "z"))


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = globals()[name]()
    return module.eval()


def _source(name: str) -> ModelSource:
    return ModelSource(f"{__name__}:made", (name,))


@pytest.mark.parametrize("name", ["Decoder", "Reader", "Attention", "Station"])
def test_the_whole_way(name: str, tmp_path: Path) -> None:
    export_onnx(made(name), tmp_path / "model.onnx")
    plan = engines.registry.compile_plan("onnxruntime", tmp_path / "model.onnx", {})
    built, eager = engines.load(plan), engines.load(_source(name))
    signature: Signature = made(name).signature()  # type: ignore[operator]
    feeds = {key: tensor.numpy() for key, tensor in zip(signature.inputs, signature.example(), strict=True)}
    expected, found = eager.infer(feeds), built.infer(feeds)
    assert list(found) == list(expected) == list(signature.outputs)
    for key, array in expected.items():
        assert array.dtype == found[key].dtype and np.allclose(array, found[key], atol=1e-5)
    compared = compare({"eager": eager, "engine": built}, lambda: feeds, baseline="eager", min_rounds=10, time_limit_s=0.01)
    assert compared.speedups["engine"].median > 0


@pytest.mark.parametrize("name", ["Reader", "Station"])
def test_integers_stay_integers_in_half_precision(name: str, tmp_path: Path) -> None:
    export_onnx(made(name), tmp_path / "model.onnx", dtype="fp16")
    plan = engines.registry.compile_plan("onnxruntime", tmp_path / "model.onnx", {})
    assert {info.name: info.dtype for info in engines.load(plan).inputs} == {
        info.name: info.dtype for info in engines.load(_source(name)).inputs
    }


def test_integers_that_the_signature_does_not_name_and_what_torch_cannot_export() -> None:
    signature = Signature({"ids": ("batch", 6)}, ("y", "hidden", "cell"))
    with one_line(CourseError, "Reader rejects the inputs of its signature", "'indices'", "integers={...}", longest=400):
        export_onnx(made("Reader"), signature=signature)
    with one_line(CourseError, "torch cannot export Undecided", "forward()", longest=400):
        export_onnx(made("Undecided"))


def test_a_source_that_makes_no_network_or_one_with_other_outputs() -> None:
    for module, factory, words in (
        (__name__, "absent", ("absent", "does not make a network")),
        (__name__, "Silent", ("Silent", "does not make a network")),
        ("no.such.module", "Silent", ("No module named",)),
    ):
        with one_line(EngineError, *words, longest=400):
            engines.load(ModelSource(f"{module}:{factory}"))
    engine = engines.load(_source("TwoOutputs"))
    with one_line(EngineError, "returns 1 tensor", "names 2 (y, z)"):
        engine.infer({"x": np.ones((1, 4), np.float32)})


class _Attention(nn.Module):
    """Torch has a fused operator for it in eval mode, which no ONNX operator set has."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]

    def signature(self) -> Signature:
        return Signature(inputs={"x": ("batch", 7, 16)}, outputs=("y",))


@pytest.mark.parametrize("opset", [17, None])
def test_attention_of_torch_is_exported_and_its_fast_path_is_on_again(opset, capfd) -> None:
    assert "MatMul" in {node.op_type for node in export_onnx(_Attention().eval(), opset=opset).graph.node}
    assert torch.backends.mha.get_fastpath_enabled() and "graph(" not in "".join(capfd.readouterr())
