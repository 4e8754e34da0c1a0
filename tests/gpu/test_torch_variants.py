"""The baseline's variants on a real GPU: the numbers of eager in any order of shapes, and the time that launching costs."""

import time
from typing import Any

import numpy as np
import pytest

from course_lib.engines import ModelSource, load
from course_lib.engines.cuda.driver import capability
from course_lib.errors import EngineError
from course_lib.models import digits

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(capability() is None, reason="no NVIDIA GPU and driver answer")]

VARIANTS = ("compile", "cuda_graph", "compile+cuda_graph")


def _engine(variant: str, dtype: str = "fp32") -> Any:
    return load(ModelSource("course_lib.models:classifier", ("small",), dtype, variant))


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_equal_eager_in_any_order_of_batches(variant: str, dtype: str) -> None:
    eager, engine = _engine("eager", dtype), _engine(variant, dtype)
    rng = np.random.default_rng()
    for batch in (3, 1, 32, 1, 3, 32, 2):
        feeds = {"image": digits("test").images[rng.integers(0, 450, batch)]}
        want, have = eager.infer(feeds)["logits"], engine.infer(feeds)["logits"]
        error = float(np.abs(have - want).max() / np.abs(want).max())
        assert have.shape == (batch, 10) and error < (2e-3 if dtype == "fp32" else 1e-2), f"batch {batch}: {error:.1e}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_done_once_for_a_shape_is_not_timed(variant: str) -> None:
    engine = _engine(variant)
    for batch in (1, 8, 3):
        feeds, started = {"image": digits("test").images[:batch]}, time.perf_counter()
        timed_ms = engine.time_ms(feeds)
        wall_ms = 1e3 * (time.perf_counter() - started)
        print(f"{variant} batch {batch}: {timed_ms:.3f} ms timed of {wall_ms:.0f} ms")
        assert timed_ms < 20 and timed_ms < 0.5 * wall_ms


def test_what_cannot_be_captured_is_one_line_and_harms_nobody(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "picky.py").write_text(
        "import torch\nfrom course_lib.models import Signature\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x): return super().forward(x) * float(x.sum())\n"
        "    def signature(self): return Signature(inputs={'x': ('batch', 8)}, outputs=('y',))\n"
        "def make(): return Net(8, 8)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    feeds = {"x": np.ones((1, 8), np.float32)}
    with pytest.raises(EngineError, match="torch failed: ") as raised:
        load(ModelSource("picky:make", variant="cuda_graph")).infer(feeds)
    print(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert load(ModelSource("picky:make")).infer(feeds)["y"].shape == (1, 8)
    assert _engine("cuda_graph").infer({"image": digits("test").images[:2]})["logits"].shape == (2, 10)
