"""What is looked at in each task of lab 04: the nodes that break, the answers of the rounded graph, and the engine's kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.benchmark import speedup
from course_lib.engines import ModelSource, Plan
from course_lib.errors import PROFILE, BuildError, CourseError, ExaminerFault
from course_lib.labs.framework.criteria import (
    ALL,
    HALF,
    NO_REFERENCE,
    Criterion,
    at_least,
    at_most,
    holds,
    open_without_reference,
    reaches_threshold,
)
from course_lib.labs.framework.examination import Examiner, ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.onnx_model import emulated
from course_lib.labs.framework.racing import compare_answering, decibels, fresh_images, logits
from course_lib.labs.framework.submission import model_and_recipe
from course_lib.labs.lab04_mixed_precision import given, reference
from course_lib.labs.lab04_mixed_precision.given import FILE, LARGEST, SMALLEST, Kernels, prove
from course_lib.recipe import Recipe

SOURCE = ModelSource("course_lib.labs.lab04_mixed_precision.network:loud_encoder")
ATTENTIONS = 4  # of the given network, one in each block
SERVICE = f"{given.BATCHES[0]} to {given.BATCHES[1]} digits of {given.ROWS[0]} to {given.ROWS[1]} rows"
# Error of the logits when one node alone computes in FP16. Measured: at least 0.5 % for the nodes that break, at most 0.03 %
# for all others, among them the three around the overflows that do no harm (at most 0.002 %).
BREAKS = 1e-3
# A limit on the magnitude alone makes 4 mistakes: three nodes that overflow and do no harm, and the norm whose variance vanishes.
MISJUDGED = 4
_GRAY = (
    1.25  # this close to the end of FP16, a tensor overflows for some digits only: naming it is right, and so is leaving it out
)
_FACTOR = 2.0  # how far a magnitude may be off: other digits move it by 20 %
_FOUND_ON = 64  # fresh digits
# SQNR of the logits against PyTorch's, in dB. Measured: the reference 66, other right answers 65 to 70, BF16 48, a norm's squares
# forgotten 34 in block 1, 14 in block 2 and 0 in the last norm, the shipped encoder 24, a tenth of the weights pruned 25, overflow
# clamped to 65 504 16.
SQNR_DB = {HALF: 30.0, ALL: 60.0}
_BATCHES, _ROWS, _DRAWN = (1, 3, 8, 32), (16, 32, 48), 8  # requests: all combinations, and some that cannot be known in advance
# Kernels in FP32 more than the reference has; and attention kernels that may be split. Measured: the reference has 5 of 39; scores kept in
# FP32 7 and one attention split, whole norms kept 12, two whole blocks kept 33, everything FP32 but the attentions 31, FP32 with casts
# to FP16 and back between its layers 40 to 56.
SPARE, SPLIT = {HALF: 10, ALL: 2}, {HALF: 1, ALL: 0}
OF_REFERENCE = 0.85  # where FP16 gains nothing on small tensors, being as fast as the reference is enough


@dataclass(frozen=True)
class Judged:
    """What is wrong with some findings.

    Attributes:
        missing: modules of the network that fail although the findings name none of their failing nodes.
        vanished: those of `missing` whose numbers are too small for FP16 rather than too large.
        innocent: named nodes that do not fail alone.
        harmless: those of `innocent` whose values exceed FP16 nevertheless.
        misread: nodes that are named correctly but with a wrong magnitude.
        faults: number of modules that fail.
    """

    missing: tuple[str, ...]
    vanished: tuple[str, ...]
    innocent: tuple[str, ...]
    harmless: tuple[str, ...]
    misread: tuple[str, ...]
    faults: int


@dataclass(frozen=True)
class Answers:
    """The logits of a submission for all requests, compared with PyTorch's.

    Attributes:
        sqnr_db: of the number of pixel rows at which it is worst.
        where: that number, for a message.
        lost: requests with NaN or infinity, as (batch, rows).
        requests: number of all requests.
    """

    sqnr_db: float
    where: str
    lost: tuple[tuple[int, int], ...]
    requests: int

    @property
    def right(self) -> bool:
        """Whether the network computes the given function."""
        return not self.lost and self.sqnr_db >= SQNR_DB[HALF]


class MixedWork(Work):
    """A submission of lab 04."""

    @step
    def files(self) -> tuple[Path, Recipe]:
        """``model.onnx`` and ``recipe.toml``, whose one profile covers the service."""
        model, recipe = model_and_recipe(self.folder, "fp16")
        _check_profiles(recipe)
        return model, recipe

    @step
    def plan(self) -> Plan:
        """The plan whose layer table counts."""
        return prove(self.graph, self.files[1], self.examiner)

    @step
    def kernels(self) -> Kernels:
        """The counts of the submission's engine."""
        found = Kernels.of(self.plan.layers)
        self.figures |= {"fp16_share": found.share, "kernels_fp32": found.wide, "attention_fused": found.attention}
        return found

    @cached_property
    def wanted(self) -> Kernels | None:
        """The counts of the reference's engine: known for the usual builder, and built for another one. None in the learner's bundle."""
        if self.expected:
            return Kernels(**self.expected)
        return None if absent(reference) else reference_kernels(self.examiner.builder)

    @step
    def answers(self) -> Answers:
        """The outputs of the graph with every rounding that it specifies, so that the figures are the same on every machine."""
        self.examiner.begins("error: fresh digits through PyTorch and your rounded graph", 8)
        on_cpu = replace(self.examiner, runner="onnxruntime")
        rounded = emulated(self.graph.read_bytes(), launcher=self.examiner.launcher)
        truth = self.closing.enter_context(self.examiner.baseline(SOURCE))
        yours = self.closing.enter_context(on_cpu.engine(runnable(rounded, self.files[1], on_cpu)))
        found: dict[str, float] = {}
        lost: list[tuple[int, int]] = []
        sent = 0
        for where, requests in self.requests().items():
            want, have = ([logits(engine, tokens, [len(tokens)], "tokens") for tokens in requests] for engine in (truth, yours))
            sent += len(requests)
            lost += [each.shape[:2] for each, logit in zip(requests, have, strict=True) if not np.isfinite(logit).all()]
            found[where] = decibels(np.concatenate(want), np.concatenate(have))
        worst = min(found, key=lambda where: found[where])
        self.figures["sqnr_db"] = found[worst]
        return Answers(found[worst], worst, tuple(lost), sent)

    def requests(self) -> dict[str, list[np.ndarray]]:
        """Fresh digits, ``(batch, rows, 32)``, by the number of rows; and requests of drawn sizes."""
        rng, fresh = self.rng(), fresh_images(self.examiner, sum(_BATCHES))
        made = {f"{rows} rows": np.split(fresh.tokens(rows), np.cumsum(_BATCHES)[:-1]) for rows in _ROWS}
        drawn = rng.integers([given.BATCHES[0], given.ROWS[0]], [given.BATCHES[1] + 1, given.ROWS[1] + 1], (_DRAWN, 2))
        return made | {"other sizes": [fresh.tokens(int(rows))[:batch] for batch, rows in drawn]}


def _check_profiles(recipe: Recipe) -> None:
    """Whether the recipe has one profile, which holds every request of the service."""
    if len(recipe.profiles) != 1:
        raise BuildError(
            f"recipe.toml has {len(recipe.profiles)} profiles; this lab needs exactly one, because each profile has its own kernels",
            code=PROFILE,
        )
    shapes = recipe.profiles[0].root.get("tokens")
    for batch, rows in ((batch, rows) for batch in given.BATCHES for rows in given.ROWS):
        if shapes is None or not shapes.contains((batch, rows, 32)):
            raise BuildError(
                f"recipe.toml's profile does not accept {batch} x {rows} rows: the service sends {SERVICE}", code=PROFILE
            )


def runnable(model: bytes, recipe: Recipe, examiner: Examiner) -> Plan:
    """The plan that the examiner's runner executes.

    Raises:
        BuildError: the backend rejects the model.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model)
        return examiner.runnable(path, recipe)


@cache
def reference_kernels(builder: str) -> Kernels:
    """The reference's counts with a builder. No sandbox: it is the course's own network.

    Raises:
        ExaminerFault: it cannot be built, or its table shows no fused attention.
    """
    with TemporaryDirectory() as folder, ours():
        (model := Path(folder, "model.onnx")).write_bytes(reference.serialized())
        found = Kernels.of(prove(model, reference.RECIPE, Examiner(builder=builder)).layers)
    if not found.attention:
        raise ExaminerFault(f"{builder} does not show which kernels its engines have")
    return found


# ---- what breaks

VANISHED = "FP16 stores numbers below 6e-8 as 0. Which tensors of the FP32 network are that small, and which node divides by their root?"
HARMLESS = "Infinity can give the right result: x / (1 + infinity) is 0. Name a node only if the logits change when it alone is in FP16."
BY_MAGNITUDE = (
    "A limit of 65 504 is not enough. Some overflows do not change the logits, and some nodes break on numbers below 6e-8. "
    "Rank the nodes at both ends of FP16 by the error of the logits."
)
ONE_AT_A_TIME = "Reduce one node at a time: a node is guilty if the logits change although everything else stays in FP32."
MISSING = "NaN is one way to fail. A tensor can overflow and still leave finite, wrong logits. Which error is too large?"
MAGNITUDE = "Measure the largest magnitude in the FP32 network, over what the node reads and what it writes."


def find(work: MixedWork) -> Iterator[Criterion]:
    """The nodes that break alone, with their magnitudes."""
    findings = given.read(work.folder / FILE)
    work.examiner.begins("find: each node that you name, alone in FP16", 10)
    judged = judge(findings, fresh_images(work.examiner, _FOUND_ON).tokens())
    hint = VANISHED if judged.vanished == judged.missing else MISSING
    if judged.innocent:
        hint = BY_MAGNITUDE if judged.harmless and judged.vanished else HARMLESS if judged.harmless else ONE_AT_A_TIME
    mistakes = len(judged.missing) + len(judged.innocent) + len(judged.misread)
    yield at_most("mistakes", mistakes, MISJUDGED, HALF, hint=hint)
    small = f" ({len(judged.vanished)} missing: numbers that are too small for FP16, not too large)" if judged.vanished else ""
    shown = f"{judged.faults - len(judged.missing)} of {judged.faults}{small}"
    yield Criterion("places that break", shown, "all of them", not judged.missing, ALL, hint)
    overflow = f"; {len(judged.harmless)} of them overflow, and the logits stay right" if judged.harmless else ""
    shown = f"{len(judged.innocent)}{overflow}"
    yield Criterion("nodes that are harmless alone", shown, "0", not judged.innocent, ALL, hint)
    shown = f"{len(judged.misread)}" + (f", such as {judged.misread[0]}" if judged.misread else "")
    yield Criterion("magnitudes off by more than a factor of 2", shown, "0", not judged.misread, ALL, MAGNITUDE)


def judge(findings: given.Findings, tokens: np.ndarray) -> Judged:
    """Measure on a fresh batch which nodes fail alone in FP16, and compare them with the findings.

    A node breaks if the logits change by more than `BREAKS` when it alone computes in FP16. Whether its numbers fit into FP16 does
    not matter. A place is a module in which a tensor does not fit into FP16 and its maker breaks. Any breaking node that reads or
    makes such a tensor counts for the place.

    Raises:
        CourseError: a node that the network does not have.
    """
    model = given.network()
    operators = {node.name: node for node in model.graph.node}
    if unknown := next((name for name in findings if name not in operators), None):
        raise CourseError(f"{FILE} names {unknown[:60]!r}, which is not a node of the given network")
    largest = given.written(model, tokens)
    sizes = given.by_node(model, largest)
    computing = [node for node in model.graph.node if node.op_type != "Constant"]
    makers = {tensor: node.name for node in computing for tensor in node.output if tensor in largest}
    misfits = {t: node for t, node in makers.items() if largest[t] > LARGEST * _GRAY or 0 < largest[t] < SMALLEST}
    breaking = _breaking({*findings, *misfits.values()}, tokens)
    places: dict[str, set[str]] = {}  # each with its tensors
    for tensor, maker in misfits.items():
        if maker in breaking:
            places.setdefault(maker.rpartition("/")[0], set()).add(tensor)
    guilty = [node for node in findings if node in breaking]
    spoken_for = {tensor for node in guilty for tensor in (*operators[node].input, *operators[node].output)}
    missing = tuple(place for place, tensors in places.items() if not tensors & spoken_for)
    innocent = tuple(
        node for node in findings if node not in breaking and not LARGEST / _GRAY <= sizes.get(node, 0.0) <= LARGEST * _GRAY
    )
    return Judged(
        missing=missing,
        vanished=tuple(place for place in missing if all(largest[tensor] < SMALLEST for tensor in places[place])),
        innocent=innocent,
        harmless=tuple(node for node in innocent if sizes.get(node, 0.0) > LARGEST),
        misread=tuple(node for node in guilty if not sizes[node] / _FACTOR <= findings[node] <= sizes[node] * _FACTOR),
        faults=len(places),
    )


def _breaking(nodes: Collection[str], tokens: np.ndarray) -> frozenset[str]:
    """Those of `nodes` that destroy the logits when they alone are reduced to FP16."""
    from course_lib.benchmark import sensitivity

    rows = sensitivity(given.network(), {"tokens": tokens}, nodes=nodes, progress=False).rows
    return frozenset(row.node for row in rows if row.deviation.nonfinite or row.deviation.relative_error > BREAKS)


# ---- answers

_LOST = "Which tensor is the first that is not finite? A node after a kept node reads FP16 again. Is that reader kept too?"
_WRONG = "Finite logits can be wrong. If squares overflow, a norm divides by infinity, and its output is zero, not NaN."
_COARSE = "A tensor still overflows, or rounds more coarsely than FP16. Rank the nodes of your own model again."


def error(work: MixedWork) -> Iterator[Criterion]:
    """FP16 that answers like FP32."""
    yield (is_half := half_engine(work))
    if is_half.met is not False:
        yield from answers_of(work.answers)


def answers_of(found: Answers) -> Iterator[Criterion]:
    """Finite logits in every request, and an SQNR that FP16 has."""
    shown = str(len(found.lost))
    if found.lost:
        shown += f" of {found.requests}, first {found.lost[0][0]} digits of {found.lost[0][1]} rows"
    yield Criterion("requests with NaN or infinity", shown, "0", not found.lost, HALF, _LOST)
    if found.lost:
        return
    hint = _WRONG if found.sqnr_db < SQNR_DB[HALF] else _COARSE
    for needed_for, least in SQNR_DB.items():
        yield at_least(f"SQNR of the logits at {found.where}", round(found.sqnr_db), least, needed_for, unit="dB", hint=hint)


# ---- kernels

_HALF_HINT = "Which nodes break alone? Only these nodes, and the nodes that read their outputs, have to stay in FP32."
_SPARE_HINT = "Does every node that you keep have to be kept? A kept node can also put the nodes next to it into FP32 kernels."
_SPLIT_HINT = (
    "FP32 splits attention. Can its product be made small before it overflows, so that none of its nodes has to be kept?"
)
_SPEED_HINT = "Which kernels does the FP32 engine not have? Each cast costs a round trip to memory."


def half_engine(work: MixedWork) -> Criterion:
    """Whether at most half as many kernels compute in FP32 as the reference has in all."""
    yours, wanted = work.kernels, work.wanted
    shown = f"{yours.wide} of {yours.total} in {yours.wide_types}"
    if wanted is None:
        return open_without_reference("kernels in FP32", shown, HALF)
    most = wanted.total // 2
    return Criterion("kernels of an FP16 engine", shown, f"at most {most} in FP32", yours.wide <= most, HALF, _HALF_HINT)


def kernels(work: MixedWork) -> Iterator[Criterion]:
    """FP16 wherever it helps. The kernels of a wrong engine do not count."""
    yield (is_half := half_engine(work))
    if is_half.met is False:
        return
    yield holds("answers of the given network", work.answers.right, HALF, hint=_LOST if work.answers.lost else _WRONG)
    if not work.answers.right:
        return
    yield from counted(work.kernels, work.wanted)
    if work.examiner.on_gpu:
        yield speed(work)


def counted(yours: Kernels, wanted: Kernels | None) -> Iterator[Criterion]:
    """Kernels in FP32, and attentions that are one kernel."""
    fused = yours.attention
    if wanted is None:
        yield at_least("attentions in one FP16 kernel", fused, 1, HALF, hint=_SPLIT_HINT)
        yield open_without_reference("attentions that this builder can fuse", f"{fused} of {ATTENTIONS}")
        return
    for needed_for in (HALF, ALL):
        yield at_least(
            "attentions in one FP16 kernel", fused, wanted.attention - SPLIT[needed_for], needed_for, hint=_SPLIT_HINT
        )
        bound = wanted.wide + SPARE[needed_for]
        yield at_most(f"kernels in {yours.wide_types}", yours.wide, bound, needed_for, hint=_SPARE_HINT)


def speed(work: MixedWork) -> Criterion:
    """On a GPU: faster than the FP32 engine of the given network, or about as fast as the reference."""
    examiner, started = work.examiner, work.closing.enter_context
    with ours():
        fp32 = Recipe(precision="fp32", profiles=(given.SERVICE,))
        subjects = {"fp32": started(examiner.reference(runnable(given.network().SerializeToString(), fp32, examiner)))}
        if not absent(reference):
            mixed = runnable(reference.serialized(), reference.RECIPE, examiner)
            subjects["reference"] = started(examiner.reference(mixed))
    built = work.plan if examiner.opset is None else None
    yours = started(examiner.engine(examiner.runnable(work.graph, work.files[1], built)))
    rng, requests = work.rng(), work.requests()
    usual, each = requests["32 rows"][2], [tokens for several in requests.values() for tokens in several]
    work.comparison = examiner.measured(
        lambda: compare_answering(
            {**subjects, "yours": yours},
            lambda: {"tokens": usual if rng.random() < 0.5 else each[rng.integers(len(each))]},
            truth="fp32",
            floor_db=SQNR_DB[HALF],
            time_limit_s=examiner.measure_s,
        ),
        device_clock=yours.device_clock,
    )
    return fast(work.comparison.latencies())


def fast(latencies: dict[str, np.ndarray]) -> Criterion:
    """The criterion that follows from the latencies of the engines."""
    ratio = {name: speedup(latencies[name], latencies["yours"], seed=0) for name in latencies if name != "yours"}
    reached = [reaches_threshold(ratio["fp32"], 1.0)]
    if "reference" in ratio:
        reached.append(reaches_threshold(ratio["reference"], OF_REFERENCE))
    met = True if True in reached else None if None in reached or "reference" not in ratio else False
    code = NO_REFERENCE if met is None and "reference" not in ratio else ""
    shown = ", ".join(f"{value} of {name}" for name, value in ratio.items())
    return Criterion("speed", shown, f"faster than fp32, or {OF_REFERENCE:g}x of the reference", met, ALL, _SPEED_HINT, code)
