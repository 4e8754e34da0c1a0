"""One network through lectures 2 to 12, and the scoreboard to which each of them adds a row.

A reader's rows are kept between lectures. The others are recorded ones and are drawn hollow. A speed is a ratio to PyTorch eager that
was measured in one run, so rows of two machines can be compared.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib._util.files import write_atomically
from course_lib._util.progress_bar import notebook_stages
from course_lib.errors import CourseError
from course_lib.exercises import progress

if TYPE_CHECKING:
    import onnx

    from course_lib.engines import Engine

BATCH = 32
_BARS = {"kernels": ("kernels", ".0f"), "mb": ("MB", ".0f"), "speed": ("speed", ".1f")}
_TEXTS = {"plan_mb": ("plan\n(MB)", ".1f"), "accuracy": ("right", ".1%")}
Row = dict[str, Any]


def after(lecture: int, result: Any = ...) -> style.Figure:
    """Measure what the reader made in a lecture, keep the row, and draw the scoreboard up to this lecture.

    Args:
        lecture: 2 to 12.
        result: an ONNX model with ``image`` (32, 1, 32, 32) and ``logits`` (32, 10) in lectures 2, 3, 5, 6 and 7, otherwise one number.
            ``...`` changes no row.
    """
    from course_lib.benchmark import recorded

    record = recorded("scoreboard_cpu")
    rows = {row["lecture"]: row for row in record.rows}
    folder = progress.folder() / "scoreboard"
    if result is not ...:
        if "note" not in rows[lecture]:
            row = measured(result)
        elif isinstance(result, Real) and not isinstance(result, bool) and abs(float(result)) < float("inf"):
            row = {"value": float(result)}
        else:
            raise CourseError(f"this row holds one finite number, found {result!r:.60}: assign the number to `mine`")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{lecture}.json", json.dumps(row).encode())
    for number, row in rows.items():
        try:
            row |= json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, RecursionError):
            row["recorded"] = record.device
    return draw([row for number, row in rows.items() if number <= lecture])


def measured(model: onnx.ModelProto) -> Row:
    """Kernels and bytes of a build by TensorRT for RTX; speed and accuracy with the runner of this machine."""
    import onnx

    from course_lib.engines import build, default_runner, load
    from course_lib.precision import lower_for_onnxruntime
    from course_lib.profiling.layer_tables.memory_traffic import kernel_traffic
    from course_lib.recipe import Recipe

    found: object = type(model).__name__
    if isinstance(model, onnx.ModelProto):
        found = [(value.name, *(n.dim_value for n in value.type.tensor_type.shape.dim)) for value in model.graph.input]
    if found != [("image", BATCH, 1, 32, 32)]:
        raise CourseError(f"expected an ONNX model of image ({BATCH}, 1, 32, 32), found {found}: export for this fixed shape")
    int8 = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    half = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.graph.initializer)
    recipe, runner = Recipe(precision="int8" if int8 else "fp16" if half else "fp32"), default_runner()
    with notebook_stages() as begin:
        begin("building the engine", 3)
        plan = build(model, recipe.model_copy(update={"targets": ("sm89",)}), backend="tensorrt_rtx")
        runs = lower_for_onnxruntime(model) if int8 and runner == "onnxruntime" else model
        engine = load(build(runs, recipe, backend=runner))
        begin("measuring accuracy, and speed against PyTorch", 9)
        row = {"accuracy": accuracy(engine), "speed": speed(engine)}
    traffic = kernel_traffic(plan.layers)
    return row | {"kernels": len(traffic.round_trips), "mb": traffic.total_bytes / 1e6, "plan_mb": len(plan.data) / 1e6}


def speed(engine: Engine) -> list[float]:
    """How many times as fast as PyTorch eager an engine runs one batch: median, low and high end of the interval."""
    import numpy as np

    from course_lib.benchmark import compare
    from course_lib.engines import ModelSource, load

    subjects = {"eager": load(ModelSource("course_lib.models:classifier", ("wide",))), "now": engine}
    rng, shape = np.random.default_rng(), (BATCH, 1, 32, 32)
    race = compare(subjects, lambda: {"image": rng.random(shape, np.float32)}, baseline="eager", time_limit_s=8)
    return [getattr(race.speedups["now"], end) for end in ("median", "low", "high")]


def accuracy(engine: Engine) -> float:
    """The share of the held-out digits that an engine for one fixed batch gets right."""
    import numpy as np

    from course_lib.models import digits

    test = digits("test")
    images = np.resize(test.images, (-(-len(test) // BATCH), BATCH, *test.images.shape[1:]))  # the last batch is filled up
    logits = np.concatenate([engine.infer({"image": batch})["logits"] for batch in images])
    return float((logits[: len(test)].argmax(1) == test.labels).mean())


def draw(rows: Sequence[Row]) -> style.Figure:
    """The rows from top to bottom, the newest in another color; hollow where they come from the record."""
    figure, panels = style.subplots(
        1.2 + 0.3 * len(rows), 1, len(_BARS | _TEXTS), sharey=True, width_ratios=[1, 1, 1, 0.5, 0.75]
    )
    names = [f"{row['lecture']} {row['idea']}" for row in rows]
    panels[0].set(ylim=(len(rows) - 0.5, -0.5), yticks=range(len(rows)), yticklabels=names)
    for axes, (key, (label, form)) in zip(panels, (_BARS | _TEXTS).items(), strict=True):
        bars = key in _BARS
        for y, row in enumerate(rows):
            hue, weight = (style.color(1), "bold") if row is rows[-1] else (style.color(0), "normal")
            if key in row:
                value, low, high = row[key] if key == "speed" else (row[key],) * 3
                if bars:
                    axes.barh(y, value, 0.6, facecolor="none" if "recorded" in row else hue, edgecolor=hue)
                    axes.plot([low, high], [y, y], color="black", lw=1)
                end = (high if bars else 0, y)
                axes.annotate(f"{value:{form}}", end, (3, 0), textcoords="offset points", va="center", fontsize=8)
            elif key == "kernels":
                text = ("○ " if "recorded" in row else "● ") + row["note"].format(**row)
                text = textwrap.fill(text, 42, subsequent_indent="    ")
                axes.text(0, y, text, va="center", fontsize=8, weight=weight, linespacing=1).set_in_layout(False)
        axes.margins(x=0.8)
        axes.set(xlim=(0, None), xticks=[])
        axes.set_title(label, loc="left", fontsize=9, weight="normal")
        axes.patch.set_visible(False)  # notes run across the columns
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.suptitle(_takeaway(rows[0], rows[-1]))
    devices = [row["recorded"] for row in rows if "recorded" in row]
    recorded = f"\nfilled: measured here; hollow: recorded on {devices[0]}" if devices else ""
    figure.supxlabel(f"MB: moved per batch; speed: PyTorch eager is 1{recorded}", fontsize=8, ha="left", x=0.02)
    return figure


def _takeaway(first: Row, newest: Row) -> str:
    if "note" in newest:
        return f"Lecture {newest['lecture']}: {newest['note'].format(**newest)}"
    megabytes = f"{newest['mb']:.0f} MB in place of {first['mb']:.0f}"
    return f"After lecture {newest['lecture']}: {megabytes}, {newest['speed'][0]:.1f} times the speed of PyTorch"
