"""The tables of README and docs/benchmarks.md are what the records say; no page states a GPU's figure without its record."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from benchmarks import claims, readme, readme_tables
from benchmarks.claims import Figure, figures, problems
from course_lib.benchmark.records import RESULTS
from course_lib.errors import CourseError


def test_the_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, readme.__file__, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_table_has_its_place_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in readme.PAGES)
    placed = [block["name"] + block["part"] for block in readme.BLOCK.finditer(pages)]
    assert sorted(placed) == sorted(readme_tables.TABLES)


def test_a_changed_figure_is_noticed_and_written_again(tmp_path, monkeypatch, capsys) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(readme.PAGES[1].read_text(encoding="utf-8").replace("25 MB instead", "24 MB instead"))
    monkeypatch.setattr(readme, "PAGES", (page,))
    monkeypatch.setattr(sys, "argv", ["readme.py", "--check"])
    with pytest.raises(
        SystemExit, match=r"benchmarks.md says something else than runtime_h200: run python benchmarks/readme.py$"
    ):
        readme.main()
    monkeypatch.setattr(sys, "argv", ["readme.py"])
    readme.main()
    assert "25 MB instead" in page.read_text() and "24 MB" not in page.read_text()


def test_a_block_without_a_table_is_rejected_and_one_without_a_record_is_empty(monkeypatch, tmp_path) -> None:
    block = "<!-- from course_lib/records/{}.json -->\nold\n<!-- end -->"
    with pytest.raises(CourseError, match=r"a block for 'moon': there are tables for .*rope_h200"):
        readme.written(block.format("moon"))
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    assert readme.written(block.format("rope_h200")) == block.format("rope_h200").replace("old\n", "")


def test_the_numbers_of_a_table_are_the_records() -> None:
    data = json.loads((RESULTS / "first_engine_h200.json").read_text())
    row = next(r for r in data["rows"] if (r["network"], r["batch"], r["precision"]) == ("ResNet-50", 32, "fp16"))
    line = next(
        line for line in readme_tables.first_engine(data).splitlines() if line.startswith("| ResNet-50 (random weights) | 32")
    )
    shown = [float(number) for number in re.findall(r"\d\.\d", line)[-3:]]
    assert shown == [round(row["speedup"][key], 1) for key in ("median", "low", "high")]
    assert line.endswith(f"| {row['relative_error']:.0e} |".replace("e-0", "e-"))


def test_every_row_called_int8_has_int8_layers_in_its_record() -> None:
    data = json.loads((RESULTS / "headline_h200.json").read_text())
    called = re.findall(r"^\| ([^|]+) \| INT8", readme_tables.networks(data), re.M)
    int8 = [row for row in data["rows"] if row["dtype"] == "int8"]
    assert set(called) == {row["network"] for row in int8} == {"ResNet-50", "U-Net", "detector"}
    assert all(row["kernel_dtypes"]["Int8"] > row["kernels"] / 2 for row in int8)


# ---- claims


def test_no_page_states_a_figure_without_its_record() -> None:
    done = subprocess.run([sys.executable, claims.__file__], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lectures_state_figures_that_are_checked() -> None:
    stated = [figure for _, text in claims.pages() if claims.GPU.search(text) for figure in figures(text)]
    assert Figure("1.89", "ms") in stated and Figure("0.301", "ms") in stated and len(stated) > 30


CITED = "On an H200 (`course_lib/records/first_try_h200.json`) "


@pytest.mark.parametrize(
    "text",
    [
        "ResNet-50 took 1.87 ms on this laptop",  # no GPU is named
        "an H200 has 132 multiprocessors and 141 GB",
        "could do about 110 (data sheet of the H200: 67 TFLOP/s in FP32, 4.8 TB/s), so memory decides",
        "on an H200, with a 95 % confidence interval",
        CITED + "it took 1.87 ms, went from 0.55 to 0.49 ms and was 2.4x as fast with an error of 2e-3",
        CITED + "\n\n| batch | FP16 |\n|---|---|\n| 999 | 1.87 |",
        CITED + "it took 1870 us",
    ],
)
def test_claims_with_a_record_and_no_claims_pass(text: str) -> None:
    assert problems("here", text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("An H200 took 1.87 ms", "here: says 1.87 ms of a GPU and names no course_lib/records/NAME.json"),
        ("On an H200 (`course_lib/records/moon.json`) 1.87 ms", "here: there is no course_lib/records/moon.json"),
        (CITED + "it took 1.88 ms", "here: 1.88 ms is not in first_try_h200"),
        (CITED + "it took 1.87 us", "here: 1.87 us is not in first_try_h200"),
        (CITED + "it was 64x as fast", "here: 64 x is not in first_try_h200"),  # a batch size is not a speed
        ("On an A100, 3 times as fast", "here: says 3 times of a GPU and names no course_lib/records/NAME.json"),
        (CITED + "it moved 3.7 TB/s", "here: 3.7 TB/s is not in first_try_h200"),
        (CITED + "the error was 5e-3", "here: 5e-3 is not in first_try_h200"),
        (CITED + "\n\n| batch | FP16 |\n|---|---|\n| 64 | 1.88 |", "here: 1.88 is not in first_try_h200"),
        (CITED + "it took 1.88 ms. The data sheet says 4.8 TB/s.", "here: 1.88 ms is not in first_try_h200"),
    ],
)
def test_a_claim_without_its_record_is_found(text: str, said: str) -> None:
    assert problems("here", text) == [said]
