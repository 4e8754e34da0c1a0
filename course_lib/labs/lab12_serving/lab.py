"""Lab 12, serving: an engine server that survives bad disks, upgrades and bad requests, and Triton's configuration for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from course_lib.errors import EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent
from course_lib.labs.framework.submission_files import missing, read_text
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab12_serving.judge import triton
from course_lib.labs.lab12_serving.judge.findings import Finding, finding
from course_lib.labs.lab12_serving.judge.load_test import play, recipe
from course_lib.labs.lab12_serving.judge.speed import beside, measured
from course_lib.labs.lab12_serving.network import Scorer
from course_lib.labs.lab12_serving.sandboxed.scenes import CACHE_SCENES, REQUEST_SCENES

SERVER_FILES = ("store.py", "server.py")
MOST_LOST = {"cache": 3, "requests": 1}  # scenes that may be lost for half of the points, if no answer is wrong
_NEVER_RIGHT = (
    "Start your server in the notebook with trial.start() and send it requests, first one, then several at a time: "
    "the same error appears there."
)
MOST_HALF = 2  # mistakes in a configuration that still earn half of the points, if Triton serves the scorer
MOST_SHOWN = 3  # of the mistakes in a configuration
MOST_AGAIN = 2  # scenes that are played once more because something came too late: a machine that stalls does so in few


class Serving(Lab):
    """The submission is `store.py`, `server.py` and `config.pbtxt`."""

    name = "lab12_serving"
    title = "Lab 12: serving"
    sandbox: ClassVar = {"user_namespaces": True, "descriptors": 4096}  # each server gets namespaces of its own
    artifacts: ClassVar = {"store.py": 64 << 10, "server.py": 64 << 10, "config.pbtxt": 64 << 10}
    tasks = (
        Task("cache", "A cache that survives faults", 3),
        Task("requests", "Correct answers or errors", 2),
        Task("throughput", "Requests that share a run", 2),
        Task("triton", "The same service in Triton", 3),
    )
    timed_tasks = ("throughput",)

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """One file per plan that starts with a digest, and one thread that batches."""
        from course_lib.labs.lab12_serving.reference import files

        files.write(folder)

    def write_given(self, folder: str | Path = ".") -> None:
        """Write the files from which the notebook starts: the scorer and its recipe."""
        Path(folder, "scorer.onnx").write_bytes(Scorer(seed=8, hidden=256).onnx())
        recipe().save(Path(folder, "recipe.toml"))

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Play the scenes, measure the times, read the configuration. Failures of the server do not affect Triton's part."""
        wanted = [task.id for task in self.tasks if only in (None, task.id)]
        outcomes: list[Outcome] = []
        figures: dict[str, float] = {}
        served = [task for task in wanted if task != "triton"]
        if served:
            outcomes += self._serve(folder, examiner, served, figures)
        if "triton" in wanted:
            examiner.begins("triton: your configuration against NVIDIA's schema", 3)
            outcomes.append(self._triton(folder / "config.pbtxt", examiner))
        return Examination(tuple(outcomes), figures=figures)

    def findings(self, folder: str | Path = ".", *, task: str = "cache") -> list[Finding]:
        """The findings of a task's scenes, for a figure in the notebook.

        Raises:
            EngineError: the files cannot be read, or the server's process took too long.
        """
        scenes = CACHE_SCENES if task == "cache" else REQUEST_SCENES
        return self._findings(
            {name: read_text(Path(folder, name), self.artifacts[name]) for name in SERVER_FILES}, list(scenes), Examiner()
        )

    def _serve(self, folder: Path, examiner: Examiner, tasks: list[str], figures: dict[str, float]) -> list[Outcome]:
        try:
            yours = {name: read_text(folder / name, self.artifacts[name]) for name in SERVER_FILES}
        except EngineError as error:
            return list(self.zero_outcomes(error, "The cells of tasks 1 and 2 write these files: run them first.", tasks))
        outcomes: list[Outcome] = []
        try:
            scenes = {"cache": CACHE_SCENES, "requests": REQUEST_SCENES}
            played = [name for task in tasks if task in scenes for name in scenes[task]]
            if played:
                examiner.begins(f"{' and '.join(t for t in tasks if t in scenes)}: {len(played)} scenes with your server", 20)
            found = self._findings(yours, played, examiner) if played else []
            for task in [task for task in tasks if task in scenes]:
                outcomes.append(self._behavior(task, [one for one in found if one.scene in scenes[task]]))
        except EngineError as error:
            hint = _NEVER_RIGHT
            outcomes += self.zero_outcomes(f"the server: {error}", hint, [task for task in tasks if task != "throughput"])
        if "throughput" in tasks:
            outcomes.append(self._throughput(yours, examiner, figures))
        return outcomes

    def _findings(self, yours: dict[str, str], names: Sequence[str], examiner: Examiner) -> list[Finding]:
        """The findings of the scenes. Up to a few late scenes are played again, because the machine may have stalled.

        Scenes that are late again are played with the reference, where there is one. If it is late too, nothing is decided.
        """
        found = self._played(yours, names, examiner)
        late = [one.scene for one in found if one.late]
        if not 0 < len(late) <= MOST_AGAIN:
            return found
        again = {one.scene: one for one in self._played(yours, late, examiner)}
        late = [name for name, one in again.items() if one.late]
        from course_lib.labs.lab12_serving.reference import files

        if late and not absent(files):
            stalled = [one.scene for one in self._played(files.sources(), late, examiner) if one.late]
            again |= {name: replace(again[name], busy=True) for name in stalled}
        return [again.get(one.scene, one) for one in found]

    def _played(self, yours: dict[str, str], names: Sequence[str], examiner: Examiner) -> list[Finding]:
        scenes, truth = play(yours, names, examiner)
        found = [finding(scene, truth.wrong(scene)) for scene in scenes]
        if [one.scene for one in found] != list(names):
            raise EngineError("the process that runs the server left out a part of its report")
        return found

    def _behavior(self, task: str, found: Sequence[Finding]) -> Outcome:
        lost = sorted((one for one in found if not one.survived), key=lambda one: (not one.wrong, one.busy))
        full, half = (_survival(found, most, needed_for) for most, needed_for in ((0, ALL), (MOST_LOST[task], HALF)))
        context = hint = ""
        if lost:
            context = f"{len(found) - len(lost)} of {len(found)} survived. {lost[0]}.{_also_lost(lost[1:])}"
            hint = lost[0].hint
            if lost[0].empty:
                hint = "A part of your files is still empty: solve task 1 first."
            elif len(lost) == len(found):  # the faults of the scenes are not the cause
                hint = _NEVER_RIGHT
        return self.judged(task, full, half, hint, context=context)

    def _throughput(self, yours: dict[str, str], examiner: Examiner, figures: dict[str, float]) -> Outcome:
        from course_lib.labs.lab12_serving.reference import files

        without = absent(files)  # they hold both servers that yours is compared with
        others = "" if without else ", the reference's and the given one, in turn"
        examiner.begins(f"throughput: your server{others}", examiner.measure_s)
        try:
            found = beside({"yours": yours}, examiner) if without else measured(yours, examiner)
        except EngineError as error:
            hint = "Throughput is not graded for a server that does not answer. Solve tasks 1 and 2 first."
            return self.outcome("throughput", "none", error, hint)
        if found.wrong:
            hint = "Each answer must reach its own request. Which rows of a run belong to which request?"
            return self.outcome("throughput", "none", f"{found.wrong} answers under load were wrong.", hint)
        if without:
            return self.so_far("throughput", (), "", context=found.alone())
        figures |= found.figures()
        full, half = found.criteria(), found.criteria(HALF)
        return self.judged("throughput", full, half, _hint_for_throughput(full), context=str(found.own_noise))

    def _triton(self, file: Path, examiner: Examiner) -> Outcome:
        if not file.is_file():
            return self.outcome(
                "triton", "none", missing(file.name), "The cell of task 4 writes the file: run it, then check again."
            )
        try:
            found = triton.mistakes(triton.read(file.read_bytes(), examiner.launcher))
        except EngineError as error:
            return self.outcome(
                "triton",
                "none",
                str(error),
                "Line and column are at the start of the message. A list is [ ... ], a message is { ... }.",
            )
        if not found:
            return self.outcome(
                "triton", "full", "Triton would load the scorer, batch its requests, and keep two versions loaded."
            )
        shown, more = found[:MOST_SHOWN], len(found) - MOST_SHOWN
        message = "".join(f"{mistake.message}. " for mistake in shown) + (f"And {more} more." if more > 0 else "")
        hint = " ".join(dict.fromkeys(mistake.hint for mistake in shown))
        tier = "none" if found[0].grave or len(found) > MOST_HALF else "partial"
        return self.outcome("triton", tier, message.rstrip(), hint, share=0.5)


def _also_lost(others: Sequence[Finding]) -> str:
    """A sentence: the scenes by what went wrong."""
    by_reason: dict[str, list[str]] = {}
    for one in others:
        by_reason.setdefault(one.said, []).append(one.scene)
    described = "; ".join(", ".join(names) + f": {said}" for said, names in by_reason.items())
    return f" Also lost: {described}." if described else ""


def _survival(found: Sequence[Finding], most_lost: int, needed_for: str) -> list[Criterion]:
    """Whether no more scenes were lost. Scenes in which the machine was too busy even for the reference do not count."""
    lost = sum(not one.survived for one in found)
    surely = sum(not one.survived and not one.busy for one in found)
    met = True if lost <= most_lost else False if surely > most_lost else None
    wrong = sum(one.wrong for one in found)
    return [
        Criterion(
            "cases survived", f"{len(found) - lost} of {len(found)}", f"at least {len(found) - most_lost}", met, needed_for
        ),
        Criterion("wrong answers", str(wrong), "0", not wrong, needed_for),
    ]


def _hint_for_throughput(criteria: Sequence[Criterion]) -> str:
    """A hint for the first missed requirement: first the rates, then the waiting times."""
    missed = next((one.name for one in criteria if one.met is False), "")
    if "latency" in missed:
        return "Batching must not delay a request that arrives alone. How long does your server wait, and why?"
    return "Eight rows in one run take little longer than one row. What do 15 requests do while the engine works on one?"


lab = Serving()
