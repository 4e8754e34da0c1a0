"""Where an inference spends its time, layer by layer: from TensorRT's IProfiler, from trtexec or from ONNX Runtime's profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from course_lib import style
from course_lib._util.html import LEFT, WIDE, notebook_table
from course_lib.engines.backends.onnxruntime.layers import ort_kernel_ms
from course_lib.profiling.layer_tables.boxes import short
from course_lib.profiling.layer_tables.dtypes import joined

if TYPE_CHECKING:
    from course_lib.engines import Layer, LayerTable

_GRAY = "#bbbbbb"
_HUES = len(style.COLORS) - 1  # all but black, which is the color of the text
_LONGEST_NAME = 32


@dataclass(frozen=True)
class LayerTime:
    """One layer: its median time over the runs in milliseconds, its share of all layers' time, and its row of the layer table."""

    name: str
    ms: float
    share: float
    layer: Layer | None = None

    @property
    def dtypes(self) -> str:
        """The datatypes it computes with, such as ``"FP16"``; ``"unknown"`` without a table. Shapes and indices do not count."""
        return joined(self.layer.dtypes if self.layer else ()) or "unknown"


@dataclass(frozen=True, eq=False)
class LayerTimings:
    """Times of every layer in several runs.

    Attributes:
        names: the layers in order of execution. Two may have the same name.
        ms: milliseconds, shape ``(runs, layers)``.
        table: the layer table, after `with_table`.
        summarized_runs: number of runs behind the one row of `ms`, if a tool recorded only their `statistic`; otherwise 0.
        statistic: "median", or what a tool recorded instead of it.
    """

    names: tuple[str, ...]
    ms: np.ndarray = field(repr=False)
    table: LayerTable | None = field(default=None, repr=False)
    summarized_runs: int = 0
    statistic: str = "median"

    @property
    def runs(self) -> int:
        """Number of measured runs."""
        return self.summarized_runs or len(self.ms)

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[Any]]) -> LayerTimings:
        """From the arguments of all calls of ``IProfiler.report_layer_time(name, ms)``, in order.

        Args:
            rows: ``[name, ms]`` of every layer of every run. Each run reports every layer in the same order.

        Raises:
            ValueError: a row is not a name and a time, or the rows are not whole runs.
        """
        for index, row in enumerate(rows):
            if len(row) != 2 or not isinstance(row[0], str) or not isinstance(row[1], (int, float)) or not 0 <= row[1] < np.inf:
                raise ValueError(f"row {index}: expected [layer name, milliseconds], found {row!r}")
        names = [row[0] for row in rows]
        layers = _period(names)
        return cls(tuple(names[:layers]), np.array([row[1] for row in rows], float).reshape(-1, max(layers, 1)))

    @classmethod
    def from_ort_profile(cls, text: str, *, skip: int = 0) -> LayerTimings:
        """From the JSON of ONNX Runtime's profiler; see `parse_ort_profile`. Its clock counts whole microseconds.

        Args:
            text: the profile.
            skip: number of runs to leave out at the start, which warmed up caches and memory.

        Raises:
            ValueError: the text is not a profile, or the runs did not execute the same nodes.
        """
        times = ort_kernel_ms(text)
        counts = {len(ms) for _, ms in times}
        if len(counts) != 1 or min(counts) <= skip:
            raise ValueError(
                f"expected a profile of ONNX Runtime with the same nodes in each of more than {skip} runs, found {len(times)} nodes "
                f"that ran {' or '.join(map(str, sorted(counts))) or 'no'} times"
            )
        return cls(tuple(name for name, _ in times), np.array([ms for _, ms in times], float).T[skip:])

    @property
    def layer_ms(self) -> np.ndarray:
        """Median over the runs of each layer, shape ``(layers,)``."""
        return np.median(self.ms, axis=0) if len(self.ms) else np.zeros(len(self.names))

    @property
    def total_ms(self) -> float:
        """The sum of all layers' medians. An inference takes longer, because the time between two layers is not included."""
        return float(self.layer_ms.sum())

    def with_table(self, table: LayerTable) -> LayerTimings:
        """These times with the layer table of the same plan, which describes each layer."""
        return replace(self, table=table)

    def layers(self) -> tuple[LayerTime, ...]:
        """Every layer in order of execution, with the row of the table that has its name (the second one the second time)."""
        rows: dict[str, list[Layer]] = defaultdict(list)
        for layer in self.table or ():
            rows[layer.name].append(layer)
        shares = self.layer_ms / (self.total_ms or 1.0)
        return tuple(
            LayerTime(name, float(ms), float(share), rows[name].pop(0) if rows[name] else None)
            for name, ms, share in zip(self.names, self.layer_ms, shares, strict=True)
        )

    def heaviest(self, n: int = 10) -> tuple[LayerTime, ...]:
        """The `n` layers that take longest, longest first."""
        return tuple(sorted(self.layers(), key=lambda layer: -layer.ms)[:n])

    def needed_for(self, share: float = 0.5) -> int:
        """The smallest number of layers that together take this share of the time."""
        reached = np.cumsum([layer.share for layer in self.heaviest(len(self.names))])
        return int(np.searchsorted(reached, share - 1e-9)) + 1 if len(reached) else 0

    def by_operator(self) -> dict[str, float]:
        """Milliseconds by the operators of the layers, such as ``"Conv + Relu"``, longest first; by their kind if the graph is unknown."""
        return self._summed(self.operators)

    def by_dtype(self) -> dict[str, float]:
        """Milliseconds by the datatypes that the layers compute with, longest first; ``"unknown"`` if the table does not report them."""
        return self._summed(lambda layer: layer.dtypes)

    def operators(self, layer: LayerTime) -> str:
        """The ONNX operators inside one layer; its kind if the graph is unknown or the compiler added the layer."""
        if layer.layer is None or self.table is None:
            return "unknown"
        known = self.table.fused_operators(layer.layer) if self.table.operators else ""
        return known or layer.layer.kind

    def _summed(self, group: Callable[[LayerTime], str]) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for layer in self.layers():
            sums[group(layer)] += layer.ms
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def takeaway(self) -> str:
        """Such as ``"8 of 58 layers take half of 1.84 ms"``."""
        return f"{self.needed_for(0.5)} of {len(self.names)} layers take half of {self.total_ms:.3g} ms"

    def plot(self, n: int = 12, *, color: Literal["operator", "dtype"] = "operator") -> style.Figure:
        """One bar for each of the `n` longest layers, longest on top, and a hatched one for all the others together.

        Without a layer table, all bars have the same color.

        Args:
            n: at least 1.
            color: by the ONNX operators inside a layer, or by the datatypes of its computation. The group with the longest total time
                is first in the legend; beyond six groups, bars are gray.
        """
        shown = self.heaviest(n)
        rest = len(self.names) - len(shown)
        rest_ms = max(0.0, self.total_ms - sum(layer.ms for layer in shown))
        sums = self.by_operator() if color == "operator" else self.by_dtype()
        hues = {group: style.color(place) if place < _HUES else _GRAY for place, group in enumerate(sums)}

        def group(layer: LayerTime) -> str:
            return self.operators(layer) if color == "operator" else layer.dtypes

        rows = len(shown) + bool(rest)
        figure, axes = style.subplots(1.4 + 0.26 * rows)
        total, edge = self.total_ms or 1.0, 1.35 * max((layer.ms for layer in shown), default=1.0)
        for row, layer in enumerate(shown):
            axes.barh(row, layer.ms, color=hues[group(layer)], height=0.7)
            told = f"{layer.ms:.3f}, {layer.share:.0%}"
            axes.annotate(told, (layer.ms, row), (5, 0), textcoords="offset points", va="center", fontsize=8)
        if rest:
            off = ", beyond the scale" if rest_ms > edge else ""
            axes.barh(len(shown), min(rest_ms, edge), color="white", edgecolor=_GRAY, hatch="//", height=0.7)
            label = f"{rest_ms:.3f}, {rest_ms / total:.0%}{off}"
            axes.text(0.02 * edge, len(shown), label, va="center", fontsize=8, backgroundcolor="white")
        axes.set_yticks(
            range(rows), [short(layer.name, _LONGEST_NAME) for layer in shown] + [f"{rest} others"] * bool(rest), fontsize=8
        )
        axes.set(xlim=(0, edge), ylim=(rows - 0.4, -0.6), xlabel="share of all layers, time of one inference (ms)")
        if self.table is not None:
            seen = {group(layer) for layer in shown}
            for name, ms in sums.items():
                if name in seen and hues[name] != _GRAY:
                    axes.barh([0], [0], color=hues[name], label=f"{short(name, _LONGEST_NAME)}: {ms / total:.0%}")
            style.name_colors(axes)
        axes.set_title(self.takeaway())
        return figure

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values with the medians, without the single runs."""
        rows = [
            {
                "name": layer.name,
                "ms": layer.ms,
                "share": layer.share,
                "operators": self.operators(layer),
                "dtypes": layer.dtypes,
            }
            for layer in self.layers()
        ]
        return {"runs": self.runs, "total_ms": self.total_ms, "layers": rows}

    def _repr_html_(self) -> str:
        """The longest layers as a table; the rest in one row."""
        shown = self.heaviest(15)
        rows: list[tuple[str, ...]] = [
            (f"{one.ms:.4f}", f"{one.share:.1%}", style.breakable_html(one.name), self.operators(one), one.dtypes)
            for one in shown
        ]
        if rest := len(self.names) - len(shown):
            left = max(0.0, self.total_ms - sum(layer.ms for layer in shown))
            rows.append((f"{left:.4f}", f"{left / (self.total_ms or 1.0):.1%}", f"{rest} others", "", ""))
        columns = {"ms": LEFT, "share": LEFT, "layer": WIDE, "operators": WIDE, "dtype": LEFT}
        caption = f"{self.takeaway()} ({self.runs} run{'' if self.runs == 1 else 's'}, {self.statistic}s)"
        return notebook_table(caption, columns, [({}, row) for row in rows])


def _period(names: Sequence[str]) -> int:
    """Number of layers of one run: the length of the shortest beginning that the rest repeats."""
    period = next((layers for layers in range(1, len(names)) if names[layers:] == names[:-layers]), len(names))
    if names and len(names) % period:
        if len(names) > 2 * period:
            raise ValueError(
                f"the rows are not whole runs: {period} layers repeat, the last run has only {len(names) % period} of them; drop it"
            )
        return len(names)  # one run, which happens to end as it began
    return period
