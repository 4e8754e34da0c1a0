"""Task 5: the recipe for a service, judged by recorded builds on one GPU."""

from __future__ import annotations

from pathlib import Path

from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.submission_files import submitted
from course_lib.labs.lab03_tuning.recorded_tables import levels, workspaces
from course_lib.recipe import Recipe

RUNS = 30_000  # of batch 64, between two builds
MOST_WORKSPACE_MIB, SPEED = 16, 0.99  # speed over the default workspace
FILE = "recipe.toml"


def criteria(folder: Path) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them.

    Raises:
        BuildError: there is no recipe.
        RecipeError: it cannot be read.
    """
    recipe = Recipe.load(submitted(folder, FILE))
    totals = {level: seconds + RUNS * ms / 1e3 for level, (seconds, ms) in levels().items()}
    level = Criterion(
        f"compiler and {RUNS:,} runs with the level of the recipe",
        f"{totals[recipe.optimization_level]:.1f} s",
        "the least of the recorded levels",
        totals[recipe.optimization_level] <= min(totals.values()),
        HALF,
    )
    recorded = workspaces()
    mib = recipe.workspace_mib
    speed = recorded[1024][1] / recorded[mib][1] if mib in recorded else None
    workspace = Criterion(
        "workspace of the recipe, and the recorded speed over the default",
        f"{mib} MiB, {'not recorded' if speed is None else f'{speed:.2f}x'}",
        f"at most {MOST_WORKSPACE_MIB} MiB, at least {SPEED:g}x",
        speed is not None and mib <= MOST_WORKSPACE_MIB and speed >= SPEED,
    )
    return [Criterion(level.name, level.found, level.bound, level.met), workspace], [level]
