"""What the tests of the doubles share: small ONNX models, and one build and one run in the fewest calls."""

import ctypes
import sys
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx import TensorProto as T

from course_lib.standin import cuda_driver as cuda
from course_lib.standin import installation

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> Any:
    """The stand-ins for the rest of a test. What the code under test has cached of the real ones it has to forget itself.

    Returns:
        the `tensorrt` module.
    """
    for name, module in installation.modules(version).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(ctypes, "CDLL", installation.library_loader())
    return sys.modules["tensorrt"]


def linear(batch: Any = "N") -> ModelProto:
    """``y = relu(x @ w)`` with x of shape (N, 4) and y of shape (N, 3)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="multiply"),
        helper.make_node("Relu", ["product"], ["y"], name="relu"),
    ]
    return _model(nodes, [("x", T.FLOAT, [batch, 4])], [("y", T.FLOAT, [batch, 3])], {"w": WEIGHTS})


def unknown_operator() -> ModelProto:
    node = helper.make_node("Whirl", ["x"], ["y"], name="whirl", domain="of.nobody")
    return _model([node], [("x", T.FLOAT, [1])], [("y", T.FLOAT, [1])])


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, np.ndarray] | None = None) -> ModelProto:
    tensors = [helper.make_tensor(name, T.FLOAT, a.shape, a.tobytes(), raw=True) for name, a in (weights or {}).items()]
    infos, results = ([helper.make_tensor_value_info(*one) for one in some] for some in (inputs, outputs))
    graph = helper.make_graph(nodes, "graph", infos, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def logger(trt: Any) -> Any:
    """A logger that keeps its lines in `rows`."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.rows: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            self.rows.append(f"{severity.name}: {msg}")

        @property
        def last(self) -> str:
            return self.rows[-1] if self.rows else ""

    return Log()


def parsed(trt: Any, log: Any, model: ModelProto) -> tuple[Any, Any]:
    """A builder and a network with the model in it."""
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, log).parse(model.SerializeToString())
    return builder, network


def plan(trt: Any, model: ModelProto | None = None, *, batches: Any = ((1, 2, 8),), flags: Any = (), **options: Any) -> Any:
    """A serialized engine of `linear`, with a profile for each triple of batch sizes, or of another model without profiles."""
    log = logger(trt)
    builder, network = parsed(trt, log, model or linear())
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    for name, value in options.items():
        setattr(config, name, value)
    for sizes in batches if model is None else ():
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *((n, 4) for n in sizes))
        config.add_optimization_profile(profile)
    serialized = builder.build_serialized_network(network, config)
    assert serialized is not None, log.last
    return serialized


def engine(trt: Any, *args: Any, log: Any = None, **kwargs: Any) -> Any:
    """A deserialized `plan`."""
    return trt.Runtime(log or logger(trt)).deserialize_cuda_engine(plan(trt, *args, **kwargs))


class Bench:
    """A context with buffers for `rows` rows of `linear`, on its own stream."""

    def __init__(self, engine: Any, rows: int = 2, context: Any = None) -> None:
        self.stream = cuda.Stream()
        self.context = context or engine.create_execution_context()
        self.x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        self.y = np.zeros((rows, 3), np.float32)
        self.memory = {"x": cuda.mem_alloc(self.x.nbytes), "y": cuda.mem_alloc(self.y.nbytes)}
        self.shaped = self.context.set_input_shape("x", self.x.shape)
        for name, memory in self.memory.items():
            self.context.set_tensor_address(name, int(memory))

    def enqueue(self) -> bool:
        cuda.memcpy_htod_async(self.memory["x"], self.x, self.stream)
        started: bool = self.context.execute_async_v3(self.stream.handle)
        cuda.memcpy_dtoh_async(self.y, self.memory["y"], self.stream)
        return started

    def run(self) -> np.ndarray:
        assert self.enqueue()
        self.stream.synchronize()
        return self.y


def expected(model: ModelProto, x: np.ndarray) -> np.ndarray:
    """What onnxruntime computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found
