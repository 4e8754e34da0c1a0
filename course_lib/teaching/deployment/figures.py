"""Which plan loads on which GPU generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib import style
from course_lib.engines.plan import Plan, check_target
from course_lib.errors import PlanError


def runs_on(plan: Plan, capability: str) -> bool:
    """Whether a plan was compiled for this compute capability, such as ``"sm89"``."""
    try:
        check_target(plan, capability)
    except PlanError:
        return False
    return True


def draw_targets(plans: Mapping[str, Plan], devices: Mapping[str, str], title: str) -> style.Figure:
    """Draw one row per plan and one column per device, filled if the plan loads, with a cross if it is rejected.

    Args:
        plans: by name.
        devices: a device's name by its compute capability.
        title: the takeaway.
    """
    figure, axes = style.subplots(1.3 + 0.42 * len(plans))
    capabilities: Sequence[str] = list(devices)
    for row, plan in enumerate(plans.values()):
        for column, capability in enumerate(capabilities):
            loads = runs_on(plan, capability)
            axes.plot(column, row, "o" if loads else "x", ms=11 if loads else 7, color=style.color(2 if loads else 1))
    axes.set_xticks(
        range(len(devices)), [f"{name}\n{capability}".replace(" ", "\n") for capability, name in devices.items()], fontsize=8
    )
    style.name_rows(axes, list(plans))
    axes.set_xlim(-0.5, len(devices) - 0.5)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title)
    return figure
