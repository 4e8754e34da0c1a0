"""The tables of README and docs/benchmarks.md are what the records say; no page states a GPU's figure without its record."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import claims, readme, readme_tables
from benchmarks.claims import Figure, figures, problems
from course_lib.benchmark.records import RESULTS
from course_lib.errors import CourseError

INTERVAL = {"median": 1.234, "low": 1.2, "high": 1.3}


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
        SystemExit, match=r"^error: benchmarks.md says something else than runtime_h200: run python benchmarks/readme.py$"
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


def test_timing_says_of_each_kernel_what_both_instruments_say() -> None:
    rows = [
        {"kernel": "copy", "ours_us": 20.04, "over_do_bench": INTERVAL, "over_graph": INTERVAL},
        {"kernel": "gone", "failed": "no"},
    ]
    data = {"date": "2026-11-22", "device": "D", "driver": "1", "versions": {"torch": "2.11.0", "triton": "3.6"}, "rows": rows}
    data["verdicts"] = [{"pair": "equal", "tiers": {"full": 10}, "of_reference": INTERVAL}]
    data["hidden_stream"] = {"events_ms": 0.01, "host_ms": 1.1, "said": "not noticed: 0.010 ms"}
    said = readme_tables.timing(data)
    assert "Work that is equal was compared with its reference 10 times: 10 times full." in said
    hidden = "A kernel on a hidden stream, 1.10 ms of the host's time in which its events saw 0.01 ms, was not noticed."
    assert " ".join(said.split()).endswith(hidden)
    assert "| copy | 20.04 us | 1.234x [1.200-1.300] | 1.234x [1.200-1.300] |" in said and "| gone | failed: no | | |" in said


ABOUT = {"date": "2026-11-22", "device": "D", "driver": "1", "versions": {"torch": "2.11.0", "tensorrt": "8.6.0"}}


def test_a_networks_cell_has_the_faster_engine_and_pytorchs_fastest_way() -> None:
    def row(name: str, ms: float, **rivals: float) -> dict:
        speeds = {key.replace("_", " "): {**INTERVAL, "median": value} for key, value in rivals.items()}
        common = {
            "network": "BERT",
            "batch": 8,
            "candidate": name,
            "dtype": "fp16",
            "same_dtype": "eager fp16",
            "relative_error": 2e-3,
        }
        return {**common, "ms": ms, "speedup": speeds}

    plain = row("TensorRT fp16", 2.0, eager_fp32=1.0, eager_fp16=0.9)
    graph = row("TensorRT fp16 + CUDA graph", 1.0, eager_fp32=2.0, eager_fp16=1.8, compile_fp16=0.7)
    failed = {"network": "BERT", "batch": 64, "candidate": "TensorRT fp16", "dtype": "fp16", "failed": "no memory"}
    torch_row = row("eager fp16", 0.1, eager_fp32=9.0)
    single = {
        **graph,
        "batch": 1,
        "same_dtype": "eager fp32",
        "dtype": "fp32",
        "speedup": {"eager fp32": INTERVAL},
        "mean_ap": 0.91,
    }
    said = readme_tables.networks({**ABOUT, "rows": [plain, graph, failed, torch_row, single]}).splitlines()
    assert "| BERT | FP16 | not measured | 1.80x [1.20-1.30]; 0.70x | 2e-3 |" in said
    assert "| BERT | FP32/TF32 | 1.23x [1.20-1.30]; 1.23x | not measured | 2e-3, mean AP 0.910 |" in said


def test_tf32_is_compared_with_tf32() -> None:
    speeds = {"eager fp32": {**INTERVAL, "median": 4.8}, "eager tf32": {**INTERVAL, "median": 1.1}}
    row = {"network": "BERT", "batch": 64, "candidate": "TensorRT fp32/TF32", "dtype": "fp32", "same_dtype": "eager tf32"}
    said = readme_tables.networks({**ABOUT, "rows": [{**row, "relative_error": 2e-3, "ms": 1.0, "speedup": speeds}]})
    assert "| BERT | FP32/TF32 | 1.10x [1.20-1.30]; 1.10x | 2e-3 |" in said
    assert "4.8" not in said, "strict FP32 is not what a TF32 engine replaces"


def test_every_row_called_int8_has_int8_layers_in_its_record() -> None:
    data = json.loads((RESULTS / "networks_h200.json").read_text())
    layers = {(row["network"], row["dtype"]): row["kernel_dtypes"] for row in data["rows"] if "kernel_dtypes" in row}
    said = readme_tables.networks(data)
    called = re.findall(r"^\| ([^|]+) \| ([^|]*INT8[^|]*) \|", said, re.M)
    assert len(called) == sum(dtype == "int8" for _, dtype in layers)
    for network, name in called:
        kernels = layers[network, "int8"]
        assert name == ("INT8" if kernels.get("Int8") else f"asked for INT8, layers: {', '.join(kernels)}")
    assert dict(called)["BERT-base"] == "asked for INT8, layers: Float"
    assert "BERT-base: the builder was asked for INT8, but no row of the layer table is Int8" in " ".join(said.split())


@pytest.mark.parametrize("name", readme_tables.TABLES)
def test_an_early_access_release_is_called_one_in_every_table(name: str) -> None:
    data = json.loads((RESULTS / f"{name.partition(':')[0]}.json").read_text())
    said = " ".join(readme_tables.TABLES[name](data).split())
    named = re.findall(r"tensorrt 8\.6\.0( \(an early-access release\))?", said, re.I)
    assert all(named) and bool(named) is (data["versions"].get("tensorrt") == "8.6.0")


def test_tables_on_random_numbers_say_so() -> None:
    for name, words in {
        "networks_h200": "Weights are random and inputs are Gaussian noise",
        "first_engine_h200": "Inputs are uniform noise",
        "engines_h200": "Inputs are uniform noise",
        "runtime_h200": "Inputs are uniform noise",
        "networks_int8_h200": "Weights are random, except for the detector's. Int8 layers: ResNet-50 162 of 171",
    }.items():
        assert words in " ".join(readme_tables.TABLES[name](json.loads((RESULTS / f"{name}.json").read_text())).split())


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_no_paragraph_becomes_a_row_of_a_table(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    pairs = itertools.pairwise(lines)
    absorbed = [after for row, after in pairs if row.startswith("|") and after[:1] not in ("", "|", "<")]
    assert absorbed == [], "Markdown makes a line right after a table a row of that table"


def test_gpus_are_shown_with_their_gain_in_each_run() -> None:
    row = {"gpus": 2, "submissions": 40, "full_marks": 40, "overlapping": 0}
    runs = [
        {**row, "submissions_per_minute": rate, "rate_over_one_gpu": gain}
        for rate, gain in ((6.5, 1.9), (6.0, 1.7), (7.0, 1.8))
    ]
    failed = {"gpus": 4, "submissions": 40, "failed": "no time"}
    said = readme_tables.gpus({**ABOUT, "rows": [*runs, failed]}).splitlines()
    assert "| 2 | 40 | 3 | 120 of 120 | 6.5 [6.0-7.0] | 1.80x [1.70-1.90] | 0 |" in said
    assert "| 4 | 40 | 0 | failed: no time | | | |" in said


def test_the_summary_has_each_network_in_int8_below_fp16() -> None:
    path = RESULTS / "networks_later_h200.json"
    said = readme_tables.TABLES["networks_later_h200: summary"](json.loads(path.read_text())).splitlines()
    names = [line.split(" | ")[0].removeprefix("| ") for line in said if line.startswith("| ")][1:]
    assert names[:4] == ["ResNet-50", "ResNet-50, INT8", "U-Net", "U-Net, INT8"] and "BERT-base, INT8" not in names


def test_spread_requests_have_their_gain_over_one_gpu() -> None:
    gain = {"median": 1.9, "low": 1.8, "high": 2.0}
    row = {"network": "U-Net", "batch": 8, "gain": gain, "requests_per_second": 80.6}
    rows = [{**row, "run": run, "gpus": gpus} for run, gpus in ((0, 1), (0, 2), (1, 1), (1, 2), (1, 4))]
    said = readme_tables.spread({**ABOUT, "rows": rows, "remarks": ["nothing ran beside it"]}).splitlines()
    assert "| U-Net | 8 | 81 | 1.90x [1.80-2.00] | 1.90x [1.80-2.00] | 1.90x [1.80-2.00] |" in said


# ---- claims


def test_no_page_states_a_figure_without_its_record() -> None:
    done = subprocess.run([sys.executable, claims.__file__], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lectures_state_figures_that_are_checked() -> None:
    stated = [figure for _, text in claims.pages() if claims.GPU.search(text) for figure in figures(text)]
    assert Figure("2.11", "ms") in stated and Figure("0.493", "ms") in stated and len(stated) > 30


CITED = "On an H200 (`course_lib/records/first_try_h200.json`) "


@pytest.mark.parametrize(
    "text",
    [
        "ResNet-50 took 1.87 ms on this laptop",  # no GPU is named
        "an H200 has 132 multiprocessors and 141 GB",
        "an H200's data sheet says 4.8 TB/s",
        "could do about 110 (data sheet of the H200: 67 TFLOP/s in FP32, 4.8 TB/s), so memory decides",
        "on an H200, with a 95 % confidence interval",
        CITED + "it took 1.87 ms, went from 0.55 to 0.49 ms and was 2.4x as fast with an error of 2e-3",
        CITED + "\n\n| batch | FP16 |\n|---|---|\n| 999 | 1.87 |",
        CITED + "the build took 74 s",
        CITED + "it took 1870 us",
    ],
)
def test_claims_with_a_record_and_no_claims_pass(text: str) -> None:
    assert problems("here", text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("An H200 took 1.87 ms", "here: says 1.87 ms of a GPU and names no course_lib/records/NAME.json"),
        ("On an A100, 3 times as fast", "here: says 3 times of a GPU and names no course_lib/records/NAME.json"),
        ("On an H200 (`course_lib/records/moon.json`) 1.87 ms", "here: there is no course_lib/records/moon.json"),
        (CITED + "it took 1.88 ms", "here: 1.88 ms is not in first_try_h200"),
        (CITED + "it went from 0.55 to 0.48 ms", "here: 0.48 ms is not in first_try_h200"),
        (CITED + "it took 1.87 us", "here: 1.87 us is not in first_try_h200"),
        (CITED + "it was 64x as fast", "here: 64 x is not in first_try_h200"),  # a batch size is not a speed
        (CITED + "it moved 3.7 TB/s", "here: 3.7 TB/s is not in first_try_h200"),
        (CITED + "the error was 5e-3", "here: 5e-3 is not in first_try_h200"),
        (CITED + "\n\n| batch | FP16 |\n|---|---|\n| 64 | 1.88 |", "here: 1.88 is not in first_try_h200"),
        (CITED + "it took 1.88 ms. The data sheet says 4.8 TB/s.", "here: 1.88 ms is not in first_try_h200"),
    ],
)
def test_a_claim_without_its_record_is_found(text: str, said: str) -> None:
    assert problems("here", text) == [said]
