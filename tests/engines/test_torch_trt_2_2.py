"""Torch-TensorRT 2.2, which ignores ``require_full_compilation`` and returns tuples: what `compile_module` makes of it, on a double."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from course_lib.engines.backends.torch_tensorrt import engine
from course_lib.errors import BuildError, PrecisionError
from tests.doubles import torch_tensorrt_double

ONE = {"x": (2, 8)}
LEFT = ("aten.cumprod.default",)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = torch_tensorrt_double.make_2_2()
    monkeypatch.setitem(sys.modules, "torch_tensorrt", made)
    return made


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()


def test_a_single_output_is_a_tensor(double: ModuleType) -> None:
    net, x = _net(), torch.randn(2, 8)
    assert torch.equal(engine.compile_module(net, ONE)(x), net(x))


@pytest.mark.parametrize(("cast", "precision"), [(torch.float32, "fp32"), (torch.float16, "fp16")])
def test_the_types_of_the_engine_are_those_of_the_module(double: ModuleType, cast: torch.dtype, precision: str) -> None:
    engine.compile_module(_net().to(cast), {"x": {"min": (1, 8), "opt": (4, 8), "max": (32, 8)}}, precision=precision)
    ((_, said),) = double.calls
    assert said["enabled_precisions"] == {cast} and said["min_block_size"] == 1 and "require_full_compilation" not in said
    assert said["inputs"][0].said["dtype"] == cast and said["inputs"][0].said["name"] == "x"


def test_an_operator_left_in_pytorch_is_rejected_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_tensorrt", torch_tensorrt_double.make_2_2(unsupported=LEFT))
    with pytest.raises(BuildError, match=r"run in PyTorch: 1 \(aten.cumprod.default\)"):
        engine.compile_module(_net(), ONE)
    net, x = _net(), torch.randn(2, 8)
    mixed = engine.compile_module(net, ONE, require_full_compilation=False)
    assert torch.equal(mixed(x), torch.cumprod(net(x), 0))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"min_blok_size": 1}, "did you mean 'min_block_size'"),
        ({"cache_built_engines": True}, "would ignore it without a message"),
        ({"calibrator": object()}, r"only torch_tensorrt.compile\(ir='ts'\) reads it"),
        ({"torch_executed_modules": ["head"]}, "2.2 ignores torch_executed_modules"),
        ({"pass_through_build_failures": True}, "2.2 ignores pass_through_build_failures"),
        ({"enabled_precisions": {torch.half}}, "say precision='fp16'"),
        ({"output_format": "torchscript"}, "compile_module sets output_format"),
        ({"torch_executed_ops": {"aten::relu"}}, "matches no operator"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_it_would_ignore_is_rejected(double: ModuleType, option: dict[str, Any], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        engine.compile_module(_net(), ONE, **option)
    assert double.calls == []


def test_what_it_reads_arrives(double: ModuleType) -> None:
    option = {"debug": True, "refit": True, "truncate_long_and_double": True, "min_block_size": 3}
    engine.compile_module(_net(), ONE, **option)
    assert double.calls[0][1].items() >= option.items()


def test_a_precision_that_the_module_does_not_have_and_a_save(double: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(PrecisionError, match=r"call module.half\(\)$"):
        engine.compile_module(_net(), ONE, precision="fp16")
    with pytest.raises(BuildError, match=r"2.2 has no save: use torch.save"):
        engine.save_module(engine.compile_module(_net(), ONE), tmp_path / "net.pt2")
