"""Figures of prefill and decode, of the cache, of masks, of kernels by profile, of batch slots and of sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from course_lib.engines import LayerTable
    from course_lib.teaching.generation.arithmetic import DecoderSize
    from course_lib.teaching.generation.serving import Served


def draw_intensity(lines: Mapping[str, Mapping[int, float]], ridge: float, title: str, source: str) -> style.Figure:
    """Operations per byte over the number of new tokens in a call, with the device's ridge.

    Args:
        lines: by name, operations per byte by new tokens of all sequences together.
        ridge: operations that the device computes in the time in which it reads a byte.
        title: the takeaway.
        source: the model and the device.
    """
    figure, axes = style.subplots(3.6)
    for index, (name, line) in enumerate(lines.items()):
        axes.plot(list(line), list(line.values()), "o-", ms=4, color=style.color(index), label=name)
    axes.axhline(ridge, color="#777777", ls="--", lw=1, label=f"ridge: {ridge:.0f}")
    for limit, offset in (("arithmetic", 4), ("memory", -11)):
        axes.annotate(f"{limit} limits", (1, ridge), (0, offset), textcoords="offset points", fontsize=9, color="#555555")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel=f"new tokens in one call\n{source}", ylabel="operations per byte read", title=title)
    style.name_lines(axes)
    return figure


def draw_cache(models: Mapping[str, DecoderSize], title: str) -> style.Figure:
    """Gibibytes of one sequence's keys and values in FP16 over its tokens, for each model up to its longest sequence.

    Args:
        models: sizes by name.
        title: the takeaway.
    """
    figure, axes = style.subplots(3.6)
    for index, (name, model) in enumerate(models.items()):
        tokens = np.geomspace(256, model.longest, 20)
        gib = [model.cache_bytes(1) * one / 2**30 for one in tokens]
        label = f"{name}: {model.cache_bytes(1) / 1024:.0f} KiB per token"
        axes.plot(tokens, gib, "o-", markevery=[-1], color=style.color(index), label=label)
        axes.annotate(f"{gib[-1]:.2g} GiB", (tokens[-1], gib[-1]), (-6, 2), textcoords="offset points", ha="right", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="tokens of one sequence", ylabel="keys and values (GiB)", title=title)
    style.name_lines(axes)
    return figure


def draw_masks(masks: Mapping[str, np.ndarray], title: str) -> style.Figure:
    """Which keys each query may read: one panel per mask, filled where it may.

    Args:
        masks: by name, bool ``(queries, keys)``.
        title: the takeaway.
    """
    rows, columns = np.max([seen.shape for seen in masks.values()], axis=0)
    stacked = -(-len(masks) // 2)
    figure, panels = style.subplots(0.5 + stacked * (0.25 * rows + 0.7), stacked, 2)
    for axes in panels.flat[len(masks) :]:
        axes.set_axis_off()
    for axes, (name, seen) in zip(panels.flat, masks.items(), strict=False):
        axes.imshow(seen, cmap="Blues", vmin=0, vmax=1.4, aspect="equal")
        axes.set_title(name, fontsize=8.5, weight="normal")
        axes.set_xticks(range(seen.shape[1]), range(seen.shape[1]), fontsize=8)
        axes.set_yticks(range(seen.shape[0]), range(seen.shape[0]), fontsize=8)
        axes.set_xticks(np.arange(seen.shape[1] + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(seen.shape[0] + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", lw=1)
        axes.tick_params(which="both", length=0)
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))  # cells of one size in all panels
        axes.spines[:].set_visible(False)
    figure.supxlabel("key: slot", fontsize=9)
    figure.supylabel("query: new token", fontsize=9)
    figure.suptitle(title)
    return figure


def draw_kinds(tables: Mapping[str, LayerTable], title: str) -> style.Figure:
    """Kernels of each engine by their kind, as bars.

    Args:
        tables: layer tables by name, drawn from top to bottom.
        title: the takeaway.
    """
    figure, axes = style.subplots(1.3 + 0.4 * len(tables))
    kinds = list(dict.fromkeys(kernel.kind for table in tables.values() for kernel in table.kernels))
    left = np.zeros(len(tables))
    for index, kind in enumerate(kinds):
        counts = np.array([sum(kernel.kind == kind for kernel in table.kernels) for table in tables.values()])
        bars = axes.barh(range(len(tables)), counts, left=left, color=style.color(index), height=0.6, label=kind)
        axes.bar_label(bars, [str(count) if count else "" for count in counts], label_type="center", fontsize=8, color="white")
        left += counts
    style.name_rows(axes, [f"{name}: {len(table.kernels)}" for name, table in tables.items()])
    axes.set(xlabel="kernels", title=title)
    style.name_colors(axes)
    return figure


def draw_batch_slots(ways: Mapping[str, Served], title: str) -> style.Figure:
    """Each batch slot of the batch over time: colored while a request generates, gray while its finished row is still computed.

    Args:
        ways: the same requests with several rules, one panel each.
        title: the takeaway.
    """
    figure, panels = style.subplots(0.8 + 1.6 * len(ways), len(ways), sharex=True, sharey=True, squeeze=False)
    for axes, (name, served) in zip(panels[:, 0], ways.items(), strict=True):
        turns = [int((served.slot[:index] == slot).sum()) for index, slot in enumerate(served.slot)]  # neighbors differ
        colors = [style.color(turn % 3) for turn in turns]
        axes.barh(served.slot, served.finished_s - served.joined_s, left=served.joined_s, color=colors, edgecolor="white")
        axes.barh(served.slot, served.freed_s - served.finished_s, left=served.finished_s, color="#cccccc", height=0.5)
        end = served.finished_s.max()
        axes.set_title(f"{name}: the last answer ends at {end:.2f} s", fontsize=9, weight="normal", loc="left")
        axes.set(ylabel="batch slot", xlim=(0, None), yticks=range(served.slot.max() + 1))
    panels[-1, 0].set_xlabel("time (s)")
    panels[0, 0].invert_yaxis()
    figure.suptitle(title)
    return figure


def draw_loads(ways: Mapping[str, Mapping[float, Served]], title: str) -> style.Figure:
    """Tokens per second, and the time to the first token, over the requests that arrive per second.

    Args:
        ways: by name of the rule and by requests per second.
        title: the takeaway.
    """
    figure, (above, below) = style.subplots(4.6, 2, 1, sharex=True)
    for index, (name, loads) in enumerate(ways.items()):
        rates, color = list(loads), style.color(index)
        above.plot(rates, [one.tokens_per_s for one in loads.values()], "o-", ms=4, color=color, label=name)
        slow = [float(np.percentile(one.to_first_token_s, 95)) for one in loads.values()]
        below.plot(rates, slow, "o-", ms=4, color=color, label=name)
    above.set(ylabel="tokens per second", ylim=(0, None))
    below.set(xlabel="requests per second", ylabel="95th percentile of the\ntime to the first token (s)", yscale="log")
    for axes in (above, below):
        style.name_lines(axes)
    figure.suptitle(title)
    return figure


def draw_chances(chances: Mapping[str, np.ndarray], names: Sequence[str], title: str) -> style.Figure:
    """The probability of each candidate for the next token, one panel per way of sampling.

    Args:
        chances: by the name of the way, probabilities ``(candidates,)``.
        names: the candidates.
        title: the takeaway.
    """
    rows = -(-len(chances) // 2)
    figure, panels = style.subplots(0.8 + 1.6 * rows, rows, 2, sharex=True, sharey=True, squeeze=False)
    panels = panels.ravel()
    for axes in panels[len(chances) :]:
        axes.remove()
    for axes, (name, chance) in zip(panels, chances.items(), strict=False):
        axes.barh(range(len(names)), chance, color=style.color(0), height=0.7)
        axes.set_yticks(range(len(names)), names, family="monospace", fontsize=8)
        axes.set_title(name, fontsize=9, weight="normal", loc="left")
    figure.supxlabel("probability", fontsize=9)
    figure.supylabel("next byte", fontsize=9)
    panels[0].invert_yaxis()
    figure.suptitle(title)
    return figure
