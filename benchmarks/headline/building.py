"""Everything that takes long is done before the measuring starts: exports, engines, and torch's compiler, several at a time.

Each piece of work leaves a small JSON file that says what came of it, so that a second run does only what is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.headline.cases import PLUGIN, Candidate, Network, candidates
from benchmarks.headline.holder import open_holder
from benchmarks.headline.material import calibration_file, inputs_file, made, onnx_file
from course_lib import engines
from course_lib._util.files import write_atomically
from course_lib.engines import split_target
from course_lib.errors import CourseError
from course_lib.recipe import Profile, Recipe

_TRT_BUILD = Path(__file__).with_name("trt_build.py")
_SCRIPT = Path(__file__).resolve().parents[1] / "networks.py"
_WORKSPACE_MIB = 4096
FIRST = "int8"  # it times nearly all tactics that the others have, and leaves them its timings if a cache is on


@dataclass(frozen=True)
class Way:
    """One way to tell TensorRT a precision: the kind of ONNX file, the recipe's precision and flags, whether TensorRT calibrates."""

    file: str = ""
    precision: str = "fp32"
    flags: tuple[str, ...] = ("tf32",)
    calibrate: bool = False


WAYS = {
    "fp32": Way(),
    "fp16 demanded of products and convolutions": Way(precision="fp16"),
    "fp16 permitted": Way(flags=("tf32", "fp16")),
    "attention plugin in a graph of FP16": Way(".fp16-attention", flags=("tf32", "fp16")),
    "attention plugin, FP16 permitted": Way(".attention", flags=("tf32", "fp16")),
    "calibrator": Way(precision="int8", flags=("tf32", "fp16"), calibrate=True),
    "qdq": Way(".qdq", "int8", ("tf32", "fp16")),
    "qdq per tensor": Way(".qdq-per-tensor", "int8", ("tf32", "fp16")),
}
_ONNXRUNTIME = {"fp32": "", "fp16": ".fp16"}  # it runs what the graph says


@dataclass(frozen=True)
class Site:
    """Where and for whom is built.

    Attributes:
        folder: takes all files.
        target: of the engines, such as ``tensorrt@trt8``.
        profiles: batch sizes; an engine has one optimization profile for each, of exactly that size.
        compiled: batch sizes that torch compiles for.
        gpu: whether there is one.
        small: a CPU's small versions of the networks.
        plugin: library of the course's attention plugin, compiled for the target; None leaves its engines out.
        pieces: beginnings of the names of what is built, such as ``"compile"`` or ``"tensorrt.fp16"``; empty for all.
    """

    folder: Path
    target: str
    profiles: tuple[int, ...]
    compiled: tuple[int, ...]
    gpu: bool
    small: bool = False
    plugin: Path | None = None
    pieces: tuple[str, ...] = ()


def build_all(
    site: Site, networks: list[Network], *, jobs: int, deadline: float, first: str = FIRST
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Do what is missing, of each network TensorRT's engine of type `first` first; yields each piece's name and result as it ends.

    What was not started or not finished at the deadline, a time on ``time.monotonic()``, is left for the next run.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(site.folder / "inductor"))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    with ThreadPoolExecutor(jobs) as pool:
        prepared = {pool.submit(_prepare, site, network, deadline): network for network in networks}
        waiting: list[Future[Any]] = []
        for done in as_completed(prepared):
            name, result = done.result()
            yield name, result
            if "seconds" not in result:
                continue
            waiting += [
                pool.submit(_kept, site, name, work, deadline) for name, work in _pieces(site, prepared[done], deadline, first)
            ]
        for done in as_completed(waiting):
            yield done.result()


def result_of(site: Site, network: Network, candidate: Candidate) -> dict[str, Any]:
    """What came of the piece of work behind a candidate; empty where it needs none, or nothing is known."""
    if not candidate.needs_building:
        return {}
    piece = candidate.plan or f"compile-{candidate.dtype}"
    path = site.folder / f"{network.name}.{piece}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _pieces(site: Site, network: Network, deadline: float, first: str) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    found = candidates(network, site.target, gpu=site.gpu)
    plans = []
    named = sorted(
        {c.plan for c in found if c.plan and (site.plugin or not c.plan.endswith(PLUGIN))}, reverse=True
    )  # TensorRT's before onnxruntime's: they take longer
    for one in sorted(named, key=lambda plan: plan != f"tensorrt.{first}"):
        backend, _, dtype = one.partition(".")
        make = _tensorrt if backend == "tensorrt" else _onnxruntime
        plans.append((f"{network.name}.{one}", lambda make=make, dtype=dtype: make(site, network, dtype, deadline)))
    compiled = [
        (f"{network.name}.compile-{c.dtype}", lambda c=c: _compile(site, network, c, deadline))
        for c in found
        if c.variant == "compile"
    ]
    for name, work in (*plans[:1], *compiled, *plans[1:]):
        if not site.pieces or name.removeprefix(f"{network.name}.").startswith(site.pieces):
            yield name, work


def _kept(site: Site, name: str, work: Callable[[], dict[str, Any]], deadline: float) -> tuple[str, dict[str, Any]]:
    path = site.folder / f"{name}.json"
    if path.exists():
        return name, {**json.loads(path.read_text()), "kept": True}
    if time.monotonic() > deadline:
        return name, {"left": "no time"}
    try:
        found = work()
    except (TimeoutError, CourseError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() > deadline:
            return name, {"left": "not finished in time"}
        found = {"failed": str(error)}
    write_atomically(path, json.dumps(found).encode())
    return name, found


def _prepare(site: Site, network: Network, deadline: float) -> tuple[str, dict[str, Any]]:
    """Exports in their own process: torch's exporter holds Python's lock and keeps global state."""
    command = [sys.executable, str(_SCRIPT), "prepare", "--networks", network.name, "--folder", str(site.folder)]
    started = time.monotonic()
    if inputs_file(network, site.folder).exists():
        return f"{network.name}.prepare", {"seconds": 0.0}
    try:
        _finished([*command, *(["--small"] if site.small else [])], deadline)
    except TimeoutError:
        return f"{network.name}.prepare", {"left": "not finished in time"}
    except CourseError as error:
        return f"{network.name}.prepare", {"failed": str(error)}
    return f"{network.name}.prepare", {"seconds": round(time.monotonic() - started, 1)}


def _tensorrt(site: Site, network: Network, dtype: str, deadline: float) -> dict[str, Any]:
    """The ways to this precision in turn, until one builds."""
    ways = {
        "fp32": ("fp32",),
        "fp16": tuple(w for w in WAYS if w.startswith("fp16")),
        PLUGIN: tuple(w for w in WAYS if w.startswith("attention")),
        "int8": network.int8,
    }[dtype]
    failed: list[str] = []
    for way in ways:
        try:
            found = _attempt(site, network, dtype, WAYS[way], deadline)
        except CourseError as error:  # a crash of the builder ends this way, not the others
            found = {"failed": str(error)}
        if "failed" not in found:
            return {**found, "way": way, **({"refused": failed} if failed else {})}
        failed.append(f"{way}: {found['failed']}")
    return {"failed": "; ".join(failed)}


def _attempt(site: Site, network: Network, dtype: str, way: Way, deadline: float) -> dict[str, Any]:
    folder = site.folder
    recipe = _recipe(site, network).wire() | {
        "precision": way.precision,
        "flags": list(way.flags),
        "workspace_mib": _WORKSPACE_MIB,
    }
    calibration = {"data": str(calibration_file(network, folder)), "batch": 8, "kind": "entropy"}
    request = {
        "model": str(made(network, folder, way.file)),
        "plan": str(folder / f"{network.name}.tensorrt.{dtype}.plan"),
        "recipe": recipe,
        "plugins": [str(site.plugin)] if "attention" in way.file else [],
        "calibration": {**calibration, "cache": str(folder / f"{network.name}.cache")} if way.calibrate else None,
    }
    file = folder / f"{network.name}.tensorrt.{dtype}.request.json"
    file.write_text(json.dumps(request))
    said = _finished(
        [*split_target(site.target)[1].command, str(_TRT_BUILD), str(file)], deadline, PYTHONPATH="", CUDA_MODULE_LOADING="LAZY"
    )
    return dict(json.loads(said.strip().splitlines()[-1]))


def _onnxruntime(site: Site, network: Network, dtype: str, deadline: float) -> dict[str, Any]:
    model = made(network, site.folder, ".qdq" if dtype == "int8" else _ONNXRUNTIME[dtype])
    plan = engines.build(model, _recipe(site, network), backend="onnxruntime", time_limit_s=max(deadline - time.monotonic(), 1))
    plan.save(site.folder / f"{network.name}.onnxruntime.{dtype}.plan")
    return {"build_s": round(plan.build_seconds, 2), "plan_mb": round(len(plan.data) / 1e6, 1), "notes": list(plan.notes)}


def _compile(site: Site, network: Network, candidate: Candidate, deadline: float) -> dict[str, Any]:
    """Fill the compiler's cache on disk. What a first call took is what a user waits, the loading of the network left out."""
    seconds = {}
    limit = min(240.0, max(deadline - time.monotonic(), 1.0))
    with open_holder(candidate.group, split_target(site.target)[1], inputs_file(network, site.folder), limit) as holder:
        holder.hold(network, candidate, site.folder)
        for batch in site.compiled:
            started = time.monotonic()
            holder.answer(candidate, batch, 0)
            seconds[batch] = round(time.monotonic() - started, 1)
    return {"build_s": sum(seconds.values()), "build_s_by_batch": seconds}


def _recipe(site: Site, network: Network) -> Recipe:
    import onnx

    value = onnx.load(onnx_file(network, site.folder), load_external_data=False).graph.input[0]
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)[1:]
    exact = [dict.fromkeys(("min", "opt", "max"), (batch, *shape)) for batch in site.profiles]
    return Recipe(profiles=tuple(Profile({value.name: sizes}) for sizes in exact))


def _finished(command: list[str], deadline: float, **variables: str) -> str:
    """What a process printed, which was started with these variables in its environment.

    Raises:
        TimeoutError: it did not finish before the deadline.
        CourseError: it failed; with its last words.
    """
    limit = max(deadline - time.monotonic(), 1)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env={**os.environ, **variables}
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if done.returncode or not done.stdout.strip():
        words = (done.stderr.strip() or "it said nothing").splitlines()[-1][:300]
        raise CourseError(f"{Path(command[1]).name} ended with {done.returncode}: {words}")
    return done.stdout
