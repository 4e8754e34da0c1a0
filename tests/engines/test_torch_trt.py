"""What Torch-TensorRT would ignore is rejected: by the keywords of its released wheels, without the package."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import engines
from course_lib.engines.backends.torch_tensorrt import without_gpu
from course_lib.engines.backends.torch_tensorrt.options import check_compile_options
from course_lib.errors import BackendUnavailable, BuildError
from docs import make_keywords
from tests.one_line import one_line

TABLE = json.loads(make_keywords.TABLE.read_bytes())


def _wheel(version: str, folder: Path) -> Path:
    at_hand = sorted(Path(os.environ.get("COURSE_WHEELS", folder)).glob(f"torch_tensorrt-{version}*.whl"))
    try:
        return at_hand[0] if at_hand else make_keywords.download(f"{version}.0", folder)
    except ValueError as error:
        pytest.skip(f"{error}; name a folder with the wheel in COURSE_WHEELS")


@pytest.mark.parametrize("version", TABLE)
def test_the_table_is_what_the_released_wheel_says(version: str, tmp_path: Path) -> None:
    """The wheel has 4 MB. It comes from pip's registry, or from the folder COURSE_WHEELS."""
    assert make_keywords.read_wheel(_wheel(version, tmp_path)) == (version, TABLE[version])


@pytest.mark.parametrize("version", TABLE)
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"enabled_precisions": {torch.half}}, ["module.half()", "enable_autocast=True"]),
        ({"use_explicit_typing": False}, ["module's own"]),
        ({"calibrator": object()}, ["modelopt"]),
        ({"truncate_long_and_double": True}, ["truncate_double"]),
        ({"refit": True}, ["immutable_weights=False"]),
        ({"debug": True}, ["Debugger"]),
        ({"torch_executed_modules": ["x"]}, ["torch_executed_ops"]),
        ({"ir": "ts"}, ["'dynamo'"]),
        ({"arg_inputs": []}, ["shapes describe them"]),
        ({"optimisation_level": 3}, ["would ignore it without a message", "did you mean 'optimization_level'"]),
        ({"pass_through_build_failures": True}, ["ignores pass_through_build_failures", "leave it out"]),
        ({"cache_built_engines": True}, ["immutable_weights=False"]),
        ({"engine_cache_dir": "/tmp"}, ["cache_built_engines or reuse_cached_engines"]),
        ({"cpu_memory_budget": 1}, ["enable_resource_partitioning=True"]),
        ({"min_block_size": 3, "require_full_compilation": True}, ["require_full_compilation=False"]),
        ({"autocast_max_output_threshold": 5.0}, ["enable_autocast=True"]),
        ({"torch_executed_ops": "torch.ops.aten.mul.Tensor"}, ["in braces"]),
        ({"torch_executed_ops": {"aten::mul"}}, ["'aten::mul'", "torch.ops.aten.mul.Tensor"]),
        ({"torch_executed_ops": {"torch.nn.functional.relu"}}, ["full name"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_would_be_ignored_is_rejected(option: dict[str, Any], words: list[str], version: str) -> None:
    with one_line(BuildError, next(iter(option)), *words):
        check_compile_options(option, TABLE[version], version)


@pytest.mark.parametrize("version", TABLE)
def test_the_runtime_can_be_chosen_where_it_could(version: str) -> None:
    option = {"use_python_runtime": True}
    if version in ("2.11", "2.12"):
        check_compile_options(option, TABLE[version], version)
    else:
        with one_line(BuildError, "ignores use_python_runtime", "leave it out"):
            check_compile_options(option, TABLE[version], version)


@pytest.mark.parametrize("version", TABLE)
def test_options_that_are_read_pass(version: str) -> None:
    read = {
        "torch_executed_ops": {"torch.ops.aten.mul.Tensor", torch.ops.aten.relu.default},
        "min_block_size": 1,
        "cache_built_engines": True,
        "engine_cache_dir": "/tmp/cache",
        "immutable_weights": False,
        "optimization_level": 5,
    }
    check_compile_options(read, TABLE[version], version)


def test_an_installation_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "torch_tensorrt", None)
    with one_line(BackendUnavailable, "cannot be imported", "fit together", "pip install"):
        without_gpu.load.__wrapped__()


def test_the_backend_where_it_is_installed_and_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if not engines.registry.availability("torch_tensorrt").version:
        found = engines.registry.availability("torch_tensorrt")
        assert found.no_build == found.no_run and found.no_run == "not installed" and "GPU" in found.commands[1]
    monkeypatch.setattr(engines.Backend, "version", lambda _: "2.13.0")
    assert "not ONNX files" in engines.registry.availability("torch_tensorrt").no_build
