"""What is looked at in each task of lab 04: the nodes that break, the answers of the rounded graph, and the engine's kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from course_lib.benchmark import speedup
from course_lib.engines import ModelSource, Plan
from course_lib.errors import PROFILE, BuildError, CourseError
from course_lib.labs.framework.criteria import ALL, HALF, NO_REFERENCE, Criterion, at_least, at_most, holds, reaches_threshold
from course_lib.labs.framework.examination import ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.onnx_model import transformed
from course_lib.labs.framework.racing import compare_answering, decibels, fresh_images, logits
from course_lib.labs.framework.submission import model_and_recipe
from course_lib.labs.lab04_mixed_precision import given, reference
from course_lib.labs.lab04_mixed_precision.given import BATCHES, FILE, LARGEST, ROWS, SMALLEST, Kernels, prove
from course_lib.recipe import Recipe

SOURCE = ModelSource("course_lib.labs.lab04_mixed_precision.network:loud_encoder")
SERVICE = f"{BATCHES[0]} to {BATCHES[1]} digits of {ROWS[0]} to {ROWS[1]} rows"
# Error of the logits when one node alone computes in FP16. Measured: at least 0.5 % for the nodes that break, at most 0.03 %
# for all others, among them the three around the overflows that do no harm (at most 0.002 %).
BREAKS = 1e-3
# A limit on the magnitude alone makes 4 mistakes: three nodes that overflow and do no harm, and the norm whose variance vanishes.
MISJUDGED = 4
# Between these shares of the largest FP16 number, a tensor overflows for some digits only: naming it is right, and so is leaving it
# out. Measured on 64 digits: at least 0.74 in the first norm of block 1, at most 0.69 in nodes that never overflow.
_GRAY = 0.71, 1.25
_FACTOR = 2.0  # how far a magnitude may be off: other digits move it by 20 %
_FOUND_ON = 64  # fresh digits
# SQNR of the logits against PyTorch's, in dB. Measured: the reference 66, other right answers 65 to 70, BF16 48, a norm's squares
# forgotten 34 in block 1, 14 in block 2 and 0 in the last norm, the shipped encoder 24, a tenth of the weights pruned 25, overflow
# clamped to 65,504: 16.
SQNR_DB = {HALF: 30.0, ALL: 60.0}
_BATCHES, _ROWS, _DRAWN = (1, 3, 8, 32), (16, 32, 48), 8  # requests: all combinations, and some that cannot be known in advance
# Kernels in FP32 more than the reference has; and attention kernels that may be split. Measured: the reference has 5 of 39; scores kept
# in FP32 7 and one attention split, whole norms kept 12, two whole blocks kept 33 of 52.
SPARE, SPLIT = {HALF: 10, ALL: 2}, {HALF: 1, ALL: 0}
OF_REFERENCE = 0.85  # where FP16 gains nothing on small tensors, being as fast as the reference is enough
Answers = Mapping[str, Sequence[np.ndarray]]  # logits of each request, by the number of rows


class MixedWork(Work):
    """A submission of lab 04."""

    @step
    def files(self) -> tuple[Path, Recipe]:
        """``model.onnx`` and ``recipe.toml``, whose one profile covers the service."""
        model, recipe = model_and_recipe(self.folder, "fp16")
        if (count := len(recipe.profiles)) != 1:
            message = f"recipe.toml has {count} profiles; this lab needs exactly one, because each profile has its own kernels"
            raise BuildError(message, code=PROFILE)
        shapes = recipe.profiles[0].root.get("tokens")
        for batch, rows in product(BATCHES, ROWS):
            if shapes is None or not shapes.contains((batch, rows, 32)):
                message = f"recipe.toml's profile does not accept {batch} x {rows} rows: the service sends {SERVICE}"
                raise BuildError(message, code=PROFILE)
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

    @step
    def reference(self) -> Path:
        """The reference's model."""
        (model := self.scratch / "reference.onnx").write_bytes(reference.serialized())
        return model

    @step
    def wanted(self) -> Kernels:
        """The counts of the reference's engine: known for the usual builder, and built for another one."""
        if self.expected:
            return Kernels(**self.expected)
        with ours():
            return Kernels.of(prove(self.reference, reference.RECIPE, self.examiner.for_ours).layers)

    @step
    def answers(self) -> list[Criterion]:
        """What the graph answers with every rounding that it specifies, so that the figures are the same on every machine."""
        self.examiner.begins("error: fresh digits through PyTorch and your rounded graph", 8)
        on_cpu = replace(self.examiner, runner="onnxruntime")
        rounded, failed = self.scratch / "rounded.onnx", "model.onnx cannot be emulated"
        rounded.write_bytes(transformed(given.emulated, self.graph.read_bytes(), failed, launcher=self.examiner.launcher))
        truth = self.enter_context(self.examiner.baseline(SOURCE))
        yours = self.enter_context(on_cpu.engine(on_cpu.runnable(rounded, self.files[1])))
        requests = self.requests().items()
        want, have = (
            {where: [logits(engine, tokens, [len(tokens)], "tokens") for tokens in several] for where, several in requests}
            for engine in (truth, yours)
        )
        self.figures["sqnr_db"], _ = worst(want, have)
        return list(compared(want, have))

    def requests(self) -> dict[str, list[np.ndarray]]:
        """Fresh digits, ``(batch, rows, 32)``, by the number of rows; and requests of drawn sizes."""
        rng, fresh = self.rng(), fresh_images(self.examiner, sum(_BATCHES))
        made = {f"{rows} rows": np.split(fresh.tokens(rows), np.cumsum(_BATCHES)[:-1]) for rows in _ROWS}
        drawn = rng.integers([BATCHES[0], ROWS[0]], [BATCHES[1] + 1, ROWS[1] + 1], (_DRAWN, 2))
        return made | {"other sizes": [fresh.tokens(int(rows))[:batch] for batch, rows in drawn]}


# ---- what breaks

_VANISHED = "FP16 stores numbers below 6e-8 as 0. Which tensors of the FP32 network are that small, and which node divides by their root?"
_HARMLESS = "Infinity can give the right result: x / (1 + infinity) is 0. Name a node only if the logits change when it alone is in FP16."
_BY_MAGNITUDE = (
    "A limit of 65,504 is not enough. Some overflows do not change the logits, and some nodes break on numbers below 6e-8. "
    "Rank the nodes at both ends of FP16 by the error of the logits."
)
_ONE_AT_A_TIME = "Reduce one node at a time: a node is guilty if the logits change although everything else stays in FP32."
_MISSING = "NaN is one way to fail. A tensor can overflow and still leave finite, wrong logits. Which error is too large?"
_MAGNITUDE = "Measure the largest magnitude in the FP32 network, over what the node reads and what it writes."


def find(work: MixedWork) -> Iterator[Criterion]:
    """The nodes that break alone, with their magnitudes."""
    findings = given.read(work.folder / FILE)
    work.examiner.begins("find: each node that you name, alone in FP16", 10)
    yield from judged(findings, fresh_images(work.examiner, _FOUND_ON).tokens())


def judged(findings: given.Findings, tokens: np.ndarray) -> Iterator[Criterion]:
    """Measure on a fresh batch which nodes fail alone in FP16, and compare them with the findings.

    A node breaks if the logits change by more than `BREAKS` when it alone computes in FP16. Whether its numbers fit into FP16 does
    not matter. A place is a module in which a tensor does not fit into FP16 and its maker breaks. Any breaking node inside counts for
    the place.
    """
    from course_lib.benchmark import sensitivity

    model = given.network()
    largest = given.written(model, tokens)
    sizes = given.by_node(model, largest)
    if unknown := next((name for name in findings if name not in sizes), None):
        raise CourseError(
            f"{FILE} names {unknown[:60]!r}, which is not a node of the given network that reads or writes floats"
        )
    makers = {tensor: node.name for node in model.graph.node if node.op_type != "Constant" for tensor in node.output}
    beyond = {makers[tensor] for tensor, size in largest.items() if tensor in makers and size > LARGEST * _GRAY[1]}
    below = {makers[tensor] for tensor, size in largest.items() if tensor in makers and 0 < size < SMALLEST}
    rows = sensitivity(model, {"tokens": tokens}, nodes={*findings, *beyond, *below}, progress=False).rows
    breaking = {row.node for row in rows if row.deviation.relative_error > BREAKS}
    places = {node.rpartition("/")[0] for node in (beyond | below) & breaking}

    missing = {place for place in places if not any(node.startswith(f"{place}/") for node in breaking & findings.keys())}
    vanished = {place for place in missing if not any(node.startswith(f"{place}/") for node in beyond)}
    innocent = [n for n in findings if n not in breaking and not _GRAY[0] <= sizes[n] / LARGEST <= _GRAY[1]]
    harmless = [node for node in innocent if sizes[node] > LARGEST]
    misread = [n for n in findings if n in breaking and not sizes[n] / _FACTOR <= findings[n] <= sizes[n] * _FACTOR]
    hint = _MAGNITUDE if not missing else _VANISHED if vanished == missing else _MISSING
    if innocent:
        hint = _BY_MAGNITUDE if harmless and vanished else _HARMLESS if harmless else _ONE_AT_A_TIME

    yield at_most("mistakes", len(missing) + len(innocent) + len(misread), MISJUDGED, HALF, hint=hint)
    small = f" ({len(vanished)} missing: numbers that are too small for FP16, not too large)" if vanished else ""
    shown = f"{len(places) - len(missing)} of {len(places)}{small}"
    yield Criterion("places that break", shown, "all of them", not missing, ALL, hint)
    shown = f"{len(innocent)}" + (f"; {len(harmless)} of them overflow, and the logits stay right" if harmless else "")
    yield Criterion("nodes that are harmless alone", shown, "0", not innocent, ALL, hint)
    shown = f"{len(misread)}" + (f", such as {misread[0]}" if misread else "")
    yield Criterion("magnitudes off by more than a factor of 2", shown, "0", not misread, ALL, _MAGNITUDE)


# ---- answers

_LOST = "Which tensor is the first that is not finite? A node after a kept node reads FP16 again. Is that reader kept too?"
_WRONG = "Finite logits can be wrong. If squares overflow, a norm divides by infinity, and its output is zero, not NaN."
_COARSE = "A tensor still overflows, or rounds more coarsely than FP16. Rank the nodes of your own model again."


def error(work: MixedWork) -> Iterator[Criterion]:
    """FP16 that answers like FP32."""
    yield (is_half := half_engine(work))
    if is_half.met:
        yield from work.answers


def compared(want: Answers, have: Answers) -> Iterator[Criterion]:
    """Finite logits in every request, and an SQNR that FP16 has."""
    lost = [f"{len(each)} digits of {where}" for where in have for each in have[where] if not np.isfinite(each).all()]
    shown = f"{len(lost)} of {sum(map(len, have.values()))}, first {lost[0]}" if lost else "0"
    yield Criterion("requests with NaN or infinity", shown, "0", not lost, HALF, _LOST)
    if not lost:
        found, where = worst(want, have)
        for needed_for, least in SQNR_DB.items():
            hint = _WRONG if found < SQNR_DB[HALF] else _COARSE
            yield at_least(f"SQNR of the logits at {where}", round(found), least, needed_for, unit="dB", hint=hint)


def worst(want: Answers, have: Answers) -> tuple[float, str]:
    """The smallest SQNR in dB, and the number of rows that has it."""
    return min((decibels(np.concatenate(want[where]), np.concatenate(have[where])), where) for where in want)


# ---- kernels

_HALF_HINT = "Which nodes break alone? Only these nodes, and the nodes that read their outputs, have to stay in FP32."
_SPARE_HINT = "Does every node that you keep have to be kept? A kept node can also put the nodes next to it into FP32 kernels."
_SPLIT_HINT = (
    "FP32 splits attention. Can its product be made small before it overflows, so that none of its nodes has to be kept?"
)
_SPEED_HINT = "Which kernels does the FP32 engine not have? Each cast costs a round trip to memory."


def half_engine(work: MixedWork) -> Criterion:
    """Whether at most half of the kernels compute in FP32: of the engine's or of the reference's, which kernels of no use cannot raise."""
    yours = work.kernels
    name, shown = "kernels of an FP16 engine", f"{yours.wide} of {yours.total} in {yours.wide_types}"
    most = min(yours.total, work.expected_of_builders["tensorrt_rtx"]["total"]) // 2  # which proves the types for every builder
    return Criterion(name, shown, f"at most {most} in FP32", yours.wide <= most, HALF, _HALF_HINT)


def kernels(work: MixedWork) -> Iterator[Criterion]:
    """FP16 wherever it helps. The kernels of a wrong engine do not count."""
    yield (is_half := half_engine(work))
    if not is_half.met:
        return
    wrong = [criterion for criterion in work.answers if criterion.needed_for == HALF and not criterion.met]
    yield holds("answers of the given network", not wrong, HALF, hint=wrong[0].hint if wrong else "")
    if wrong:
        return
    yield from counted(work.kernels, work.wanted)
    if work.examiner.on_gpu:
        yield speed(work)


def counted(yours: Kernels, wanted: Kernels) -> Iterator[Criterion]:
    """Attentions that are one kernel, and kernels in FP32."""
    for needed_for in (HALF, ALL):
        least, most = wanted.attention - SPLIT[needed_for], wanted.wide + SPARE[needed_for]
        yield at_least("attentions in one FP16 kernel", yours.attention, least, needed_for, hint=_SPLIT_HINT)
        yield at_most(f"kernels in {yours.wide_types}", yours.wide, most, needed_for, hint=_SPARE_HINT)


def speed(work: MixedWork) -> Criterion:
    """On a GPU: faster than the FP32 engine of the given network, or about as fast as the reference."""
    examiner, started = work.examiner, work.enter_context
    (exact := work.scratch / "given.onnx").write_bytes(given.network().SerializeToString())
    models = {"fp32": (exact, Recipe(precision="fp32", profiles=(given.SERVICE,)))}
    if not absent(reference):
        models["reference"] = (work.reference, reference.RECIPE)
    with ours():
        plans = examiner.runnables(list(models.values()))
    subjects = {name: started(examiner.reference(plan)) for name, plan in zip(models, plans, strict=True)}
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


def fast(latencies: Mapping[str, np.ndarray]) -> Criterion:
    """The criterion that follows from the latencies of the engines. Without the reference, it is open for what is not faster."""
    bounds = {"fp32": 1.0, "reference": OF_REFERENCE}
    ratios = {name: speedup(latencies[name], latencies["yours"], seed=0) for name in bounds if name in latencies}
    reached = {reaches_threshold(ratio, bounds[name]) for name, ratio in ratios.items()}
    code = "" if "reference" in ratios or True in reached else NO_REFERENCE
    met = True if True in reached else None if code or None in reached else False
    shown = ", ".join(f"{ratio} of {name}" for name, ratio in ratios.items())
    return Criterion("speed", shown, f"faster than fp32, or {OF_REFERENCE:g}x of the reference", met, ALL, _SPEED_HINT, code)
