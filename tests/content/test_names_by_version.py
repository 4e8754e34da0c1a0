"""What the lectures say about the version in which a name appears, compared with the tables of NVIDIA's bindings."""

from __future__ import annotations

import pytest

from course_lib.migration import ApiTable

VERSIONS = ("8.6.1", "10.15", "10.16", "11.0", "11.4")

# By name: the first of these versions that has it.
FIRST = {
    "IBuilderConfig.build_route": "11.4",  # "since 11.1": lectures 1, 4 and 5
    "IBuilderConfig.all_build_routes": "11.4",
    "IBuilderConfig.max_num_tactics": "10.15",  # "10.4 and later": lecture 4
    "IBuilderConfig.tiling_optimization_level": "10.15",  # "10.8 and later": lecture 4
    "INetworkDefinition.add_dist_collective": "10.16",  # lecture 14
    "IAttention.num_ranks": "10.16",
    "IExecutionContext.set_communicator": "10.16",
    "INetworkDefinition.add_moe": "10.16",  # lecture 15
    "BuilderFlag.STRIP_PLAN": "10.15",  # lecture 10
    "BuilderFlag.WEIGHT_STREAMING": "10.15",
    "BuilderFlag.REFIT": "8.6.1",
    "BuilderFlag.SPARSE_WEIGHTS": "8.6.1",  # lecture 16
}


@pytest.mark.parametrize(("name", "first"), FIRST.items())
def test_a_name_appears_in_the_version_that_the_text_says(name: str, first: str) -> None:
    assert next(version for version in VERSIONS if ApiTable.load(version).has(name)) == first


@pytest.mark.parametrize("name", ["BuilderFlag.FP16", "BuilderFlag.INT8", "IInt8EntropyCalibrator2"])
def test_a_name_that_the_text_calls_removed_is_not_in_11(name: str) -> None:
    assert ApiTable.load("10.16").has(name) and not ApiTable.load("11.0").has(name)


def test_only_tensorrt_for_rtx_has_the_calls_of_its_runtime() -> None:
    """`IRuntimeConfig` itself is in both; the strategies and the cache are not: lectures 4 and 8."""
    for name in ("IRuntimeConfig.create_runtime_cache", "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy"):
        assert ApiTable.load("rtx-1.7.1").has(name) and not ApiTable.load("11.4").has(name)
