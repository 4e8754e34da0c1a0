"""The share of the API that each version kept, as the number of names in the Python bindings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from course_lib import style
from course_lib.migration.tables.api_table import ApiTable
from course_lib.migration.tables.known import RELEASES_IN_ORDER


@dataclass(frozen=True)
class Step:
    """The change from one version to the next: numbers of names that stayed, were added and were removed."""

    version: str
    kept: int
    added: int
    gone: int


def history() -> list[Step]:
    """One step per version, oldest first; in the first one every name counts as kept."""
    steps = []
    before = names(RELEASES_IN_ORDER[0])
    for version in RELEASES_IN_ORDER:
        now = names(version)
        steps.append(Step(version, len(now & before), len(now - before), len(before - now)))
        before = now
    return steps


def draw_history(steps: list[Step]) -> style.Figure:
    """Bars of names by version; what the version before had and this one lacks hangs below the axis."""
    figure, axes = style.subplots()
    places = range(len(steps))
    axes.bar(places, [step.kept for step in steps], color=style.color(0), label="as in the version before")
    axes.bar(places, [step.added for step in steps], bottom=[step.kept for step in steps], color=style.color(2), label="new")
    axes.bar(places, [-step.gone for step in steps], color=style.color(1), label="gone")
    for place, step in enumerate(steps):
        if step.gone:
            axes.annotate(f"-{step.gone}", (place, -step.gone), (0, -3), textcoords="offset points", ha="center", va="top")
    axes.axhline(0, color="black", lw=0.8)
    axes.margins(y=0.12)
    axes.set(xticks=list(places), xticklabels=[step.version for step in steps], ylabel="names in the Python API")
    axes.set_xlabel("TensorRT version")
    style.name_colors(axes)
    gone = sum(step.gone for step in steps)
    figure.suptitle(f"From {steps[0].version} to {steps[-1].version} {gone} names disappeared")
    return figure


@cache
def names(version: str) -> frozenset[str]:
    """Every public name of a version's bindings: classes, enums and their members, methods, properties, functions."""
    table = ApiTable.load(version)
    found = {*table.classes(), *table.enums(), *table.functions()}
    found |= {f"{enum}.{member}" for enum in table.enums() for member in table.enum(enum)}
    for owner in table.classes():
        inherited = {member for base in table.bases(owner) for member in table.members(base)}
        found |= {f"{owner}.{member}" for member in table.members(owner) if member not in inherited}
    return frozenset(name for name in found if "__" not in name)
