"""How much of the API each version kept, counted in the tables of the bindings."""

import itertools

import pytest

from course_lib.migration import ApiTable
from course_lib.migration.tables.release_history import draw_history, history, names


def test_steps_add_up() -> None:
    steps = history()
    assert [step.version for step in steps] == ["8.6.1", "10.15", "10.16", "11.0", "11.4"]
    assert (steps[0].added, steps[0].gone) == (0, 0)
    for before, step in itertools.pairwise(steps):
        assert before.kept + before.added == step.kept + step.gone
        assert step.kept + step.added == len(names(step.version))


def test_names_are_those_of_the_bindings() -> None:
    assert {"Builder", "ICudaEngine.get_binding_shape", "BuilderFlag.FP16"} <= names("8.6.1")
    gone = names("8.6.1") - names("11.4")
    assert "ICudaEngine.get_binding_shape" in gone and not any(ApiTable.load("11.4").has(name) for name in gone)


def test_the_figure_says_how_many_are_gone() -> None:
    steps = history()
    assert f" {sum(step.gone for step in steps)} names" in draw_history(steps).get_suptitle()


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


def test_a_name_that_the_text_calls_removed_is_not_in_11() -> None:
    for name in ("BuilderFlag.FP16", "BuilderFlag.INT8", "IInt8EntropyCalibrator2"):
        assert ApiTable.load("10.16").has(name) and not ApiTable.load("11.0").has(name)


def test_only_tensorrt_for_rtx_has_the_calls_of_its_runtime() -> None:
    """`IRuntimeConfig` itself is in both; the strategies and the cache are not: lectures 4 and 8."""
    for name in ("IRuntimeConfig.create_runtime_cache", "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy"):
        assert ApiTable.load("rtx-1.7.1").has(name) and not ApiTable.load("11.4").has(name)
