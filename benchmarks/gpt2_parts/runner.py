"""The parent's end of `child`: one process for each group of candidates, and what is compared of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.gpt2_parts.cases import Candidate, Case
from course_lib.engines import Worker
from course_lib.engines.worker.environment import Environment
from course_lib.errors import CourseError, EngineError, WorkerDied

_CHILD = str(Path(__file__).with_name("child.py"))
LIMIT = 0.02  # largest relative error of an answer against FP32; a row above it is rejected
_COMPILING_S = 300.0  # longest wait for one answer


class Runner(Worker):
    """Candidates of one group, case after case. Deadlines, crashes and errors are a `Worker`'s."""

    def __init__(self, environment: Environment, plugin: Path | None = None) -> None:
        super().__init__(environment, launcher=lambda _: [*environment.command, _CHILD], timeout_s=_COMPILING_S)
        self._ask({"do": "open", "plugin": str(plugin or "")})

    def begin(self, case: Case) -> None:
        """Forget the last case's candidates."""
        self._ask({"do": "begin", "case": case.wire()})

    def hold(self, candidate: Candidate, file: Path | None) -> None:
        """Load a candidate; `file` is its ONNX file or plan."""
        known = asdict(candidate)
        self._ask({"do": "load", **known, "file": str(file or "")})

    def answer(self, candidate: Candidate, index: int, ahead: int = 0) -> dict[str, np.ndarray]:
        """See `child.Subject.answer`."""
        return self._ask({"do": "infer", "name": candidate.name, "index": index, "ahead": ahead})[1]

    def answers(self, candidate: Candidate, case: Case) -> list[dict[str, np.ndarray]]:
        """The answer to the first input, and where a step writes in place, also that of the step after it."""
        steps = 2 if case.is_step and candidate.in_place else 1
        return [self.answer(candidate, index=step, ahead=step) for step in range(steps)]

    def time(self, candidate: Candidate, index: int) -> float:
        """Milliseconds of one call."""
        header, _ = self._ask({"do": "time", "name": candidate.name, "index": index})
        return self._read(lambda: float(header["ms"]))


class CandidateFailed(CourseError):
    """A candidate failed while it was timed; `died` tells whether its process ended with it."""

    def __init__(self, candidate: Candidate, error: CourseError) -> None:
        super().__init__(f"while it was timed: {error}")
        self.candidate, self.died = candidate, isinstance(error, WorkerDied)


@dataclass(frozen=True)
class Timed:
    """A candidate for `course_lib.benchmark.compare`, whose "feeds" are the number of an input."""

    runner: Runner
    candidate: Candidate

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        try:
            return self.runner.time(self.candidate, int(feeds["index"]))
        except CourseError as error:
            raise CandidateFailed(self.candidate, error) from None


def largest_errors(answers: Sequence[Mapping[str, np.ndarray]], want: Sequence[Mapping[str, np.ndarray]]) -> dict[str, float]:
    """The largest of each of the `errors` of the answers that there are; the reference may have more."""
    found = [errors(answer, wanted) for answer, wanted in zip(answers, want, strict=False)]
    return {name: max(one[name] for one in found) for name in found[0]}


def errors(answer: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Relative errors of the logits, and of the last block's new keys and values in the cache.

    Raises:
        EngineError: an output is missing, has another shape or is not finite, or an error is above `LIMIT`.
    """
    found = {}
    for name, wanted in want.items():
        if name not in answer or answer[name].shape != wanted.shape:
            seen = answer[name].shape if name in answer else "none"
            raise EngineError(f"the answer's {name} should have shape {wanted.shape}, found {seen}")
        if not np.isfinite(answer[name]).all():
            raise EngineError(f"the answer's {name} has values that are not finite")
        found[name] = float(np.linalg.norm(answer[name] - wanted) / np.linalg.norm(wanted))
    if max(found.values()) > LIMIT:
        raise EngineError(
            f"relative errors {', '.join(f'{name} {error:.1e}' for name, error in found.items())} are above {LIMIT}"
        )
    return found
