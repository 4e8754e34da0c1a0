"""A process that holds the candidates of one group and times them on inputs that lie on the device.

It runs in any interpreter that has numpy and the group's backend, and speaks `course_lib.engines.worker.wire`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from benchmarks.gpt2_parts.cases import Case
from benchmarks.headline.child_process import compile_for_each_shape, serve_held
from course_lib.engines.cuda import two_clocks
from course_lib.engines.cuda.driver import capability
from course_lib.errors import BackendUnavailable

Answer = dict[str, np.ndarray]


class Subject(Protocol):
    """A candidate that was loaded."""

    def answer(self, index: int, ahead: int) -> Answer:
        """For `tokens(index)`, ``logits``, and the last block's ``key`` and ``value`` of the new tokens ``(batch, heads, new, size)``.

        `ahead` moves a step's position on. A subject that does not write in place has no cache with the tokens before it.
        """

    def time_ms(self, index: int) -> float:
        """Milliseconds of one call, by device events where there is a GPU."""


class TorchSubject:
    """PyTorch in one variant; all variants of a dtype share the module and its cache.

    Args:
        call: the module, or its compiled form.
        graph: capture the call and replay it.
    """

    def __init__(self, case: Case, module: Any, call: Callable[..., Any], graph: bool, device: str) -> None:
        import torch

        from course_lib.engines.backends.torch import GraphedCallable

        self._torch, self._case, self._module, self._device = torch, case, module, device
        self._call, self._graph = call, GraphedCallable(call) if graph else None

    def answer(self, index: int, ahead: int) -> Answer:
        with self._torch.inference_mode():
            logits = self._prepared(index, ahead)()
            case, module = self._case, self._module
            slots = _slots(case, ahead)
            found = {"logits": logits, "key": module.keys[-1][:, :, slots], "value": module.values[-1][:, :, slots]}
            return {name: tensor.float().cpu().numpy().copy() for name, tensor in found.items()}  # the next call writes there

    def time_ms(self, index: int) -> float:
        with self._torch.inference_mode():
            call = self._prepared(index)
            if self._device == "cpu":
                return two_clocks.timed_ms(call)
            return two_clocks.torch_event_ms(self._torch, call)

    def _prepared(self, index: int, ahead: int = 0) -> Callable[[], Any]:
        self._module.position.fill_(self._case.position + ahead)
        tokens = self._torch.from_numpy(self._case.tokens(index)).long().to(self._device)
        return self._graph.prepare([tokens]) if self._graph else functools.partial(self._call, tokens)


class OnnxRuntimeSubject:
    """A session whose inputs and outputs are torch's memory; each output of the cache has its own, see `onnx_opset17`."""

    def __init__(self, case: Case, model: Path) -> None:
        import onnxruntime
        import torch

        from course_lib.engines.backends.onnxruntime import session

        self._torch, self._case, self._device = torch, case, session.device()
        if self._device == "cpu" and capability():
            raise BackendUnavailable("this onnxruntime has no CUDA provider")
        stream = torch.cuda.current_stream().cuda_stream if self._device == "cuda" else 0
        self._session = session.open_session(model.read_bytes(), self._device, stream=stream)
        self._options = onnxruntime.RunOptions()
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self._binding = self._session.io_binding()
        inputs = {info.name: torch.from_numpy(_input(case, info.name)) for info in self._session.get_inputs()}
        outputs = {info.name: torch.zeros(info.shape, dtype=torch.float16) for info in self._session.get_outputs()}
        self._tensors = {name: tensor.to(self._device) for name, tensor in {**inputs, **outputs}.items()}
        for name, tensor in self._tensors.items():
            bind = self._binding.bind_input if name in inputs else self._binding.bind_output
            kind = np.dtype(str(tensor.dtype).removeprefix("torch.")).type
            bind(name, self._device, 0, kind, tuple(tensor.shape), tensor.data_ptr())

    def answer(self, index: int, ahead: int) -> Answer:
        assert not ahead, "its cache is not written in place"
        self._set(index)
        self._run()
        if self._device == "cuda":
            self._torch.cuda.synchronize()
        return _named(
            self._case, {name: tensor.cpu().numpy() for name, tensor in self._tensors.items() if _is_answer(self._case, name)}
        )

    def time_ms(self, index: int) -> float:
        self._set(index)
        if self._device == "cpu":
            return two_clocks.timed_ms(self._run)
        return two_clocks.torch_event_ms(self._torch, self._run)

    def _set(self, index: int) -> None:
        self._tensors["tokens"].copy_(self._torch.from_numpy(self._case.tokens(index)))

    def _run(self) -> None:
        self._session.run_with_iobinding(self._binding, self._options)


class TensorRTSubject:
    """A plan in a CUDA graph. With the plugin, each output of the cache is at its input's address."""

    def __init__(self, case: Case, plan: Path, in_place: bool) -> None:
        from course_lib.engines.backends.tensorrt.memory import allocate, cuda
        from course_lib.engines.cuda.graph import CudaGraph
        from course_lib.engines.plan import Plan
        from course_lib.engines.registry import load

        self._case, self._cuda = case, cuda()
        engine: Any = load(Plan.load(plan))
        self._execution = engine.execution()
        self._stream = self._execution.stream
        self._infos = {info.name: info for info in (*engine.inputs, *engine.outputs)}
        self._memory: dict[str, Any] = {}
        for name, info in self._infos.items():
            past = name.replace("present_", "past_")
            shared = in_place and name.startswith("present_")
            self._memory[name] = self._memory[past] if shared else allocate(_bytes(info))
        for info in engine.inputs:
            self._cuda.memcpy_htod(self._memory[info.name], np.ascontiguousarray(_input(case, info.name)))
        addresses = {name: int(memory) for name, memory in self._memory.items()}
        shapes = {info.name: info.shape for info in engine.inputs}

        def run() -> None:
            self._execution.run_at(addresses, shapes, self._stream.handle)

        run()
        self._stream.synchronize()
        self._graph = CudaGraph(self._stream.handle, run)

    def answer(self, index: int, ahead: int) -> Answer:
        self._set(index, ahead)
        self._graph.launch(self._stream.handle)
        self._stream.synchronize()
        found = {}
        for name in (name for name in self._infos if _is_answer(self._case, name)):
            found[name] = np.empty(self._infos[name].shape, self._infos[name].dtype)
            self._cuda.memcpy_dtoh(found[name], self._memory[name])
        return _named(self._case, found, ahead)

    def time_ms(self, index: int) -> float:
        self._set(index)
        return two_clocks.event_ms(self._between_events, self._cuda.Context.synchronize)

    def _between_events(self) -> float:
        begin, end = self._cuda.Event(), self._cuda.Event()
        begin.record(self._stream)
        self._graph.launch(self._stream.handle)
        end.record(self._stream)
        self._stream.synchronize()
        return float(begin.time_till(end))

    def _set(self, index: int, ahead: int = 0) -> None:
        self._cuda.memcpy_htod(self._memory["tokens"], self._case.tokens(index))
        if "position" in self._memory:
            self._cuda.memcpy_htod(self._memory["position"], np.array([self._case.position + ahead], np.int32))


class Held:
    """The subjects of one case by name; the next case replaces them.

    Args:
        plugin: library of the course's attention plugins, for TensorRT; empty for none.
    """

    def __init__(self, plugin: str = "") -> None:
        if plugin:
            import tensorrt as trt

            from benchmarks.headline.trt_build import load_plugins

            load_plugins(trt, [plugin])
        self._modules: dict[str, Any] = {}
        self._subjects: dict[str, Subject] = {}

    def begin(self, case: dict[str, Any]) -> None:
        """Forget the last case."""
        self._modules.clear()
        self._subjects.clear()
        self._case = Case.from_wire(case)

    def load(self, name: str, group: str, variant: str, form: str, dtype: str, file: str) -> None:
        """Add a candidate, see `cases.Candidate`; `file` is its ONNX file or plan."""
        if group == "torch":
            self._subjects[name] = self._torch(variant, dtype)
        elif group == "onnxruntime":
            self._subjects[name] = OnnxRuntimeSubject(self._case, Path(file))
        else:
            self._subjects[name] = TensorRTSubject(self._case, Path(file), in_place=form == "plugin")

    def infer(self, name: str, index: int, ahead: int = 0) -> Answer:
        return self._subjects[name].answer(index, ahead)

    def time(self, name: str, index: int) -> float:
        """Milliseconds of the second of two calls, as in `headline.child`."""
        self._subjects[name].time_ms(index)
        return self._subjects[name].time_ms(index)

    def _torch(self, variant: str, dtype: str) -> TorchSubject:
        import torch

        from benchmarks.gpt2_parts import torch_steps

        torch.set_num_threads(1)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if dtype not in self._modules:
            self._modules[dtype] = torch_steps.made(self._case, dtype, device)
        module = call = self._modules[dtype]
        if "compile" in variant:
            if "compiled" not in self._modules:
                self._modules["compiled"] = _compiled(module)
            call = self._modules["compiled"]
        return TorchSubject(self._case, module, call, "cuda_graph" in variant, device)


def _compiled(module: Any) -> Callable[..., Any]:
    import torch

    compile_for_each_shape()
    compiled: Callable[..., Any] = torch.compile(module, fullgraph=True)
    return compiled


def _input(case: Case, name: str) -> np.ndarray:
    """What an input of a graph holds before the first call."""
    if name == "tokens":
        return case.tokens(0)
    if name == "position":
        return np.array([case.position], np.int32)
    _, kind, block = name.split("_")
    return case.cache(int(block), kind)


def _is_answer(case: Case, name: str) -> bool:
    last = case.shape.depth - 1
    return name in ("logits", f"present_key_{last}", f"present_value_{last}")


def _slots(case: Case, ahead: int) -> slice:
    """Those of the new tokens."""
    return slice(case.position + ahead, case.position + ahead + case.new)


def _named(case: Case, outputs: Answer, ahead: int = 0) -> Answer:
    """The answers as `Subject.answer` has them, from a graph's outputs."""
    found = {}
    for name, array in outputs.items():
        if name != "logits":
            array = array[:, :, _slots(case, ahead)]  # the plain form's prompt is at position 0 of its own output
            name = name.split("_")[1]
        found[name] = array.astype(np.float32)
    return found


def _bytes(info: Any) -> int:
    return int(np.prod(info.shape, dtype=np.int64)) * np.dtype(info.dtype).itemsize


if __name__ == "__main__":
    serve_held(Held)
