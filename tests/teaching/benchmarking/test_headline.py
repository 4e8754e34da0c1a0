"""The headline table and its figure from rows that were made up, so that their truth is known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.headline.table import engine_type, explanation, headline_table
from course_lib import style
from course_lib.errors import CourseError
from course_lib.teaching.benchmarking.headline import draw_headline, losses


def row(
    candidate: str, ms: float, over: dict[str, float], *, network: str = "BERT-base", batch: int = 1, **more: Any
) -> dict[str, Any]:
    speedup = {name: {"median": gain, "low": 0.9 * gain, "high": 1.1 * gain} for name, gain in over.items()}
    shown = {"network": network, "batch": batch, "candidate": candidate, "dtype": "fp16", "same_dtype": "eager fp16"}
    return {**shown, "ms": ms, "speedup": speedup, **more}


ROWS = [
    row("eager fp32", 6.0, {}),
    row("eager fp16", 3.0, {"eager fp32": 2.0}, relative_error=1e-3),
    row("cuda graph fp16", 1.0, {"eager fp32": 6.0, "eager fp16": 3.0}, relative_error=1e-3),
    row(
        "TensorRT fp16", 2.0, {"eager fp32": 3.0, "eager fp16": 1.5, "cuda graph fp16": 0.5}, relative_error=2e-3, build_s=38.2
    ),
    row(
        "TensorRT fp16 + CUDA graph", 0.5, {"eager fp32": 12.0, "eager fp16": 6.0, "cuda graph fp16": 2.0}, relative_error=2e-3
    ),
]


def test_a_loss_needs_the_whole_interval() -> None:
    assert losses(ROWS[3]) == ["cuda graph fp16"]
    assert losses(ROWS[4]) == []
    assert losses(row("TensorRT fp16", 1.0, {"cuda graph fp16": 0.95})) == [], "0.86 to 1.05 is not a loss"
    assert losses(row("onnxruntime fp16", 1.0, {"eager fp16": 0.5})) == [], "only TensorRT's rows are explained"


def test_a_loss_that_a_graph_heals_was_the_launches() -> None:
    assert explanation(ROWS[3], ROWS) == (
        "slower than cuda graph fp16 (0.50x [0.45-0.55]); launches: as a CUDA graph the same engine does not"
    )
    slow_graph = row("TensorRT fp16 + CUDA graph", 2.0, {"cuda graph fp16": 0.6})
    for rows in ([*ROWS[:4], slow_graph], ROWS[:4], [*ROWS[:4], {**slow_graph, "failed": "no capture"}]):
        assert "attention: 8.6 is older than" in explanation(rows[3], rows)
    assert explanation(ROWS[4], ROWS) == "", "nothing is claimed about a row that wins"


def test_the_table_has_every_row_and_names_what_failed() -> None:
    failed = {"network": "BERT-base", "batch": 1, "candidate": "TensorRT int8", "dtype": "int8", "failed": "no tactic"}
    detector = row(
        "TensorRT int8",
        1.0,
        {"eager fp32": 4.0, "eager fp16": 2.0},
        network="detector",
        mean_ap=0.943,
        way="qdq",
        kernel_dtypes={"Int8": 9},
    )
    table = headline_table([*ROWS, failed, {**detector, "dtype": "int8"}])
    lines = table.splitlines()
    assert [line for line in lines if line.startswith("###")] == ["### BERT-base", "### detector"]
    assert "| 1 | eager fp32 | 6 |  |  |  |  |  |" in lines
    assert "| 1 | eager fp16 | 3 |  | 2.00x [1.80-2.20] | 1e-03 |  |  |" in lines
    assert any(
        line.startswith("| 1 | TensorRT fp16 | 2 | 1.50x [1.35-1.65] | 3.00x [2.70-3.30] | 2e-03 | 38 | slower")
        for line in lines
    )
    assert "- batch 1, TensorRT int8: no tactic" in lines
    assert "| 1 | TensorRT int8, qdq | 1 | 2.00x [1.80-2.20] | 4.00x [3.60-4.40] | mAP 0.943 |  |  |" in lines
    columns = {line.count("|") for line in lines if line.startswith("|")}
    assert columns == {9}, "a cell with a bar in it would shift the others"


def test_the_figure_has_a_panel_for_each_batch_and_says_what_it_shows() -> None:
    at_8 = [{**one, "batch": 8} for one in ROWS[:4]]  # no graph there: the plain engine loses for good
    figure = draw_headline([*ROWS, *at_8])
    assert [axes.get_title() for axes in figure.axes] == ["batch 1", "batch 8"]
    assert figure.get_suptitle() == (
        "TensorRT: up to 12.0 times eager fp32 (BERT-base, batch 1); torch's best is faster in 1 of 2 cases"
    )
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["cuda graph fp16", "TensorRT fp16 + CUDA graph"]
    medians = [container.lines[0].get_xdata().tolist() for container in figure.axes[0].containers]
    assert medians == [[6.0], [12.0]]
    assert style.png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("kernels", "called"),
    [
        ({"Float": 3, "Int8": 1}, "INT8"),
        ({"Float": 3}, "asked for INT8, layers: Float"),
        ({"Half": 4, "Float": 1}, "asked for INT8, layers: Half, Float"),
        ({}, "asked for INT8, layers: not known"),
    ],
)
def test_an_engine_is_called_int8_only_where_its_layers_prove_it(kernels: dict[str, int], called: str) -> None:
    over = {"eager fp32": 20.0, "eager fp16": 0.5}
    asked = [{**row(f"TensorRT int8{end}", 1.0, over, kernel_dtypes=kernels), "dtype": "int8"} for end in ("", " + CUDA graph")]
    proved = called == "INT8"
    assert engine_type(asked[0]) == called
    assert losses(asked[0]) == (["eager fp16"] if proved else []), "an unproved type is not compared"
    table = headline_table([*ROWS, *asked])
    assert ("TensorRT int8" in table) is proved and (f"| TensorRT ({called}) + CUDA graph |" in table) is not proved
    title = draw_headline([*ROWS, *asked]).get_suptitle()
    assert ("up to 20.0 times" in title and "of 2 cases" in title) is proved
    assert ("up to 12.0 times" in title and "of 1 cases" in title) is not proved


def test_nothing_to_draw_is_one_line() -> None:
    with pytest.raises(CourseError, match="the rows have no candidate with figures"):
        draw_headline([ROWS[0]])
