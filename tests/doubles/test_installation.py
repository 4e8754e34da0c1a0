"""How programs find the stand-ins, and what is printed about them."""

import ctypes
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from course_lib import standin
from course_lib.standin import cuda_driver, installation

SENTENCE = "Stand-in for TensorRT 10.16: it runs on this CPU through ONNX Runtime, and says nothing about speed.\n"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without either module, and with what a test leaves behind removed."""
    for name in ("tensorrt", "pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that the old state comes back
        monkeypatch.delitem(sys.modules, name)
    yield


def test_an_installed_stand_in_is_found_and_says_what_it_is(clean, monkeypatch, capsys):
    monkeypatch.setattr(installation, "has_real_tensorrt", lambda: False)
    trt = standin.install()
    assert capsys.readouterr().out == SENTENCE
    import pycuda.driver
    import tensorrt

    assert tensorrt is trt and pycuda.driver is cuda_driver
    assert trt.__version__.startswith("10.16")
    monkeypatch.undo()


def test_a_real_tensorrt_stays_in_place(clean, monkeypatch, capsys):
    real = ModuleType("tensorrt")
    real.__version__ = "10.16.1"
    monkeypatch.setitem(sys.modules, "tensorrt", real)
    monkeypatch.setattr(installation, "has_real_tensorrt", lambda: True)
    assert standin.install() is real and "pycuda" not in sys.modules
    assert "TensorRT 10.16.1 with a GPU" in capsys.readouterr().out


def test_tensorrt_without_pycuda_or_without_a_gpu_is_not_enough(clean, monkeypatch):
    present = {"tensorrt"}
    monkeypatch.setattr(installation, "find_spec", lambda name: name in present)
    assert not installation.has_real_tensorrt()
    present.add("pycuda")

    def load(name: str) -> ctypes.CDLL:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert not installation.has_real_tensorrt()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: type("Driver", (), {"cuInit": lambda self, flags: 0})())
    assert installation.has_real_tensorrt()


def test_the_block_leaves_everything_as_it_was(clean):
    load = ctypes.CDLL
    before = ModuleType("tensorrt")
    sys.modules["tensorrt"] = before
    with pytest.raises(ZeroDivisionError), standin.installed("11.4") as trt:
        assert not installation.has_real_tensorrt()
        assert sys.modules["tensorrt"] is trt and trt.__version__.startswith("11.4")
        assert ctypes.CDLL is not load and ctypes.CDLL(None) is not None
        raise ZeroDivisionError
    assert sys.modules["tensorrt"] is before and "pycuda.driver" not in sys.modules and ctypes.CDLL is load


def test_autoinit_makes_a_context_active_each_time_it_is_new(clean):
    depth = cuda_driver.Context._depth()
    for turn in (1, 2):
        with standin.installed():
            import pycuda.autoinit  # noqa: F401

            assert cuda_driver.Context._depth() == depth + turn
        assert "pycuda.autoinit" not in sys.modules
    cuda_driver.Context.pop()
    cuda_driver.Context.pop()


def test_the_course_does_not_mistake_it_for_a_backend(clean, monkeypatch):
    from course_lib.engines.registry import find

    with monkeypatch.context() as patched:
        patched.setattr(installation, "has_real_tensorrt", lambda: False)
        version = find("tensorrt").version()
        standin.install()
        assert find("tensorrt").version() == version
