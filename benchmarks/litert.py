"""LiteRT, the successor of TensorFlow Lite, on the CPU: it runs a converted file with the kernels of XNNPACK. It does not read ONNX.

Source: `Interpreter` and `SignatureRunner` of the package ai-edge-litert 2.3.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from course_lib.engines import Worker
from course_lib.engines.cuda.two_clocks import timed_ms
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Feeds, Plan, TensorInfo, check_feeds
from course_lib.engines.worker import child
from course_lib.errors import OUTSIDE_PROFILES, EngineError, PlanError

if TYPE_CHECKING:
    import numpy as np


def version() -> str:
    """The version of the installed LiteRT."""
    return metadata.version("ai-edge-litert")


def converted(data: bytes) -> Plan:
    """The plan that runs a converted file, a ``.tflite``. It has no layer table, and the digest of the file itself."""
    return Plan(
        backend=LiteRTEngine.backend,
        version=version(),
        data=data,
        onnx_sha256=hashlib.sha256(data).hexdigest(),
        recipe={"precision": "fp32"},
        targets=(),
        layers=LayerTable((), {}),
        build_seconds=0.0,
        notes=("converted by another program, not built from ONNX",),
    )


class LiteRTWorker(Worker):
    """A process with a LiteRT engine."""

    program: ClassVar[str] = "benchmarks.litert"


def serve() -> None:
    """The worker's end."""
    child.serve(lambda request, arrays: LiteRTEngine(Plan.from_json(request["plan"], arrays["data"].tobytes())))


class LiteRTEngine:
    """An interpreter with one thread. It picks the signature whose inputs have the shapes of the feeds.

    Raises:
        PlanError: LiteRT does not read the file, or the file has no signature.
    """

    backend = "litert"

    def __init__(self, plan: Plan) -> None:
        from ai_edge_litert.interpreter import Interpreter

        try:
            self._interpreter = Interpreter(model_content=plan.data, num_threads=1)
        except ValueError as error:
            raise PlanError(f"litert cannot read the plan: {' '.join(str(error).split())[:200]}") from None
        runners = [self._interpreter.get_signature_runner(name) for name in self._interpreter.get_signature_list()]
        if not runners:
            raise PlanError("the file has no signature: convert it with litert-torch")
        self._runners = {_shapes(runner.get_input_details()): runner for runner in runners}
        self.inputs = _common([runner.get_input_details() for runner in runners])
        self.outputs = _common([runner.get_output_details() for runner in runners])

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        return dict(self._runner(feeds)(**feeds))

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. The time includes a copy of inputs and outputs, which LiteRT's Python interface always makes."""
        runner = self._runner(feeds)
        return timed_ms(lambda: runner(**feeds))

    def _runner(self, feeds: Feeds) -> Any:
        check_feeds(self.inputs, feeds)
        wanted = tuple(sorted((name, array.shape) for name, array in feeds.items()))
        if wanted not in self._runners:
            spelled = [
                "; ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in one) for one in (wanted, *self._runners)
            ]
            raise EngineError(
                f"no signature of the file accepts {spelled[0]}: it has {', '.join(spelled[1:])}", code=OUTSIDE_PROFILES
            )
        return self._runners[wanted]


def _shapes(details: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((name, tuple(map(int, one["shape"]))) for name, one in details.items()))


def _common(signatures: list[Any]) -> tuple[TensorInfo, ...]:
    """Names and types of the first signature's tensors; a dimension that differs between the signatures is dynamic."""
    found = []
    for name, one in signatures[0].items():
        sizes = zip(*(details[name]["shape"] for details in signatures), strict=True)
        shape = tuple(int(size[0]) if len(set(map(int, size))) == 1 else -1 for size in sizes)
        found.append(TensorInfo(name, shape, one["dtype"].__name__))
    return tuple(found)
