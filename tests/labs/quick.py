"""An examiner without processes, and what it found: for tests of what an examination says, not of how it is isolated."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import onnx

from course_lib.engines import Plan, build, load
from course_lib.labs import Examination, Examiner
from course_lib.recipe import Recipe


class Quick(Examiner):
    """Engines answer in this process, and nothing is built twice."""

    def build(self, model, recipe):
        return _built(model.read_bytes(), recipe.dumps(), self.builder)

    def runnable(self, model, recipe, built=None):
        return _built(model.read_bytes(), recipe.dumps(), self.runner)

    def baseline(self, source):
        return nullcontext(load(source))

    reference = engine = baseline


@cache
def _built(model: bytes, recipe: str, backend: str) -> Plan:
    return build(onnx.load_model_from_string(model), Recipe.loads(recipe), backend=backend)


def tiers(examined: Examination) -> dict[str, str]:
    return {outcome.task.id: outcome.tier for outcome in examined.outcomes}
