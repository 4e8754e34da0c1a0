"""The committed tables of TensorRT's API: equal to NVIDIA's bindings, and in line with what the course says of each version."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from course_lib.migration.tables import bindings
from course_lib.migration.tables.api_table import ApiTable
from course_lib.migration.tables.bindings import RELEASES, BindingsUnavailable, NoNetwork, read_bindings, table_file

CHRONOLOGICAL = ("8.6.1", "10.15", "10.16", "11.0", "11.4")
FROM_10 = CHRONOLOGICAL[1:]
TO_10 = CHRONOLOGICAL[:3]


@pytest.mark.parametrize("version", RELEASES)
def test_the_committed_table_equals_the_real_bindings(version: str) -> None:
    if sys.version_info >= (3, 12) and version == "8.6.1":
        pytest.skip("TensorRT 8.6.1 has no wheel for this Python")
    try:
        found = read_bindings(version)
    except NoNetwork as absent:
        pytest.skip(str(absent))
    committed = json.loads(gzip.decompress(table_file(version).read_bytes()))
    if found["wheel"]["file"] != committed["wheel"]["file"]:  # another Python, another file, the same API
        found["wheel"] = committed["wheel"]
    assert found == committed


def test_the_tables_are_small_and_complete() -> None:
    assert set(ApiTable.versions()) == set(RELEASES)
    assert sum(table_file(version).stat().st_size for version in RELEASES) < 150_000
    for version in RELEASES:
        table = ApiTable.load(version)
        assert table.wheel["version"] == RELEASES[version].version and len(table.wheel["sha256"]) == 64
        assert len(table.classes()) > 100 and len(table.enums()) > 50


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("NetworkDefinitionCreationFlag.EXPLICIT_BATCH", TO_10),
        ("NetworkDefinitionCreationFlag.STRONGLY_TYPED", FROM_10),
        ("IBuilderConfig.max_workspace_size", ("8.6.1",)),
        ("IBuilderConfig.set_memory_pool_limit", CHRONOLOGICAL),
        ("Builder.build_engine", ("8.6.1",)),
        ("Builder.build_cuda_engine", ()),
        ("Builder.build_serialized_network", CHRONOLOGICAL),
        ("Builder.build_engine_with_config", FROM_10),
        ("ICudaEngine.get_binding_shape", ("8.6.1",)),
        ("ICudaEngine.get_binding_name", ("8.6.1",)),
        ("ICudaEngine.get_binding_size", ()),
        ("ICudaEngine.binding_is_input", ("8.6.1",)),
        ("ICudaEngine.num_bindings", ("8.6.1",)),
        ("ICudaEngine.max_batch_size", ("8.6.1",)),
        ("ICudaEngine.num_io_tensors", CHRONOLOGICAL),
        ("ICudaEngine.get_tensor_mode", CHRONOLOGICAL),
        ("IExecutionContext.execute", ("8.6.1",)),
        ("IExecutionContext.execute_async", ("8.6.1",)),
        ("IExecutionContext.execute_async_v2", ("8.6.1",)),
        ("IExecutionContext.set_binding_shape", ("8.6.1",)),
        ("IExecutionContext.execute_v2", CHRONOLOGICAL),
        ("IExecutionContext.set_input_shape", CHRONOLOGICAL),
        ("IExecutionContext.set_tensor_address", CHRONOLOGICAL),
        ("IExecutionContext.execute_async_v3", CHRONOLOGICAL),
        ("BuilderFlag.FP16", TO_10),
        ("BuilderFlag.INT8", TO_10),
        ("BuilderFlag.FP8", TO_10),
        ("BuilderFlag.BF16", ("10.15", "10.16")),
        ("BuilderFlag.FP4", ("10.15", "10.16")),
        ("BuilderFlag.INT4", ("10.15", "10.16")),
        ("BuilderFlag.STRICT_TYPES", ("8.6.1",)),
        ("BuilderFlag.OBEY_PRECISION_CONSTRAINTS", TO_10),
        ("BuilderFlag.PREFER_PRECISION_CONSTRAINTS", TO_10),
        ("BuilderFlag.REFIT", CHRONOLOGICAL),
        ("BuilderFlag.DISABLE_TIMING_CACHE", CHRONOLOGICAL),
        ("ILayer.precision", TO_10),
        ("IConvolutionLayer.precision", TO_10),
        ("ILayer.set_output_type", TO_10),
        ("INetworkDefinition.add_cast", CHRONOLOGICAL),
        ("Builder.platform_has_fast_fp16", TO_10),
        ("IInt8EntropyCalibrator2", TO_10),
        ("IInt8MinMaxCalibrator", TO_10),
        ("IInt8LegacyCalibrator", TO_10),
        ("IBuilderConfig.int8_calibrator", TO_10),
        ("ITensor.set_dynamic_range", TO_10),
        ("IAlgorithmSelector", TO_10),
        ("IBuilderConfig.set_tactic_sources", CHRONOLOGICAL),
        ("TacticSource.EDGE_MASK_CONVOLUTIONS", CHRONOLOGICAL),
        ("TacticSource.JIT_CONVOLUTIONS", CHRONOLOGICAL),
        ("TacticSource.CUBLAS", TO_10),
        ("TacticSource.CUBLAS_LT", TO_10),
        ("TacticSource.CUDNN", TO_10),
        ("PreviewFeature.FASTER_DYNAMIC_SHAPES_0805", ("8.6.1",)),
        ("IPluginV2DynamicExt", FROM_10),
        ("INetworkDefinition.add_plugin_v2", CHRONOLOGICAL),
        ("IPluginV3", FROM_10),
        ("INetworkDefinition.add_plugin_v3", FROM_10),
        ("IPluginRegistry.get_plugin_creator", TO_10),
        ("IPluginRegistry.get_creator", FROM_10),
        ("Profiler.get_layer_timing", ()),
        ("IProfiler.report_layer_time", CHRONOLOGICAL),
        ("ICudaEngine.get_device_memory_size", ()),
        ("ICudaEngine.device_memory_size", TO_10),
        ("ICudaEngine.device_memory_size_v2", FROM_10),
        ("ICudaEngine.create_execution_context_without_device_memory", TO_10),
        ("ExecutionContextAllocationStrategy.USER_MANAGED", FROM_10),
        ("IProgressMonitor.step_complete", FROM_10),
    ],
)
def test_the_migration_table_of_the_course_holds(name: str, versions: tuple[str, ...]) -> None:
    assert tuple(version for version in CHRONOLOGICAL if ApiTable.load(version).has(name)) == versions


# ---- where reading fails


def test_an_unknown_version_is_a_programmers_mistake() -> None:
    with pytest.raises(ValueError, match=r"no version '9': there are 8\.6\.1, 10\.15"):
        read_bindings("9")


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'",
            NoNetwork,
            "reached no registry",
        ),
        ("after connection broken by 'NameResolutionError'", NoNetwork, r"put the wheel into \$COURSE_BINDINGS"),
        ("ERROR: No matching distribution found for tensorrt-cu13-bindings", BindingsUnavailable, "No matching distribution"),
    ],
)
def test_a_failed_download_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, error: type[Exception], text: str
) -> None:
    monkeypatch.setenv(bindings.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: subprocess.CompletedProcess(args, 1, "", said))
    with pytest.raises(error, match=text) as rejection:
        read_bindings("11.4")
    assert type(rejection.value) is error and "tensorrt-cu13-bindings==11.4.0.106" in str(rejection.value)


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BindingsUnavailable, match=r"needs a C compiler \(cc, gcc or clang\)"):
        bindings.make_libraries(("liba.so",), tmp_path)


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/bin/false")
    with pytest.raises(BindingsUnavailable, match="the C compiler /bin/false failed"):
        bindings.make_libraries(("liba.so",), tmp_path)


def test_a_module_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BindingsUnavailable, match="cannot be imported: ModuleNotFoundError"):
        bindings._import(RELEASES["11.4"], str(tmp_path))


def test_tables_are_written_and_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content: dict[str, Any] = {"classes": {}}
    monkeypatch.setattr(bindings, "TABLES", tmp_path)
    monkeypatch.setattr(bindings, "RELEASES", {"11.4": RELEASES["11.4"]})
    monkeypatch.setattr(bindings, "read_bindings", lambda version: content)
    assert bindings.main(["--check"]) == 1 and "differs" in capsys.readouterr().out
    assert bindings.main([]) == 0 and "written" in capsys.readouterr().out
    first = (tmp_path / "11.4.json.gz").read_bytes()
    assert bindings.main(["--check"]) == 0 and bindings.main([]) == 0
    (tmp_path / "11.4.json.gz").unlink()
    bindings.main([])
    assert (tmp_path / "11.4.json.gz").read_bytes() == first
    content["classes"]["New"] = {}
    assert bindings.main(["--check"]) == 1
