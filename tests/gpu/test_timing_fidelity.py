"""The course's clocks on a real GPU: beside Triton's, beside graphs under the host's clock, and on work that is hidden from events.

COURSE_RECORDS names a folder in which the table stays, as timing.json.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib.benchmark import DeviceClock, compare, measure
from course_lib.engines import ModelSource, load
from course_lib.engines.cuda.driver import capability
from course_lib.engines.cuda.stream import CudaStream
from course_lib.errors import EngineError
from course_lib.teaching.benchmarking.noise import Timed

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(capability() is None, reason="no NVIDIA GPU and driver answer"),
    pytest.mark.timeout(500),
]

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "timing.py"
SHORTEST_US, TOLERANCE = 20, 0.02
CYCLES = 2_000_000  # about a millisecond of `torch.cuda._sleep`


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("triton")
    output = Path(os.environ.get("COURSE_RECORDS") or tmp_path_factory.mktemp("records")) / "timing.json"
    done = subprocess.run([sys.executable, str(SCRIPT), str(output)], capture_output=True, text=True, timeout=450)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(output.read_text())
    return found


@pytest.mark.parametrize(("ours", "pair"), [("ours_us", "over_do_bench"), ("ours_in_graph_us", "over_graph")])
def test_two_instruments_agree_on_kernels_that_are_not_tiny(record: dict[str, Any], ours: str, pair: str) -> None:
    assert not [row for row in record["rows"] if "failed" in row]
    rows = [row for row in record["rows"] if row[ours] >= SHORTEST_US]
    assert len(rows) >= 8, rows
    far = {row["kernel"]: row[pair] for row in rows if abs(row[pair]["median"] - 1) > TOLERANCE}
    assert not far, far


def test_ten_repeats_have_one_verdict(record: dict[str, Any]) -> None:
    assert {row["pair"]: row["tiers"] for row in record["verdicts"]} == {"equal": {"full": 10}, "10 % slower": {"partial": 10}}


def test_events_miss_a_hidden_stream_and_the_two_clocks_do_not(record: dict[str, Any]) -> None:
    found = record["hidden_stream"]
    assert found["events_ms"] < 0.2 * found["host_ms"]
    assert "the GPU was still at work" in found["said"]


# ---- every clock of the course


def hidden(cycles: int = CYCLES) -> Any:
    stream = torch.cuda.Stream()

    def call() -> None:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)

    call()
    torch.cuda.synchronize()
    return call


def joined(cycles: int = CYCLES) -> Any:
    """The same, and each of the two streams waits for the other, as it should."""
    stream = torch.cuda.Stream()

    def call() -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)
        torch.cuda.current_stream().wait_stream(stream)

    return call


CLOCKS = {"measure": DeviceClock, "onnxruntime's engine": lambda: CudaStream().time_ms}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_notices_what_is_left_on_another_stream(name: str) -> None:
    torch.zeros(1, device="cuda")
    clock = CLOCKS[name]()
    with pytest.raises(EngineError, match="the GPU was still at work") as raised:
        clock(hidden())
    print(raised.value)
    assert clock(lambda: None) < 0.5, "and has no complaint afterwards"


def test_work_on_a_stream_that_is_waited_for_is_all_measured() -> None:
    once, twice = (measure(joined(n * CYCLES), clock=DeviceClock(), seconds=0.1).median_ms for n in (1, 2))
    assert once > 0.3 and 1.9 < twice / once < 2.1


def test_a_comparison_with_a_subject_that_hides_work_ends() -> None:
    clock, hiding = DeviceClock(), hidden()
    subjects = {"honest": Timed(lambda _: torch.cuda._sleep(CYCLES), clock), "hiding": Timed(lambda _: hiding(), clock)}
    with pytest.raises(EngineError, match="a stream that its events are not on"):
        compare(subjects, dict, baseline="honest")


def test_an_engine_of_torchs_whose_module_hides_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hiding.py").write_text(
        "import torch\nfrom course_lib.models import Signature\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        with torch.cuda.stream(self.stream):\n"
        f"            torch.cuda._sleep({CYCLES})\n"
        "        return super().forward(x)\n"
        "    def signature(self): return Signature(inputs={'x': ('batch', 8)}, outputs=('y',))\n"
        "def make():\n"
        "    net = Net(8, 8)\n"
        "    net.stream = torch.cuda.Stream()\n"
        "    return net\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    engine, feeds = load(ModelSource("hiding:make")), {"x": np.ones((1, 8), np.float32)}
    assert engine.infer(feeds)["y"].shape == (1, 8)
    with pytest.raises(EngineError, match="the GPU was still at work") as raised:
        engine.time_ms(feeds)
    assert len(str(raised.value).splitlines()) == 1
