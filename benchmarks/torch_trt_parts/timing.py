"""Times: the first calls of `torch.compile`, and on an otherwise idle GPU latencies of eager and compiled modules."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.sections.observing import Rows, observed
from benchmarks.torch_trt_parts.answers import capture
from benchmarks.torch_trt_parts.compiling import compiled, counted
from benchmarks.torch_trt_parts.networks import DEVICE, lecture_classifier, normal, pictures, relative_error, tensor_of
from course_lib.benchmark.comparison import compare
from course_lib.engines.cuda.two_clocks import timed_ms, torch_event_ms

IN_A_ROW = {1: 10, 8: 10, 64: 5}  # calls between two events by batch size, as a service under load makes them


@dataclass(frozen=True)
class Calls:
    """For `compare`, whose feeds are not used: the input is on the device.

    Attributes:
        call: enqueues the work of one call.
        repeated: how many calls follow each other.
        by_events: whether the device's events see all of the work; otherwise the host's clock waits for the device.
    """

    call: Callable[[], Any]
    repeated: int
    by_events: bool

    def time_ms(self, feeds: Any) -> float:
        """Time of one call in milliseconds."""
        torch.cuda.synchronize()
        if not self.by_events:
            return timed_ms(self._several_waited) / self.repeated
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        self._several()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / self.repeated

    def _several(self) -> None:
        for _ in range(self.repeated):
            self.call()

    def _several_waited(self) -> None:
        self._several()
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Prepared:
    """Eager and compiled module of one network at one batch size, both in FP16, ready to be timed."""

    case: str
    batch: int
    facts: dict[str, Any]
    subjects: dict[str, Callable[[], Any]]

    def measure(self, rows: Rows, seconds: float) -> None:
        """One row: medians, ratios to eager, and the ratio of both CUDA graphs, with intervals."""
        if "torch_tensorrt" not in self.subjects:
            rows.add(self.case, **self.facts)
            return
        checks = {name: observed(torch_event_ms, torch, call).failed for name, call in self.subjects.items()}
        by_events = not any(checks.values())
        subjects = {name: Calls(call, IN_A_ROW[self.batch], by_events) for name, call in self.subjects.items()}
        found = compare(subjects, dict, baseline="eager", time_limit_s=seconds)
        ratios = {
            f"{slow} / {fast}": vars(found.ratio(slow, fast, seed=0))
            for slow, fast in (
                ("eager", "torch_tensorrt"),
                ("eager graph", "torch_tensorrt graph"),
                ("torch_tensorrt", "torch_tensorrt graph"),
                ("eager", "eager graph"),
            )
            if {slow, fast} <= subjects.keys()
        }
        told = {
            "batch": self.batch,
            **self.facts,
            **found.to_json(),
            "ratios": ratios,
            "calls_in_a_row": IN_A_ROW[self.batch],
            "clock": "device events" if by_events else f"host, since {checks}",
        }
        rows.add(self.case, **told)


def prepare(network: str, batch: int) -> Prepared:
    """Compile a network for one batch size, and capture both ways in CUDA graphs."""
    if network == "classifier":
        make, x = lecture_classifier, pictures(batch)
    else:
        from benchmarks.yardsticks import resnet50

        make, x = (lambda: resnet50().eval().to(DEVICE)), normal(batch, 3, 224, 224)
    want = make()(x)
    model, given = make().half(), x.half()
    # PyTorch's faster layout for convolutions; the annotations of `Module.to` lack this keyword
    last = make().half().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    held = given.to(memory_format=torch.channels_last)
    seen = observed(lambda: compiled(model, [given], enabled_precisions={torch.half}))
    facts: dict[str, Any] = {**seen.facts(), "network": network, "precision": "fp16", "build_s": round(seen.seconds, 1)}
    subjects: dict[str, Callable[[], Any]] = {"eager": lambda: last(held)}
    facts["eager_relative_error"] = relative_error(last(held), want)
    if seen.value is not None:
        subjects["torch_tensorrt"] = lambda: seen.value(given)
        facts.update(engines=counted(seen.value)["engines"], relative_error=relative_error(seen.value(given), want))
    for name in list(subjects):
        captured = observed(capture, partial(_output, subjects[name]))
        if captured.value is None:
            facts[f"{name} graph failed"] = captured.failed
        else:
            subjects[f"{name} graph"] = captured.value[0]
    return Prepared(f"{network}, batch {batch}", batch, facts, subjects)


def _output(call: Callable[[], Any]) -> torch.Tensor:
    return tensor_of(call())


def first_calls(rows: Rows) -> None:
    """`torch.compile` with this backend: the first call, the next one, another batch size, options that do not exist."""
    import torch_tensorrt

    model = lecture_classifier()
    quick: dict[str, str | int | bool | Callable[..., Any]] = {"min_block_size": 1}
    for case, make in {
        "default": lambda: torch.compile(model, backend="torch_tensorrt", options=quick),
        "dynamic=False": lambda: torch.compile(model, backend="torch_tensorrt", dynamic=False, options=quick),
        'torch_tensorrt.compile(ir="torch_compile")': lambda: torch_tensorrt.compile(model, ir="torch_compile", **quick),
        "options that do not exist": lambda: torch.compile(
            model, backend="torch_tensorrt", options={**quick, "min_blok_size": 3, "calibrator": "mine"}
        ),
    }.items():
        torch._dynamo.reset()
        made = observed(make)
        if made.value is None:
            rows.add(case, **made.facts())
            continue
        sizes = (8, 8, 4, 8) if case != "options that do not exist" else (8,)
        for index, size in enumerate(sizes):
            x = pictures(size)

            def call(made: Any = made, x: torch.Tensor = x) -> torch.Tensor:
                answer = tensor_of(made.value(x))
                if x.is_cuda:
                    torch.cuda.synchronize()
                return answer

            seen = observed(call)
            facts: dict[str, Any] = {**seen.facts(), "milliseconds": round(1e3 * seen.seconds, 3)}
            if seen.value is not None:
                facts["relative_error"] = relative_error(seen.value, model(x))
            rows.add(f"{case}: call {index + 1}, batch {size}", **facts)
    torch._dynamo.reset()
    started = time.perf_counter()
    built = observed(lambda: compiled(model, [pictures(8)], min_block_size=1))
    rows.add('ir="dynamo", the same module', **built.facts(), milliseconds=round(1e3 * (time.perf_counter() - started), 1))
