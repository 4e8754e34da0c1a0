"""The parent's end of `child`: a worker that holds several candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.headline.cases import Candidate, Network
from course_lib.engines import ModelSource, Worker
from course_lib.engines.worker.environment import HERE, Environment
from course_lib.errors import CourseError, WorkerDied

_CHILD = str(Path(__file__).with_name("child.py"))


class Holder(Worker):
    """Candidates of one network in one process. Deadlines, crashes and errors are a `Worker`'s.

    Args:
        inputs: file of the pool that the child cuts its inputs from.
        tf32: see `child.Held`.
        timeout_s: longest wait for one answer; compiling a network is one answer.
        plugin: see `child.Held`.
    """

    def __init__(
        self,
        environment: Environment,
        inputs: Path,
        *,
        tf32: bool = False,
        timeout_s: float = 240.0,
        plugin: Path | None = None,
    ) -> None:
        super().__init__(environment, launcher=lambda _: [*environment.command, _CHILD], timeout_s=timeout_s)
        self._ask({"do": "open", "inputs": str(inputs), "tf32": tf32, "plugin": str(plugin or "")})

    def hold(self, network: Network, candidate: Candidate, folder: Path) -> None:
        """Load a candidate; a plan's file lies in `folder`."""
        if candidate.plan:
            plan = str(folder / f"{network.name}.{candidate.plan}.plan")
            self._ask({"do": "load", "name": candidate.name, "plan": plan, "graph": candidate.variant == "cuda_graph"})
            return
        half = candidate.dtype == "fp16"
        arguments = (half and not network.attention, network.factory, *network.arguments)
        dtype = "fp16" if half else "fp32"
        source = ModelSource("benchmarks.headline.torch_networks:network", arguments, dtype, candidate.variant)
        self._ask({"do": "load", "name": candidate.name, "source": asdict(source)})

    def answer(self, candidate: Candidate, batch: int, index: int) -> np.ndarray:
        """The network's output for one input of the pool. (Every network of the table has one output.)"""
        _, arrays = self._ask({"do": "infer", "name": candidate.name, "batch": batch, "index": index})
        return self._read(lambda: next(iter(arrays.values())))

    def time(self, candidate: Candidate, batch: int, index: int) -> float:
        """Milliseconds of one call on one input of the pool."""
        header, _ = self._ask({"do": "time", "name": candidate.name, "batch": batch, "index": index})
        return self._read(lambda: float(header["ms"]))


class CandidateFailed(CourseError):
    """A candidate failed while it was timed; `died` tells whether its process ended with it."""

    def __init__(self, candidate: Candidate, error: CourseError) -> None:
        super().__init__(str(error))
        self.candidate, self.died = candidate, isinstance(error, WorkerDied)


@dataclass(frozen=True)
class Subject:
    """A candidate at a batch size, for `course_lib.benchmark.compare`: its "feeds" are the number of an input in the pool."""

    holder: Holder
    candidate: Candidate
    batch: int

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Raises `CandidateFailed`, so that the measuring can go on without the culprit."""
        try:
            return self.holder.time(self.candidate, self.batch, int(feeds["index"]))
        except CourseError as error:
            raise CandidateFailed(self.candidate, error) from None


def open_holder(
    group: str, target_environment: Environment, inputs: Path, timeout_s: float = 240.0, plugin: Path | None = None
) -> Holder:
    """The process of a group of candidates: TensorRT's in the target's interpreter, the others in this one."""
    engines = group == "tensorrt"
    environment = target_environment if engines else HERE
    return Holder(environment, inputs, tf32=group == "torch tf32", timeout_s=timeout_s, plugin=plugin if engines else None)
