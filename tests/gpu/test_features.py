"""What TensorRT 8.6 has and the course's recipes do not ask for every day, a precision for each layer; memory and streams that pycuda
shares with torch.

The other features are in the neighbors: refit, contexts, streams, profiles, CUDA graphs, profiler and version-compatible plans in
test_runtime.py, timing cache and inspector in test_tensorrt.py, calibrators in test_int8.py, plugins in test_rope.py.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib.models import classifier, digits, export_onnx
from tests.gpu.test_int8 import run
from tests.gpu.test_tensorrt import pytestmark, target  # noqa: F401  (the same marks, the same fixture)

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    export_onnx(classifier("small"), path, opset=17)
    return path


# ---- TensorRT 8.6


def test_each_layer_has_the_precision_that_it_was_told(target, model, tmp_path):  # noqa: F811
    images = digits("test").images[:8]
    np.save(tmp_path / "images.npy", images)
    said = run(
        target, Path(__file__).with_name("precision_by_layer.py"), model, tmp_path / "images.npy", tmp_path / "logits.npy"
    )
    found = json.loads(said)
    types = [set(each) for each in found["types"].values()]
    assert len(types) >= 5 and types[0] == types[-1] == {"Float"} and all(each == {"Half"} for each in types[1:-1]), types
    assert 0 < found["rows"] <= found["layers"] and json.loads(found["first layer"], strict=False)
    with torch.inference_mode():
        want = classifier("small")(torch.from_numpy(images.copy())).numpy()
    assert np.abs(np.load(tmp_path / "logits.npy") - want).max() <= 2e-2 * np.abs(want).max()


# ---- pycuda and torch in one process


class Shown:
    """Device memory of pycuda's as torch reads it. Source: the CUDA Array Interface, version 3."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}


def test_pycuda_and_torch_share_memory_and_the_order_of_a_stream():
    pytest.importorskip("pycuda.driver")
    from course_lib.engines.backends.tensorrt.memory import Buffer, cuda

    driver: Any = cuda()
    count = 1 << 20
    x = torch.arange(count, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    stream = driver.Stream()
    memory, back = driver.mem_alloc(4 * count), driver.pagelocked_empty(count, np.float32)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
        torch.cuda._sleep(50_000_000)  # a reader that does not wait gets what was there before
        x.mul_(2)
    driver.memcpy_dtod_async(memory, x.data_ptr(), 4 * count, stream)
    driver.memcpy_dtoh_async(back, memory, stream)
    assert not stream.is_done(), "all of it was only enqueued"
    stream.synchronize()
    assert np.array_equal(back, 2 * np.arange(count, dtype=np.float32))
    assert torch.equal(torch.as_tensor(Shown(int(memory), count), device="cuda"), x)

    buffer, sent = Buffer(), np.random.default_rng().random(1000, np.float32)
    buffer.upload(sent, stream)
    stream.synchronize()
    assert torch.equal(torch.as_tensor(Shown(buffer.address, 1000), device="cuda").cpu(), torch.from_numpy(sent))
