"""How much of the API each version kept, counted in the tables of the bindings."""

from __future__ import annotations

import itertools

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
