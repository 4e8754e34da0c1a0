"""Names that lecture 4 gives with a version, looked up in NVIDIA's bindings."""

from __future__ import annotations

import pytest

from course_lib.migration import ApiTable

tensorrt_rtx = pytest.importorskip("tensorrt_rtx")


@pytest.mark.parametrize("name", ["max_num_tactics", "tiling_optimization_level", "l2_limit_for_tiling"])
def test_settings_of_tensorrt_10(name: str) -> None:
    known = {version: ApiTable.load(version).has(f"IBuilderConfig.{name}") for version in ("8.6.1", "10.15", "11.4")}
    assert known == {"8.6.1": False, "10.15": True, "11.4": True}


def test_the_runtime_of_tensorrt_for_rtx_has_the_calls_of_the_lecture() -> None:
    strategies = tensorrt_rtx.DynamicShapesKernelSpecializationStrategy.__members__
    assert list(strategies) == ["LAZY", "EAGER", "NONE"] and int(strategies["LAZY"]) == 0
    for kind, names in {
        "IRuntimeConfig": ("create_runtime_cache", "set_runtime_cache", "dynamic_shapes_kernel_specialization_strategy"),
        "IRuntimeCache": ("serialize", "deserialize"),
        "ICudaEngine": ("create_runtime_config", "create_execution_context"),
    }.items():
        assert [name for name in names if not hasattr(getattr(tensorrt_rtx, kind), name)] == []
