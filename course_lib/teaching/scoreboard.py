"""One network through lectures 2 to 12, and the scoreboard to which each of them adds a row.

A reader's rows are kept between lectures. The others are recorded ones and say so. A speed is a ratio to PyTorch eager that
was measured in one run, so rows of two machines can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from course_lib._util.files import write_atomically
from course_lib._util.html import LEFT, RIGHT, notebook_table
from course_lib._util.progress_bar import notebook_stages
from course_lib.errors import CourseError
from course_lib.exercises import progress

if TYPE_CHECKING:
    import onnx

    from course_lib.engines import Engine

BATCH = 32
_COLUMNS = {"lecture": LEFT} | dict.fromkeys(("kernels", "MB", "speed", "plan", "right"), f"{RIGHT};white-space:nowrap")
Row = dict[str, Any]


def after(lecture: int, result: Any = ...) -> Scoreboard:
    """Measure what the reader made in a lecture, keep the row, and return the scoreboard up to this lecture.

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
    return Scoreboard([row for number, row in rows.items() if number <= lecture])


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


@dataclass(frozen=True)
class Scoreboard:
    """The rows from top to bottom. In a notebook, engines are a table whose newest row is bold, and the other findings are below it."""

    rows: Sequence[Row]

    @property
    def takeaway(self) -> str:
        """What the newest row says."""
        first, newest = self.rows[0], self.rows[-1]
        if "note" in newest:
            return f"Lecture {newest['lecture']}: {newest['note'].format(**newest)}"
        megabytes = f"{newest['mb']:.0f} MB in place of {first['mb']:.0f}"
        after = "Not solved yet; recorded after" if "recorded" in newest else "After"
        return f"{after} lecture {newest['lecture']}: {megabytes}, {newest['speed'][0]:.1f} times the speed of PyTorch"

    def __repr__(self) -> str:
        return "\n".join([self.takeaway, *("  ".join(cells).rstrip() for cells in map(_cells, self.rows))])

    def _repr_html_(self) -> str:
        from markupsafe import escape

        devices = [row["recorded"] for row in self.rows if "recorded" in row]
        caption = (
            f"{self.takeaway}. MB: moved per batch, and of the plan. Speed: PyTorch eager is 1; ±: half of the 95 % interval."
        )
        caption += f" ●: measured here. ○: recorded on {devices[0]}." if devices else ""
        bold = {"style": "font-weight:bold"}
        engines = [(bold if row is self.rows[-1] else {}, _cells(row)) for row in self.rows if "note" not in row]
        notes = [escape(_cells(row)[0]) for row in self.rows if "note" in row]
        return f"{notebook_table(caption, _COLUMNS, engines)}<small>{'<br>'.join(notes)}</small>"


def _cells(row: Row) -> list[str]:
    name = f"{'○' if 'recorded' in row else '●'} {row['lecture']} {row['idea']}"
    median, low, high = row.get("speed", [0, 0, 0])
    speed = f"{median:.1f} ± {(high - low) / 2:.1f}" if low < high else "1" if median else ""
    numbers = (("kernels", ".0f"), ("mb", ".0f"), ("plan_mb", ".1f"), ("accuracy", ".1%"))
    kernels, mb, plan_mb, right = (f"{row[key]:{form}}" if key in row else "" for key, form in numbers)
    return [f"{name}: {row['note'].format(**row)}" if "note" in row else name, kernels, mb, speed, plan_mb, right]
