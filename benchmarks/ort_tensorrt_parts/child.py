"""A process in the interpreter that has ONNX Runtime's TensorRT provider: `child.py FOLDER SECTION ...`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from benchmarks.ort_tensorrt_parts.sessions import (
    CHAIN,
    CPU,
    CUDA,
    PROFILE,
    TENSORRT,
    images,
    opened,
    placement,
    relative_error,
    tensorrt,
)
from benchmarks.sections.child import ready, run_sections
from benchmarks.sections.observing import Rows, observed
from course_lib.benchmark.comparison import compare
from course_lib.engines.cuda.two_clocks import timed_ms

if TYPE_CHECKING:
    from course_lib.teaching.deployment.fallback_chain import Answers

# Their times include what the first session of a process pays: seconds for TensorRT's kernel library.
ALONE = ("versions", "caches", "latency")
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
CLASSIFIER, DETERMINANT = FOLDER / "classifier.onnx", FOLDER / "determinant.onnx"


def versions(rows: Rows) -> None:
    import platform

    import onnx

    rows.add(
        "installed",
        onnxruntime=onnxruntime.__version__,
        onnx=onnx.__version__,
        numpy=np.__version__,
        python=platform.python_version(),
        tensorrt=_tensorrt_version(),
        available=onnxruntime.get_available_providers(),
        build=onnxruntime.get_build_info() if hasattr(onnxruntime, "get_build_info") else "",
    )


def _tensorrt_version() -> str:
    """Of the package that the provider's library comes from; importing it would load it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tensorrt")
    except PackageNotFoundError:
        return ""


def fallback(rows: Rows) -> None:
    """Which provider runs which node: of a graph that TensorRT takes, and of one with a node that it does not."""
    for name, model, providers, entries in (
        ("classifier, all providers", CLASSIFIER, CHAIN, {}),
        ("determinant, all providers", DETERMINANT, CHAIN, {}),
        ("determinant, TensorRT and CPU", DETERMINANT, (TENSORRT, CPU), {}),
        ("determinant, TensorRT alone", DETERMINANT, (TENSORRT,), {}),
        ("determinant, CUDA and CPU", DETERMINANT, (CUDA, CPU), {}),
        ("determinant, no fall-back to the CPU", DETERMINANT, (TENSORRT, CUDA), {"session.disable_cpu_ep_fallback": "1"}),
        ("determinant, trt_min_subgraph_size=5", DETERMINANT, tensorrt(trt_min_subgraph_size=5), {}),
        ("determinant, profile shapes", DETERMINANT, tensorrt(**PROFILE), {}),
    ):
        profile = FOLDER / f"profile_{len(list(FOLDER.glob('profile_*')))}"
        seen = observed(opened, model, providers, entries=entries, profile=profile)
        facts: dict[str, Any] = {**seen.facts(), "log": seen.lines("[E:", "[W:", "EP Error", "Falling back")[:8]}
        if seen.value is not None:
            run = observed(_ran, seen.value, 8)
            facts.update(providers=seen.value.get_providers(), run_failed=run.failed, run_log=run.lines("[E:", "[W:")[:6])
            facts["first_run_seconds"] = round(run.seconds, 3)
            if run.value is not None:
                facts["relative_error"] = relative_error(run.value, _reference(model, 8))
            facts["nodes"] = placement(seen.value)
        rows.add(name, **facts)


def _ran(session: Any, count: int) -> Any:
    """Its outputs for so many images."""
    return session.run(None, images(count))


def _reference(model: Path, count: int) -> Any:
    return _ran(opened(model, (CPU,)), count)


def options(rows: Rows) -> None:
    """Provider options with their defaults; options and providers that do not exist."""
    seen = observed(lambda: opened(CLASSIFIER))
    rows.add("the defaults", **seen.facts(), options=seen.value.get_provider_options() if seen.value is not None else {})
    for name, providers in (
        ("no_such_option=1", tensorrt(no_such_option=1)),
        ("trt_fp16_enable='yes'", tensorrt(trt_fp16_enable="yes")),
        ("trt_fp16_enable=True", tensorrt(trt_fp16_enable=True)),
        ("trt_builder_optimization_level=9", tensorrt(trt_builder_optimization_level=9)),
        ("a provider that does not exist", ("NoSuchExecutionProvider", CPU)),
        ("a provider that this build lacks", ("ROCMExecutionProvider", CPU)),
        ("device 7", tensorrt(device_id=7)),
    ):
        seen = observed(opened, CLASSIFIER, providers)
        facts: dict[str, Any] = {**seen.facts(), "log": seen.lines("[E:", "[W:", "EP Error", "Falling back")[:6]}
        if seen.value is not None:
            facts["providers"] = seen.value.get_providers()
            taken = seen.value.get_provider_options().get(TENSORRT, {})
            facts["taken"] = {key: taken.get(key) for key in ("trt_fp16_enable", "trt_builder_optimization_level", "device_id")}
        rows.add(name, **facts)


def batches(rows: Rows) -> None:
    """An open batch size without a profile: when the engine is built, and built again."""
    seen = observed(lambda: opened(CLASSIFIER))
    rows.add("session", **seen.facts(), log=seen.lines("[W:", "[E:")[:3])
    for index, size in enumerate((8, 8, 3, 3, 8, 33, 33, 16)):
        run = observed(_ran, seen.value, size)
        facts: dict[str, Any] = {**run.facts(), "batch": size, "log": run.lines("[W:", "[E:")[:3]}
        if run.value is not None:
            facts["relative_error"] = relative_error(run.value, _reference(CLASSIFIER, size))
        rows.add(f"run {index + 1}, batch {size}", **facts)


def profiles(rows: Rows) -> None:
    """Shapes of a profile from 1 to 32: when the engine is built, and a batch outside."""
    for name, more in (("profile 1 to 32", {}), ("profile 1 to 32, FP16", {"trt_fp16_enable": True})):
        seen = observed(opened, CLASSIFIER, tensorrt(**PROFILE, **more))
        rows.add(f"{name}: session", **seen.facts())
        for size in (8, 1, 32, 33, 8) if seen.value is not None else ():
            run = observed(_ran, seen.value, size)
            facts: dict[str, Any] = {**run.facts(), "batch": size, "log": run.lines("[W:", "[E:")[:3]}
            if run.value is not None:
                facts.update(
                    rows_returned=len(run.value[0]), relative_error=relative_error(run.value, _reference(CLASSIFIER, size))
                )
            rows.add(f"{name}: batch {size}", **facts)


SECOND = """
import json, sys, time
from pathlib import Path
sys.argv = ["child", sys.argv[1], *sys.argv[2:]]
from benchmarks.ort_tensorrt_parts import child
began = time.perf_counter()
session = child.opened(child.CLASSIFIER, child.tensorrt(**json.loads(sys.argv[2])))
opened = time.perf_counter()
answer = session.run(None, child.images(8))
print(json.dumps({"session_seconds": round(opened - began, 3), "first_run_seconds": round(time.perf_counter() - opened, 3),
                  "relative_error": child.relative_error(answer, child._reference(child.CLASSIFIER, 8))}))
"""


def caches(rows: Rows) -> None:
    """Sessions in fresh processes: without caches, writing them, and reading them."""
    cached = {"trt_engine_cache_enable": True, "trt_engine_cache_path": str(FOLDER / "engines")}
    timings = {"trt_timing_cache_enable": True, "trt_timing_cache_path": str(FOLDER / "timings")}
    for name, given in (
        ("engine and timing cache, first process", {**cached, **timings, **PROFILE}),
        ("engine and timing cache, second process", {**cached, **timings, **PROFILE}),
        ("timing cache alone, filled", {**timings, **PROFILE}),
        ("no cache", PROFILE),
    ):
        done = subprocess.run(
            [sys.executable, "-c", SECOND, str(FOLDER), json.dumps(given)], capture_output=True, text=True, timeout=60
        )
        try:
            facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            facts = {"failed": (done.stderr.strip() or f"the process ended with {done.returncode}")[-800:]}
        files = [path for folder in ("engines", "timings") for path in FOLDER.glob(f"{folder}/*")]
        rows.add(name, **facts, files={f"{path.parent.name}/{path.name}": path.stat().st_size for path in files})


def course(rows: Rows) -> None:
    """The course's step of a chain on this provider, and the chain with it."""
    from course_lib.teaching.deployment.fallback_chain import TensorRTProvider, first_that_answers

    plan: Any = SimpleNamespace(data=CLASSIFIER.read_bytes())
    known, right = images(4), {"logits": _reference(CLASSIFIER, 4)[0]}
    seen = observed(lambda: TensorRTProvider(plan).infer(known))
    facts: dict[str, Any] = seen.facts()
    if seen.value is not None:
        facts["relative_error"] = relative_error([seen.value["logits"]], [right["logits"]])
    rows.add("TensorRTProvider", **facts)
    ways: dict[str, Callable[[], Answers]] = {
        "ONNX Runtime + TensorRT": lambda: TensorRTProvider(plan),
        "ONNX Runtime": lambda: SimpleNamespace(infer=lambda feeds: {"logits": opened(CLASSIFIER, (CPU,)).run(None, feeds)[0]}),
    }
    chosen = observed(lambda: first_that_answers(ways, known, right))
    rows.add("first_that_answers", **chosen.facts(), steps=[str(step) for step in chosen.value.steps] if chosen.value else [])
    wrong = observed(lambda: first_that_answers(ways, known, {"logits": right["logits"] + 1}))
    rows.add("first_that_answers, another answer expected", **wrong.facts())


@dataclass(frozen=True)
class Calls:
    """For `compare`, whose feeds are not used: a call that waits for its answer, on the host's clock."""

    call: Callable[[], Any]

    def time_ms(self, feeds: Any) -> float:
        return timed_ms(self.call)


def latency(rows: Rows) -> None:
    """TensorRT against CUDA in FP32 and FP16, with arrays of the host and with I/O binding; batch 8 of a profile up to 32."""
    ways = {
        "CUDA": (CUDA, CPU),
        "TensorRT": tensorrt(**PROFILE),
        "TensorRT FP16": tensorrt(**PROFILE, trt_fp16_enable=True),
        "CPU": (CPU,),
    }
    want, feeds = _reference(CLASSIFIER, 8), images(8)
    calls: dict[str, dict[str, Callable[[], Any]]] = {"host arrays": {}, "I/O binding": {}}
    for name, providers in ways.items():
        seen = observed(opened, CLASSIFIER, providers)
        facts: dict[str, Any] = seen.facts()
        if seen.value is None:
            rows.add(f"{name}: session", **facts)
            continue
        session, started = seen.value, time.perf_counter()
        answer = session.run(None, feeds)
        facts.update(first_run_seconds=round(time.perf_counter() - started, 3), relative_error=relative_error(answer, want))
        rows.add(f"{name}: session", **facts, providers=session.get_providers())
        calls["host arrays"][name] = partial(session.run, None, feeds)
        if name != "CPU":
            bound = observed(_bound, session, feeds)
            if bound.value is not None:
                calls["I/O binding"][name] = bound.value
            else:
                rows.add(f"{name}: I/O binding", **bound.facts())
    ready("latency")
    for kind, subjects in calls.items():
        if "CUDA" not in subjects:
            continue
        found = compare({name: Calls(call) for name, call in subjects.items()}, dict, baseline="CUDA", time_limit_s=5)
        rows.add(f"{kind}, batch 8", **found.to_json())


def _bound(session: Any, feeds: dict[str, np.ndarray]) -> Callable[[], Any]:
    binding = session.io_binding()
    binding.bind_ortvalue_input("image", onnxruntime.OrtValue.ortvalue_from_numpy(feeds["image"], "cuda", 0))
    binding.bind_output("logits", "cuda", 0)
    session.run_with_iobinding(binding)

    def call() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return call


def _open_session() -> Any:
    """While one builder lives, the next sessions need not load TensorRT's kernel library again, which takes seconds."""
    return observed(lambda: opened(CLASSIFIER, tensorrt(**PROFILE))).value


SECTIONS: dict[str, Callable[[Rows], None]] = {
    "versions": versions,
    "fallback": fallback,
    "options": options,
    "course": course,
    "batches": batches,
    "profiles": profiles,
    "caches": caches,
    "latency": latency,
}

if __name__ == "__main__":
    run_sections(SECTIONS, FOLDER, sys.argv[2:], before=_open_session, alone=ALONE)
