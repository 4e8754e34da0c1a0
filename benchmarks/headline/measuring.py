"""One network at one batch size: all candidates ready, their answers compared, their times interleaved."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.headline.building import Site, result_of
from benchmarks.headline.cases import BASELINE, Candidate, Network, candidates, rivals
from benchmarks.headline.holder import CandidateFailed, Holder, Subject, open_holder
from benchmarks.headline.material import frames, inputs_file
from course_lib.benchmark import Comparison, compare
from course_lib.engines import split_target
from course_lib.errors import CourseError, EngineError, WorkerDied
from course_lib.labs.lab15_capstone.given import Settings, detections
from course_lib.models.digit_boxes import matched

_FRAMES = 64  # that the detector's accuracy is taken on


def available(site: Site, network: Network, batch: int) -> list[Candidate]:
    """The candidates that can have a row: what needed building was built, or is known to fail."""
    found = candidates(network, site.target, gpu=site.gpu, compiled=batch in site.compiled)
    return [c for c in found if not c.needs_building or result_of(site, network, c)]


class Case:
    """A network's candidates in their processes, at one batch size after another. A context manager: leaving it ends them."""

    def __init__(self, site: Site, network: Network) -> None:
        self.site, self.network = site, network
        self._environment = split_target(site.target)[1]
        self._holders: dict[str, Holder] = {}
        self._held: set[str] = set()
        images = len(np.load(inputs_file(network, site.folder), mmap_mode="r"))
        self._truth = frames(min(images, _FRAMES)) if network.frames else []

    def __enter__(self) -> Case:
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self._holders.values():
            holder.close()

    def rows(self, batch: int, seconds: float) -> list[dict[str, Any]]:
        """A row for each candidate; one that fails has ``failed``, one line, instead of figures.

        Args:
            seconds: longest measuring.
        """
        found = available(self.site, self.network, batch)
        checked, failed = self._prepare(found, batch)
        measured = self._measured([c for c in found if c.name in checked], batch, seconds, failed)
        return [self._row(c, batch, checked.get(c.name, {}), failed.get(c.name, ""), measured) for c in found]

    def _measured(self, ready: list[Candidate], batch: int, seconds: float, failed: dict[str, str]) -> Comparison | None:
        """All that are ready, interleaved. One that fails meanwhile goes to `failed`, and the others begin anew."""
        numbers = itertools.count()
        while any(c.name == BASELINE for c in ready):
            subjects = {c.name: Subject(self._holders[c.group], c, batch) for c in ready}
            try:
                return compare(subjects, lambda: {"index": np.array(next(numbers))}, baseline=BASELINE, time_limit_s=seconds)
            except CandidateFailed as error:
                culprit = error.candidate
                gone = [c for c in ready if c == culprit or (error.died and c.group == culprit.group)]
                failed |= {c.name: f"while {culprit.name} was timed: {error}" for c in gone}
                ready = [c for c in ready if c not in gone]
                if error.died:
                    self._drop(culprit.group)
        failed |= {c.name: f"{BASELINE} failed" for c in ready}
        return None

    def _prepare(self, found: list[Candidate], batch: int) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Load, run and check each; what was seen by name, and what failed by name."""
        checked: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for candidate in found:
            with suppress(KeyError):
                failed[candidate.name] = result_of(self.site, self.network, candidate)["failed"]
        want: np.ndarray | None = None
        groups = list(dict.fromkeys(c.group for c in found))
        while groups:
            died = False
            for candidate in (c for c in found if c.group == groups[0] and c.name not in failed):
                try:
                    answer = self._answer(candidate, batch, 0)
                    want = answer if candidate.name == BASELINE else want
                    checked[candidate.name] = self._seen(candidate, batch, answer, want)
                except WorkerDied as error:  # the others of its process begin anew without it
                    failed[candidate.name], died = str(error), True
                    self._drop(candidate.group)
                    break
                except CourseError as error:
                    failed[candidate.name] = str(error)
            groups = groups if died else groups[1:]
        return {name: seen for name, seen in checked.items() if name not in failed}, failed

    def _answer(self, candidate: Candidate, batch: int, index: int) -> np.ndarray:
        if candidate.group not in self._holders:
            pool = inputs_file(self.network, self.site.folder)
            self._holders[candidate.group] = open_holder(candidate.group, self._environment, pool, plugin=self.site.plugin)
        holder = self._holders[candidate.group]
        if candidate.name not in self._held:
            holder.hold(self.network, candidate, self.site.folder)
            self._held.add(candidate.name)
        return holder.answer(candidate, batch, index)

    def _seen(self, candidate: Candidate, batch: int, answer: np.ndarray, want: np.ndarray | None) -> dict[str, Any]:
        if not np.isfinite(answer).all():
            raise EngineError("the answer has values that are not finite")
        seen: dict[str, Any] = {}
        if want is not None and candidate.name != BASELINE:
            seen["relative_error"] = float(np.linalg.norm(answer - want) / np.linalg.norm(want))
        if self.network.frames:
            answers = np.concatenate([self._answer(candidate, batch, index) for index in range(len(self._truth) // batch)])
            seen["mean_ap"] = matched(detections(answers, Settings(), scale=1.0), self._truth).quality().mean_ap
        self._holders[candidate.group].time(candidate, batch, 0)  # a first timing captures graphs
        return seen

    def _row(
        self, candidate: Candidate, batch: int, seen: dict[str, Any], failed: str, measured: Comparison | None
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "network": self.network.title,
            "batch": batch,
            "candidate": candidate.name,
            "dtype": candidate.dtype,
        }
        built = {key: value for key, value in result_of(self.site, self.network, candidate).items() if key != "failed"}
        if by_batch := built.pop("build_s_by_batch", None):
            built["build_s"] = by_batch[str(batch)]
        if failed or measured is None:
            return {**row, **built, "failed": " ".join(failed.split())[:600]}
        found = available(self.site, self.network, batch)
        compared = [name for name in rivals(candidate, found) if name in measured.measurements]
        intervals = {name: measured.ratio(name, candidate.name, seed=0) for name in compared}
        return {
            **row,
            "ms": measured.measurements[candidate.name].median_ms,
            "rounds": len(measured.measurements[candidate.name].latencies_ms),
            "same_dtype": candidate.same,
            "speedup": {name: {"median": s.median, "low": s.low, "high": s.high} for name, s in intervals.items()},
            **seen,
            **built,
        }

    def _drop(self, group: str) -> None:
        holder = self._holders.pop(group, None)
        if holder is not None:
            holder.close()
        self._held -= {c.name for c in candidates(self.network, self.site.target, gpu=self.site.gpu) if c.group == group}


def is_done(rows: list[dict[str, Any]], site: Site, network: Network, batch: int) -> bool:
    """Whether every candidate that can have a row has one."""
    there = {row["candidate"] for row in rows if (row["network"], row["batch"]) == (network.title, batch)}
    return there >= {candidate.name for candidate in available(site, network, batch)}


def folder_is_ready(site: Site, network: Network) -> bool:
    return inputs_file(network, site.folder).exists()


def line(row: dict[str, Any]) -> str:
    """One row for the terminal."""
    begin = f"{row['network']:10} batch {row['batch']:2} {row['candidate']:32}"
    if "failed" in row:
        return f"{begin} failed: {row['failed']}"
    over = {name: f"{s['median']:.2f}x [{s['low']:.2f}-{s['high']:.2f}]" for name, s in row["speedup"].items()}
    parts = [f"{row['ms']:8.3f} ms"] + [f"{over[name]} over {name}" for name in (BASELINE, row["same_dtype"]) if name in over]
    parts += [f"error {row['relative_error']:.1e}"] if "relative_error" in row else []
    parts += [f"mean AP {row['mean_ap']:.3f}"] if "mean_ap" in row else []
    return f"{begin} {', '.join(dict.fromkeys(parts))}"
