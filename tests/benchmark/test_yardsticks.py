"""The networks with random weights that only speed and agreement are measured with: shapes, sizes, exports, reproducibility."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.yardsticks import bert_base, resnet50, unet, vit_b16
from course_lib.models import export_onnx
from tests.sessions import session

# the same code as at full size, in a hundredth of a second
SMALL: dict[str, Callable[..., Any]] = {
    "bert": lambda seed=0: bert_base(2, 64, 4, 16, seed=seed),
    "vit": lambda seed=0: vit_b16(2, 64, 4, 48, seed=seed),
    "unet": lambda seed=0: unet(8, 4, 32, seed=seed),
}


def run(model: Any, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model(x).numpy()


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("name", SMALL)
def test_opset_17_agrees_with_torch_at_every_batch(name: str, dtype: str) -> None:
    model = SMALL[name]()
    exported = export_onnx(model, opset=17, dtype=dtype)  # type: ignore[arg-type]
    assert [entry.version for entry in exported.opset_import if entry.domain == ""] == [17]
    opened = session(exported)
    signature = model.signature()
    assert [value.name for value in opened.get_outputs()] == list(signature.outputs)
    for batch in (1, 3, 8):
        (x,) = signature.example(batch=batch)
        (have,) = opened.run(None, {next(iter(signature.inputs)): x.numpy()})
        want = run(model, x)
        assert have.shape == want.shape
        error = np.linalg.norm(have - want) / np.linalg.norm(want)
        assert error < (1e-5 if dtype == "fp32" else 1e-2)
        assert dtype == "fp32" or error > 1e-5, "half precision that rounds nothing is not half precision"


@pytest.mark.parametrize("name", [*SMALL, "resnet50"])
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    make = SMALL.get(name, resnet50)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    once, again, other = (make(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state()), "the learner's own random numbers must not move"
    assert all(torch.equal(value, again[key]) for key, value in once.items())
    assert not all(torch.equal(value, other[key]) for key, value in once.items())
