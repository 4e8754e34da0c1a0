"""What must be true of the TensorRT runtime, as functions: they run on a real GPU in an interpreter with TensorRT 8.6 and numpy
alone (`python checks.py LIBRARY FOLDER`), and under pytest against a stand-in for TensorRT 10 and 11.

Each takes a `Bench`: a TensorRT module and the folder that `material.prepare` filled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])

import numpy as np

from course_lib.engines.backends.tensorrt.builder import compile_plan
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine, shared_scratch
from course_lib.engines.plan import Plan
from course_lib.errors import CourseError

SHAPE = (1, 32, 32)
WIDE = {"image": {"min": [1, *SHAPE], "opt": [8, *SHAPE], "max": [32, *SHAPE]}}
FEW = {"image": {"min": [1, *SHAPE], "opt": [1, *SHAPE], "max": [4, *SHAPE]}}
MANY = {"image": {"min": [5, *SHAPE], "opt": [32, *SHAPE], "max": [32, *SHAPE]}}
TOLERANCE = 5e-3  # relative to the largest logit: TF32 in the convolutions


@dataclass(frozen=True)
class Bench:
    """A TensorRT module, a folder of material, and plans that were built once."""

    trt: Any
    folder: Path
    _plans: dict[Any, Plan] = field(default_factory=dict)

    def plan(self, model: str = "small.onnx", profiles: tuple[Any, ...] = (WIDE,), **changes: Any) -> Plan:
        key = json.dumps([model, profiles, changes], sort_keys=True)
        if key not in self._plans:
            recipe = {
                "precision": "fp32", "workspace_mib": 1024, "optimization_level": 3, "flags": ["tf32"], "targets": [],
                "hardware_compatibility": "none", "profiles": list(profiles), **changes,
            }  # fmt: skip
            self._plans[key] = compile_plan(self.trt, "tensorrt", self.folder / model, recipe, {})
        return self._plans[key]

    def engine(self, **arguments: Any) -> TensorRTEngine:
        return TensorRTEngine(self.trt, self.plan(**arguments))

    def images(self, first: int, count: int) -> dict[str, np.ndarray]:
        return {"image": _load(self.folder / "small.npz")["image"][first : first + count]}

    def right(self, outputs: dict[str, np.ndarray], first: int, count: int, source: str = "small.npz") -> None:
        want, have = _load(self.folder / source)["logits"][first : first + count], outputs["logits"]
        assert have.shape == want.shape, (have.shape, want.shape)
        error = np.abs(have - want).max() / np.abs(want).max()
        assert error <= TOLERANCE, f"relative error {error:.2g}"


@cache
def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as arrays:
        return dict(arrays)


@contextlib.contextmanager
def rejected(*words: str) -> Iterator[None]:
    """One line of ours, with all of these words in it."""
    try:
        yield
    except CourseError as error:
        said = str(error)
        assert len(said.splitlines()) == 1 and all(word in said for word in words), said
        return
    raise AssertionError(f"not rejected, expected an error with {words}")


# ---- arrays


def check_outputs_at_every_batch(bench: Bench) -> None:
    engine = bench.engine()
    assert [(i.name, i.shape, i.dtype) for i in engine.inputs] == [("image", (-1, *SHAPE), "float32")]
    assert [(i.name, i.shape, i.dtype) for i in engine.outputs] == [("logits", (-1, 10), "float32")]
    for first, count in ((0, 1), (0, 32), (7, 3), (40, 8), (3, 1)):
        bench.right(engine.infer(bench.images(first, count)), first, count)
    assert 0 < engine.time_ms(bench.images(0, 8)) < 1000


def check_results_are_the_callers_own(bench: Bench) -> None:
    engine = bench.engine()
    first = engine.infer(bench.images(0, 4))
    engine.infer(bench.images(8, 4))
    bench.right(first, 0, 4)


def check_inputs_that_are_not_contiguous(bench: Bench) -> None:
    feeds = {"image": np.asfortranarray(bench.images(0, 6)["image"])[::2]}
    assert not feeds["image"].flags.c_contiguous
    want = bench.engine().infer({"image": np.ascontiguousarray(feeds["image"])})
    assert np.array_equal(bench.engine().infer(feeds)["logits"], want["logits"])


def check_calls_in_the_wrong_order(bench: Bench) -> None:
    execution = bench.engine().execution()
    with rejected("start() first"):
        execution.finish()
    execution.start(bench.images(0, 2))
    with rejected("finish()"):
        execution.start(bench.images(2, 2))
    bench.right(execution.finish(), 0, 2)


def check_inputs_that_do_not_fit(bench: Bench) -> None:
    engine = bench.engine()
    for feeds, words in (
        ({}, ("missing input", "image")),
        ({"image": np.zeros((33, *SHAPE), np.float32)}, ("33x1x32x32", "outside every profile")),
        ({"image": np.zeros((1, *SHAPE), np.float64)}, ("float64",)),
    ):
        with rejected(*words):
            engine.infer(feeds)
    bench.right(engine.infer(bench.images(0, 3)), 0, 3)


# ---- contexts, streams, profiles


def check_several_executions_at_a_time(bench: Bench) -> None:
    executions = [bench.engine().execution() for _ in range(2)]
    engine = bench.engine()
    executions += [engine.execution() for _ in range(3)]  # these three share an engine and its only profile
    for index, execution in enumerate(executions):
        execution.start(bench.images(8 * index, 4))
    for index, execution in enumerate(executions):
        bench.right(execution.finish(), 8 * index, 4)
    assert len({execution.stream.handle for execution in executions}) == len(executions)


def check_one_execution_a_thread(bench: Bench) -> None:
    engine, failures = bench.engine(), []
    executions = [engine.execution() for _ in range(3)]

    def work(execution: Any, first: int) -> None:
        try:
            for _ in range(5):
                bench.right(execution.infer(bench.images(first, 5)), first, 5)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(execution, 10 * i)) for i, execution in enumerate(executions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_profiles_are_switched(bench: Bench) -> None:
    execution = bench.engine(profiles=(FEW, MANY)).execution()
    for first, count in ((0, 1), (0, 32), (1, 4), (2, 5), (3, 2), (9, 32)):
        bench.right(execution.infer(bench.images(first, count)), first, count)
    assert {number: context.active_optimization_profile for number, context in execution._contexts.items()} == {0: 0, 1: 1}
    with rejected("outside every profile"):
        execution.infer({"image": np.zeros((33, *SHAPE), np.float32)})


def check_executions_on_different_profiles(bench: Bench) -> None:
    engine = bench.engine(profiles=(FEW, MANY))
    few, many = engine.execution(), engine.execution()
    many.start(bench.images(0, 32))
    few.start(bench.images(32, 2))
    bench.right(few.finish(), 32, 2)
    bench.right(many.finish(), 0, 32)


# ---- CUDA graphs


def check_a_graph_is_captured_and_captured_again(bench: Bench) -> None:
    execution = bench.engine().execution(graph=True)
    captured = []
    for first, count in [(0, 1)] * 3 + [(8, 1)] + [(0, 8)] * 3 + [(9, 8)] + [(5, 1)] * 3:
        bench.right(execution.infer(bench.images(first, count)), first, count)
        captured.append(execution._replay.captured)
    distinct = [state for i, state in enumerate(captured) if state is not None and state != captured[i - 1]]
    assert captured[0] is None and len(distinct) == 3, "a graph for batch 1, one for 8, one for 1 again"
    assert execution.time_ms(bench.images(0, 3)) > 0
    assert execution._timing.captured[1] == ((3, *SHAPE),), "timed replays, not the capture"


def check_a_graph_over_two_profiles(bench: Bench) -> None:
    execution = bench.engine(profiles=(FEW, MANY)).execution(graph=True)
    for first, count in ((0, 2), (1, 2), (2, 2), (0, 9), (4, 9), (5, 9), (6, 2)):
        bench.right(execution.infer(bench.images(first, count)), first, count)


# ---- memory


def check_outputs_whose_shape_depends_on_data(bench: Bench) -> None:
    engine = bench.engine(model="nonzero.onnx", profiles=())
    rng = np.random.default_rng(0)
    for graph in (False, True):  # such an output cannot be captured: those runs are plain
        execution = engine.execution(graph=graph)
        for share in (0.5, 0.0, 1.0, 0.1):
            x = np.where(rng.random((4, 16)) < share, 1, -1).astype(np.float32)
            have = execution.infer({"x": x})["positions"]
            assert np.array_equal(have, np.array(np.nonzero(x > 0))), (have, share)
    with rejected("depends on data"):
        engine.execution().output_shapes({"x": (4, 16)})


def check_scratch_memory_is_shared(bench: Bench) -> None:
    one, two = bench.engine(), bench.engine(profiles=(FEW, MANY))
    scratch = shared_scratch(one, two)
    assert scratch.size == max(one.loaded.scratch_bytes, two.loaded.scratch_bytes)
    executions = [one.execution(scratch=scratch), two.execution(scratch=scratch), one.execution(scratch=scratch, graph=True)]
    for round_ in range(3):
        for execution in executions:  # one after the other: each run is over when infer returns
            bench.right(execution.infer(bench.images(round_, 3)), round_, 3)
    if scratch.size:
        with rejected("scratch memory"):
            one.execution(scratch=dataclasses.replace(scratch, size=one.loaded.scratch_bytes - 1))


def check_memory_of_the_callers(bench: Bench) -> None:
    driver, execution = cuda(), bench.engine().execution()
    stream = driver.Stream()
    images = bench.images(3, 4)["image"]
    staged, logits = driver.pagelocked_empty(images.shape, np.float32), driver.pagelocked_empty((4, 10), np.float32)
    staged[:] = images
    assert execution.output_shapes({"image": images.shape}) == {"logits": (4, 10)}
    inputs, outputs = driver.mem_alloc(images.nbytes), driver.mem_alloc(logits.nbytes)
    driver.memcpy_htod_async(inputs, staged, stream)
    execution.run_at({"image": int(inputs), "logits": int(outputs)}, {"image": images.shape}, stream.handle)
    driver.memcpy_dtoh_async(logits, outputs, stream)
    stream.synchronize()
    bench.right({"logits": logits}, 3, 4)
    with rejected("no address for logits"):
        execution.run_at({"image": int(inputs)}, {"image": images.shape}, stream.handle)


# ---- weights


def check_refit(bench: Bench) -> None:
    engine = bench.engine(flags=["tf32", "refit"])
    execution = engine.execution()
    bench.right(execution.infer(bench.images(0, 5)), 0, 5)
    changed = {name: array for name, array in _load(bench.folder / "changed.npz").items() if name != "logits"}
    assert changed.keys() <= set(engine.weight_names()), (changed.keys(), engine.weight_names())
    engine.refit(changed)
    bench.right(execution.infer(bench.images(0, 5)), 0, 5, "changed.npz")
    bench.right(engine.execution(graph=True).infer(bench.images(5, 5)), 5, 5, "changed.npz")
    with rejected("no weights 'nonsense'"):
        engine.refit({"nonsense": np.zeros(3, np.float32)})
    name = next(iter(changed))
    with rejected():
        engine.refit({**changed, name: np.zeros(3, np.float32)})
    with rejected("refit", "flags"):
        bench.engine().refit(changed)


def check_weights_are_streamed_where_the_version_can(bench: Bench) -> None:
    if "WEIGHT_STREAMING" not in bench.trt.BuilderFlag.__members__:
        with rejected("cannot stream weights", "10"):
            TensorRTEngine(bench.trt, bench.plan(), weight_budget_bytes=0)
        return
    with rejected("weight_streaming", "flags"):
        TensorRTEngine(bench.trt, bench.plan(), weight_budget_bytes=0)
    plan = bench.plan(flags=["tf32", "weight_streaming"])
    for budget in (0, 1 << 40):
        engine = TensorRTEngine(bench.trt, plan, weight_budget_bytes=budget)
        assert engine.loaded.engine.weight_streaming_budget_v2 <= engine.loaded.engine.streamable_weights_size
        bench.right(engine.infer(bench.images(0, 5)), 0, 5)


# ---- plans


def check_layer_times(bench: Bench) -> None:
    engine = bench.engine()
    rows = engine.layer_times(bench.images(0, 8), runs=4)
    names = [name for name, _ in rows]
    assert rows and len(rows) % 4 == 0 and names == names[: len(rows) // 4] * 4
    assert sum(ms for _, ms in rows) > 0 and min(ms for _, ms in rows) >= 0
    bench.right(engine.infer(bench.images(0, 3)), 0, 3)


def check_damaged_and_foreign_plans(bench: Bench) -> None:
    plan = bench.plan()
    for data in (plan.data[: len(plan.data) // 2], plan.data[:7], b"garbage" * 100, b""):
        with rejected("rejects the plan"):
            TensorRTEngine(bench.trt, dataclasses.replace(plan, data=data))
    with rejected("sm75"):
        TensorRTEngine(bench.trt, dataclasses.replace(plan, targets=("sm75",)))


def check_plans_for_other_devices(bench: Bench) -> None:
    plan = bench.plan(hardware_compatibility="ampere_plus")
    assert plan.targets == ("sm80+",)
    bench.right(TensorRTEngine(bench.trt, plan).infer(bench.images(0, 3)), 0, 3)


def check_plans_for_other_versions(bench: Bench) -> None:
    plan = bench.plan(flags=["tf32", "version_compatible"])
    bench.right(TensorRTEngine(bench.trt, plan).infer(bench.images(0, 3)), 0, 3)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def main() -> None:
    """Run all checks; one JSON line each, `null` where it passed."""
    import os

    import tensorrt as trt

    bench = Bench(trt, Path(sys.argv[2]))
    for name, check in CHECKS.items():
        try:
            check(bench)
            print(json.dumps({name: None}), flush=True)
        except BaseException:
            print(json.dumps({name: traceback.format_exc()[-1500:]}), flush=True)
    sys.stdout.flush()
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


if __name__ == "__main__":
    main()
