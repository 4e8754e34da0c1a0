"""What Torch-TensorRT would ignore is rejected; what goes through arrives as it was said. On a double: the real one needs a GPU."""

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from course_lib import engines
from course_lib.engines.backends.torch_tensorrt import engine
from course_lib.engines.backends.torch_tensorrt import keywords as torch_trt_keywords
from course_lib.errors import BackendUnavailable, BuildError, CourseError, PlanError, PrecisionError
from tests.doubles import torch_tensorrt_double
from tests.one_line import one_line

VERSIONS = ("2.11", "2.12", "2.13", "2.14")
OLD = "2.2"  # for TensorRT 8.6, with other arguments; see test_torch_trt_2_2.py
ONE = {"x": (2, 8)}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def double(version: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = torch_tensorrt_double.make(f"{version}.0+cu130")
    monkeypatch.setitem(sys.modules, "torch_tensorrt", made)
    return made


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()


def _rejected(kind: type[CourseError], words: list[str], call: Callable[[], Any]) -> None:
    with one_line(kind, *words):
        call()


# ---- the table of keywords


def test_the_doubles_signatures_are_those_of_every_release(version: str) -> None:
    made, keywords = torch_tensorrt_double.make(version), torch_trt_keywords.table()[version]
    for name, others in {"compile": {"module", "ir"}, "save": {"module", "file_path"}, "load": {"file_path"}}.items():
        parameters = inspect.signature(getattr(made, name)).parameters
        named = {key for key, value in parameters.items() if value.kind is not value.VAR_KEYWORD}
        assert named - others <= set(keywords[name]), name
        assert any(value.kind is value.VAR_KEYWORD for value in parameters.values())
    assert {"min_shape", "opt_shape", "max_shape", "shape", "dtype", "name"} <= set(keywords["Input"])


def _wheel(version: str, folder: Path) -> Path:
    at_hand = sorted(Path(os.environ.get("COURSE_WHEELS", folder)).glob(f"torch_tensorrt-{version}*.whl"))
    try:
        return at_hand[0] if at_hand else torch_trt_keywords.download(f"{version}.0", folder)
    except ValueError as error:
        pytest.skip(f"{error}; name a folder with the wheel in COURSE_WHEELS")


@pytest.mark.parametrize("version", (OLD, *VERSIONS))
def test_the_table_is_what_the_released_wheel_says(version: str, tmp_path: Path) -> None:
    """The wheel has 4 MB. It comes from pip's registry, or from the folder COURSE_WHEELS."""
    assert torch_trt_keywords.read_wheel(_wheel(version, tmp_path)) == (version, torch_trt_keywords.table()[version])


# ---- options


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"enabled_precisions": {torch.half}}, ["module.half()", "enable_autocast=True"]),
        ({"use_explicit_typing": False}, ["module's own"]),
        ({"calibrator": object()}, ["modelopt", "precision='int8'"]),
        ({"truncate_long_and_double": True}, ["truncate_double"]),
        ({"refit": True}, ["immutable_weights=False"]),
        ({"debug": True}, ["Debugger"]),
        ({"torch_executed_modules": ["x"]}, ["torch_executed_ops"]),
        ({"ir": "ts"}, ["ir='dynamo'"]),
        ({"arg_inputs": []}, ["second argument"]),
        ({"optimisation_level": 3}, ["would ignore it without a message", "did you mean 'optimization_level'"]),
        ({"pass_through_build_failures": True}, ["ignores pass_through_build_failures", "leave it out"]),
        ({"cache_built_engines": True}, ["immutable_weights=False"]),
        ({"engine_cache_dir": "/tmp"}, ["cache_built_engines or reuse_cached_engines"]),
        ({"cpu_memory_budget": 1}, ["enable_resource_partitioning=True"]),
        ({"min_block_size": 3}, ["require_full_compilation=False"]),
        ({"autocast_max_output_threshold": 5.0}, ["enable_autocast=True"]),
        ({"torch_executed_ops": "torch.ops.aten.mul.Tensor"}, ["in braces"]),
        ({"torch_executed_ops": {"aten::mul"}}, ["'aten::mul'", "torch.ops.aten.mul.Tensor"]),
        ({"torch_executed_ops": {"torch.nn.functional.relu"}}, ["full name"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_would_be_ignored_is_rejected(option: dict[str, Any], words: list[str], double: ModuleType) -> None:
    _rejected(BuildError, [next(iter(option)), *words], lambda: engine.compile_module(_net(), ONE, **option))
    assert double.calls == []


def test_the_runtime_can_be_chosen_where_it_could(double: ModuleType, version: str) -> None:
    def call() -> Any:
        return engine.compile_module(_net(), ONE, use_python_runtime=True)

    if version in ("2.11", "2.12"):
        assert call() is not None and double.calls[0][1]["use_python_runtime"] is True
    else:
        _rejected(BuildError, ["ignores use_python_runtime", "leave it out"], call)


def test_options_that_are_read_arrive(double: ModuleType) -> None:
    kept = {
        "torch_executed_ops": {"torch.ops.aten.mul.Tensor", torch.ops.aten.relu.default},
        "min_block_size": 1,
        "cache_built_engines": True,
        "engine_cache_dir": "/tmp/cache",
        "immutable_weights": False,
        "optimization_level": 5,
    }
    engine.compile_module(_net(), ONE, **kept)
    (_, said), *_ = double.calls
    assert said.items() >= kept.items() and said["require_full_compilation"] is False


# ---- precision and inputs


def test_a_range_becomes_an_input_and_the_whole_graph_is_wanted(double: ModuleType) -> None:
    bounds = {"min": [1, 8], "opt": [4, 8], "max": [32, 8]}  # as a recipe's profile has it on the wire
    compiled = engine.compile_module(_net().half(), {"x": bounds}, precision="fp16")
    (_, said), *_ = double.calls
    (spec,) = said["arg_inputs"]
    assert spec.said == {
        "min_shape": (1, 8), "opt_shape": (4, 8), "max_shape": (32, 8), "dtype": torch.half, "name": "x"
    }  # fmt: skip
    assert said["require_full_compilation"] is True
    assert compiled(torch.ones(2, 8).half()).shape == (2, 8)


@pytest.mark.parametrize("version", ["2.13"], indirect=True)
@pytest.mark.parametrize(
    ("make", "precision", "options", "words"),
    [
        (_net, "fp16", {}, ["float32", "module.half()", "enable_autocast=True"]),
        (lambda: _net().half(), "fp32", {}, ["float16", "module.float()"]),
        (_net, "int8", {}, ["no quantizers", "modelopt"]),
        (_net, "fp32", {"enable_autocast": True}, ["agree"]),
        (_net, "fp16", {"enable_autocast": True, "autocast_low_precision_type": torch.bfloat16}, ["agree", "bfloat16"]),
    ],
)
def test_a_precision_that_the_module_does_not_have(
    make: Callable[[], Any], precision: str, options: dict[str, Any], words: list[str], double: ModuleType
) -> None:
    _rejected(PrecisionError, words, lambda: engine.compile_module(make(), ONE, precision=precision, **options))
    assert double.calls == []


@pytest.mark.parametrize("version", ["2.13"], indirect=True)
def test_precisions_that_the_module_has(double: ModuleType) -> None:
    class TensorQuantizer(torch.nn.Identity):
        """Named as modelopt's."""

    engine.compile_module(_net().bfloat16(), ONE, precision="bf16")
    engine.compile_module(_net(), ONE, precision="fp16", enable_autocast=True)
    engine.compile_module(torch.nn.Sequential(_net(), TensorQuantizer()), ONE, precision="int8")
    specs = [said["arg_inputs"][0].said["dtype"] for _, said in double.calls]
    assert specs == [torch.bfloat16, torch.float32, torch.float32]
    assert double.calls[1][1]["autocast_low_precision_type"] == torch.half  # without it autocast reduces nothing
    _rejected(BuildError, ["'fp64'"], lambda: engine.compile_module(_net(), ONE, precision="fp64"))


# ---- what comes out


def test_a_module_that_does_not_fit_or_stayed_in_pytorch_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_tensorrt", torch_tensorrt_double.make("2.13.0", converts=False))
    words = ["rejects the module", "do not fit the signature"]
    _rejected(BuildError, words, lambda: engine.compile_module(_net(), {"x": (2, 8), "y": (2, 8)}))
    loose = {"require_full_compilation": False}
    _rejected(BuildError, ["in PyTorch", "min_block_size=1"], lambda: engine.compile_module(_net(), ONE, **loose))
    assert engine.compile_module(_net(), ONE, dryrun=True, **loose) is not None


@pytest.mark.parametrize("version", ["2.13"], indirect=True)
def test_a_saved_module_comes_back(double: ModuleType, tmp_path: Path) -> None:
    net, path = _net(), tmp_path / "net.pt2"
    engine.save_module(engine.compile_module(net, ONE), path)
    x = torch.randn(2, 8)
    assert torch.equal(engine.load_module(path)(x), net(x))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"partitioners": []}, ["partitioners"]),
        ({"inductor_configs": {}}, ["inductor_configs", "aot_inductor"]),
        ({"retraced": True}, ["'retraced'", "did you mean 'retrace'"]),
        ({"arg_inputs": []}, ["arg_inputs", "leave it out"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_save_rejects_what_would_be_ignored(
    option: dict[str, Any], words: list[str], double: ModuleType, tmp_path: Path
) -> None:
    compiled = engine.compile_module(_net(), ONE)
    _rejected(BuildError, words, lambda: engine.save_module(compiled, tmp_path / "net.pt2", **option))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["2.13"], indirect=True)
def test_save_and_load_reject_in_one_line(double: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for other in (_net(), torch.compile(_net())):
        _rejected(BuildError, ["compile_module returned"], lambda other=other: engine.save_module(other, tmp_path / "x.pt2"))
    compiled = engine.compile_module(_net(), ONE)
    _rejected(BuildError, ["cannot save"], lambda: engine.save_module(compiled, tmp_path / "absent" / "x.pt2"))
    _rejected(PlanError, ["absent.pt2: no such file"], lambda: engine.load_module(tmp_path / "absent.pt2"))
    (tmp_path / "garbage.pt2").write_bytes(b"hello" * 99)
    _rejected(PlanError, ["garbage.pt2 is not a module"], lambda: engine.load_module(tmp_path / "garbage.pt2"))
    assert "Traceback" not in capsys.readouterr().err


# ---- installations


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (ModuleNotFoundError("no", name="torch_tensorrt"), ["torch_tensorrt is missing", "pip install"]),
        (ModuleNotFoundError("no", name="tensorrt"), ["tensorrt is missing", "pip install"]),
        (OSError("libnvinfer.so.11: cannot open shared object file"), ["libnvinfer.so.11", "fit together"]),
    ],
)
def test_an_installation_that_cannot_be_imported(
    fails: Exception, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            if name == "torch_tensorrt":
                raise fails

    monkeypatch.delitem(sys.modules, "torch_tensorrt", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    _rejected(BackendUnavailable, words, lambda: engine.compile_module(_net(), ONE))


def test_the_backend_where_it_is_installed_and_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if not engines.registry.availability("torch_tensorrt").version:
        found = engines.registry.availability("torch_tensorrt")
        assert found.no_build == found.no_run and "torch-tensorrt is not installed" in found.no_run and "GPU" in found.no_run
    monkeypatch.setattr(engines.Backend, "version", lambda _: "2.13.0")
    found = engines.registry.availability("torch_tensorrt")
    assert "not ONNX files" in found.no_build and "compile_module" in found.no_build
    monkeypatch.setitem(sys.modules, "torch_tensorrt", torch_tensorrt_double.make("9.9.0"))
    words = ["9.9", "2.2, 2.11, 2.12, 2.13, 2.14", "torch_tensorrt.keywords 9.9.0"]
    _rejected(BackendUnavailable, words, lambda: engine.compile_module(_net(), ONE))
