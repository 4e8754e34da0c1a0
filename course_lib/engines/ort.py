"""ONNX Runtime: runs the same ONNX on any machine. Its plan is the model itself; the session optimizes it when it loads."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.engines.base import Feeds, Plan, TensorInfo, check_feeds, check_profiles
from course_lib.engines.layers import LayerTable
from course_lib.errors import BuildError, EngineError

if TYPE_CHECKING:
    import numpy as np

_DTYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
    "tensor(int32)": "int32", "tensor(int8)": "int8", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip


def compile_plan(backend: str, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str]) -> Plan:
    """Check that ONNX Runtime accepts the model and keep it with its recipe.

    Raises:
        BuildError: it refuses; one line says which node.
    """
    import onnxruntime

    data = _self_contained(model)
    started = time.perf_counter()
    _session(data)
    return Plan(
        backend=backend,
        version=onnxruntime.__version__,
        data=data,
        onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
        recipe=dict(recipe),
        targets=(),
        layers=LayerTable((), operators),
        build_seconds=time.perf_counter() - started,
        notes=(
            "ONNX Runtime runs the graph as it stands: precision and profiles are the recipe's promise, checked by a TensorRT build",
        ),
    )


class OnnxRuntimeEngine:
    """A session with one thread, so that a measurement does not depend on how many cores are free."""

    backend = "onnxruntime"

    def __init__(self, plan: Plan) -> None:
        self._session = _session(plan.data)
        self._recipe = plan.recipe
        self.inputs = tuple(map(_info, self._session.get_inputs()))
        self.outputs = tuple(map(_info, self._session.get_outputs()))

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`. The recipe's profiles bind here too, as they would on a GPU."""
        check_feeds(self.inputs, feeds)
        check_profiles(self._recipe, feeds)
        return dict(zip((info.name for info in self.outputs), self._run(feeds), strict=True))

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`."""
        check_feeds(self.inputs, feeds)
        check_profiles(self._recipe, feeds)
        started = time.perf_counter()
        self._run(feeds)
        return 1e3 * (time.perf_counter() - started)

    def _run(self, feeds: Feeds) -> list[Any]:
        try:
            return list(self._session.run(None, dict(feeds)))
        except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
            raise EngineError(f"onnxruntime failed: {_first_line(error)}") from None


def _session(data: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        if "protobuf" in str(error).lower():
            raise BuildError("the file is not an ONNX model, or only a part of one") from None
        raise BuildError(f"onnxruntime {onnxruntime.__version__} refuses the model: {_first_line(error)}") from None


def _self_contained(model: Path) -> bytes:
    """The model with its weights inside: a session made from bytes would look for them in the working directory."""
    data = model.read_bytes()
    if b"location" not in data:  # the key under which ONNX names a file with weights
        return data
    try:
        import onnx

        return bytes(onnx.load(model).SerializeToString())
    except ImportError:
        raise BuildError(
            "the model may keep weights in files beside it, which this environment cannot read: install onnx"
        ) from None
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise BuildError(
            f"the model's weights are not in it and cannot be read: {' '.join(str(error).split())[:200]}"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]


def _info(node: Any) -> TensorInfo:
    shape = tuple(n if isinstance(n, int) else -1 for n in node.shape)
    return TensorInfo(node.name, shape, _DTYPES.get(node.type, node.type))
