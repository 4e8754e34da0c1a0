"""Lab 07, dynamic shapes: at most three profiles for bursty traffic, which accept every request with little padding."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib._util.percent import in_percent
from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines import ModelSource, Plan
from course_lib.errors import (
    FIXED_DIMENSION,
    MISSING_FILE,
    PRECISION,
    PROFILE,
    BuildError,
    CourseError,
    EngineError,
    PrecisionError,
    RecipeError,
)
from course_lib.labs.framework.answers_timed import Answering
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_met, reaches_threshold
from course_lib.labs.framework.examination import Examination, Examiner, TimedWorker, agree_on_clock
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import ours
from course_lib.labs.framework.submission_files import submitted_recipe
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab07_dynamic_shapes import account as lab07_account
from course_lib.labs.lab07_dynamic_shapes import reference, service, traffic
from course_lib.labs.lab07_dynamic_shapes.judge import optimum
from course_lib.labs.lab07_dynamic_shapes.latency import measured
from course_lib.labs.lab07_dynamic_shapes.service import Bill, Box, Service
from course_lib.labs.lab07_dynamic_shapes.traffic import LARGEST
from course_lib.recipe import Recipe

MOST = optimum.MOST
LARGEST_BOX = (64, 512)  # what is run for a submission at most; the network's table of positions ends at 512
MOST_TOKENS = 4 * LARGEST[0] * LARGEST[1]  # of a box: attention scores of every profile are in memory at once
# Points for the cost. A tier allows what leaves out that part of the possible saving, which goes from one profile for everything to
# the best three; or, where little can be saved, what is that factor over the best.
FULL, PARTIAL = (0.95, 1.05), (0.75, 1.15)
MOST_REJECTED = 0.5  # of yesterday's batches: an account of fewer is the account of an empty day
LEAST_SHARE = 0.05  # that two profiles must take, for right shares alone to earn points
OVER_EAGER = 1.5  # and it must be that much cheaper than PyTorch that pads everything to the largest shape
WORTH_GRADING = 1.20  # the best three profiles must be that much cheaper than one, or this machine cannot tell them apart


class DynamicShapes(Lab):
    """The submission is `recipe.toml` and `account.json`. All learners use the lab's network."""

    name = "lab07_dynamic_shapes"
    title = "Lab 07: dynamic shapes"
    artifacts: ClassVar = {"recipe.toml": 64 << 10, "account.json": lab07_account.MAX_BYTES}
    tasks = (
        Task("cover", "Every request accepted", 3),
        Task("account", "Shares and padding of yesterday's traffic", 2),
        Task("cost", "Cost of a batch", 5),
    )
    timed_tasks = ("cost",)
    build_hints: ClassVar = {
        PRECISION: "Leave `precision` out of the recipe: fp32 is the default.",
        MISSING_FILE: "Task 1 writes recipe.toml. Solve it, then run its cell again.",
        **dict.fromkeys(
            (PROFILE, FIXED_DIMENSION),
            "Each profile names both inputs, tokens (N, S, 32) and mask (N, S), with min, opt and max; N and S agree.",
        ),
    }
    source = ModelSource("course_lib.labs.lab07_dynamic_shapes.network:masked_encoder")

    def write_model(self, path: Path | str, *, opset: int | None = None) -> None:
        """The network that is served, as ONNX: ``tokens`` ``(N, S, 32)`` and ``mask`` ``(N, S)``."""
        Path(path).write_bytes(_exported(opset))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The best three profiles, if a batch has a fixed cost and a cost per token. Nothing is measured."""
        reference.write(folder)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Build, route, check the account, then price a fresh day of traffic."""
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch, "model.onnx")
            self.write_model(model, opset=examiner.opset)
            try:
                recipe = _recipe(folder)
                account = () if only in ("cover", "cost") else (self._account(folder, recipe),)
                if only == "account":
                    return Examination(account)
                plan = examiner.build(model, recipe)
            except (RecipeError, BuildError) as error:
                return Examination(self.failed_build(error, [only] if only else None))
            hidden = traffic.one_day(examiner.seed).counts()
            cover = self._cover(recipe, hidden)
            if only == "cover":
                return Examination((cover,), plan)
            bill = service.bill(recipe, hidden)
            if bill.rejected:
                said = f"{in_percent(bill.rejected)} of the hidden day's batches are rejected, so the cost is not measured."
                return Examination((cover, *account, *self.zero_outcomes(said, cover.hint, ("cost",))), plan)
            try:
                comparison, least = self._race(model, examiner, recipe, plan, hidden)
            except (EngineError, BuildError) as error:
                hint = "Load the engine in the notebook and run the largest shape of each profile: the error appears there too."
                return Examination((cover, *account, *self.zero_outcomes(error, hint, ("cost",))), plan)
        latencies = comparison.latencies()
        figures = {"saving": _saving(latencies), "padding": bill.padding, "optimum_padding": least.padding}
        return Examination((cover, *account, self._cost(latencies, bill)), plan, comparison, figures)

    def _cover(self, recipe: Recipe, hidden: np.ndarray) -> Outcome:
        """Whether every shape of the contract is accepted."""
        taken = service.routes(recipe)
        if (taken >= 0).all():
            return self.outcome("cover", "full", f"The engine was built and accepts every batch up to {_spell(LARGEST)}.")
        batch, length = (int(index[0]) + 1 for index in np.nonzero(taken < 0))
        said = f"{int((taken < 0).sum())} of {taken.size} shapes are rejected, such as {_spell((batch, length))}."
        hint = (
            "The service may receive 1 to 16 texts of 1 to 128 tokens, not only yesterday's shapes. Which corner is left out?"
        )
        if hidden[taken < 0].sum() == 0:
            return self.outcome("cover", "partial", f"{said} None of them occurs on the hidden day.", hint, share=0.5)
        return self.outcome("cover", "none", said, hint)

    def _account(self, folder: Path, recipe: Recipe) -> Outcome:
        """Compare the learner's figures for yesterday with ours."""
        truth = service.bill(recipe, traffic.yesterday().counts())
        if truth.rejected > MOST_REJECTED:
            said = f"The recipe rejects {in_percent(truth.rejected)} of yesterday's batches, so there is no account of the day."
            return self.outcome("account", "none", said, "Solve task 1 first: which corner is left out?")
        try:
            claimed = lab07_account.read(folder / "account.json", profiles=len(recipe.profiles))
        except CourseError as error:
            hint = '`{"shares": [...], "padding": ...}`: a number from 0 to 1 for each profile, in the order of the recipe.'
            return self.outcome("account", "none", error, hint)
        right = lab07_account.judge(claimed, truth)
        if all(right.values()):
            return self.outcome("account", "full", "Shares and padding are right.")
        wrong = " and ".join(name for name, fine in right.items() if not fine)
        hint = {
            "shares": "A batch goes to the first profile that accepts it, in the recipe's order, not to the one that fits best.",
            "padding": "A batch of b texts with s tokens, run at B x S, computes B * S tokens and b * s of them are text.",
        }[next(name for name, fine in right.items() if not fine)]
        # If one profile takes nearly everything, the shares can be written down without an account.
        found = right["padding"] or (right["shares"] and sum(share >= LEAST_SHARE for share in truth.shares) > 1)
        tier = "partial" if found else "none"
        return self.outcome("account", tier, f"Not right yet: {wrong}.", hint, share=0.5)

    def _race(self, model: Path, examiner: Examiner, recipe: Recipe, plan: Plan, hidden: np.ndarray) -> tuple[Comparison, Bill]:
        """Measure the cost of the hidden day with one profile, the best three, and the submission's, and PyTorch at the largest shape."""
        rng = examiner.rng()
        full = service.batch(rng, _largest(recipe))
        with ExitStack() as stack:
            eager = stack.enter_context(examiner.baseline(self.source))
            yours = stack.enter_context(examiner.engine(examiner.runnable(model, recipe, plan)))
            _same_answers(eager, yours, recipe, rng)
            one = stack.enter_context(_ours(examiner, model, service.recipe(LARGEST)))
            latency = examiner.measured(
                lambda: measured(lambda box: one.time_ms(service.cut(full, box))), device_clock=one.device_clock
            )
            best = service.recipe(*optimum.cheapest(latency, hidden))
            three = stack.enter_context(_ours(examiner, model, best))
            least = service.bill(best, hidden)
            boxes, shares = service.boxes(recipe), service.bill(recipe, hidden).shares
            services = {
                "eager": Service(eager, [LARGEST], [1.0]),
                "one profile": Service(one, [LARGEST], [1.0]),
                "reference": Service(three, service.boxes(best), least.shares),
                "yours": Service(Answering(yours), boxes, shares),
            }
            timed = ((one, LARGEST), (three, service.boxes(best)[0]), (yours, boxes[0]))
            clock = agree_on_clock((engine, service.batch(rng, box)) for engine, box in timed)
            comparison = examiner.measured(
                lambda: compare(
                    services,
                    lambda: service.batch(rng, _largest(recipe)),
                    baseline="eager",
                    time_limit_s=examiner.measure_s,
                    min_rounds=30,
                    warmup=2,
                    settled=_decided,
                ),
                device_clock=yours.device_clock,
            )
            for box, (feeds, answers) in services["yours"].answered.items():
                _check_answers(box, eager.infer(feeds), answers)
        return replace(comparison, clock=clock), least

    def _cost(self, latencies: Mapping[str, np.ndarray], bill: Bill) -> Outcome:
        gain = speedup(latencies["one profile"], latencies["reference"])
        over_eager = speedup(latencies["eager"], latencies["yours"])
        said = (
            f"A batch costs {np.median(latencies['yours']):.2f} ms (one profile: {np.median(latencies['one profile']):.2f} ms, best three: "
            f"{np.median(latencies['reference']):.2f} ms). This is {np.clip(_saving(latencies), 0, 1):.0%} of the possible saving. "
            f"{100 * bill.padding:.0f} % of the computed tokens are padding. {over_eager} over PyTorch eager at the largest shape."
        )
        if reaches_threshold(gain, WORTH_GRADING) is not True:
            hint = "On this machine padding costs too little to tell profiles apart."
            worth = Criterion(
                "speed of three profiles over one on this machine", str(gain), f"at least {WORTH_GRADING:g}x", None
            )
            return self.judged("cost", [worth], [worth], hint, context=said, cause="this machine cannot tell profiles apart")
        hint = "Sum latency times count over yesterday's shapes. Which shapes cause most of the padding, and which profile would reduce it?"
        return self.judged("cost", _criteria(latencies, FULL), _criteria(latencies, PARTIAL, HALF), hint, context=said)


def _recipe(folder: Path) -> Recipe:
    recipe = submitted_recipe(folder)
    if not 1 <= len(recipe.profiles) <= MOST:
        raise RecipeError(f"recipe.toml has {len(recipe.profiles)} profiles; the service takes 1 to {MOST}", code=PROFILE)
    if recipe.precision != "fp32":
        raise PrecisionError(f'recipe.toml says precision = "{recipe.precision}"; profiles are compared in fp32 here')
    if found := service.differing(recipe):
        raise RecipeError(f"{found}; expected the same N and S", code=PROFILE)
    if too_large := [box for box in service.boxes(recipe) if not _can_run(box)]:
        most = f"expected at most {MOST_TOKENS} tokens, and no batch is larger than {_spell(LARGEST)}"
        raise RecipeError(f"a profile reaches {_spell(too_large[0])}: {most}", code=PROFILE)
    return recipe


def _can_run(box: Box) -> bool:
    return all(n <= most for n, most in zip(box, LARGEST_BOX, strict=True)) and box[0] * box[1] <= MOST_TOKENS


def _ours(examiner: Examiner, model: Path, recipe: Recipe) -> AbstractContextManager[TimedWorker]:
    """One of the course's own engines, for comparison."""
    with ours():
        plan = examiner.runnable(model, recipe)
    return examiner.reference(plan)


def _same_answers(eager: TimedWorker, yours: TimedWorker, recipe: Recipe, rng: np.random.Generator) -> None:
    """Run every box once and check the answers.

    Raises:
        EngineError: an engine gives wrong answers.
    """
    for box in service.boxes(recipe):
        feeds = service.batch(rng, box)
        _check_answers(box, eager.infer(feeds), yours.infer(feeds))


def _check_answers(box: Box, right: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    want, have = right["logits"], found.get("logits")
    if have is None or have.shape != want.shape or not np.allclose(have, want, rtol=0.02, atol=0.05):
        raise EngineError(f"the engine's logits at {_spell(box)} are not PyTorch's")


def _largest(recipe: Recipe) -> Box:
    """A shape that every box of the recipe and of the contract can be cut from."""
    boxes = [*service.boxes(recipe), LARGEST]
    return max(b for b, _ in boxes), max(s for _, s in boxes)


def _saving(latencies: Mapping[str, np.ndarray]) -> float:
    """The part of the possible saving that the submission reaches: 0 is the cost of one profile, 1 that of the best three."""
    one, best, yours = (float(np.median(latencies[name])) for name in ("one profile", "reference", "yours"))
    return (one - yours) / (one - best) if one > best else 0.0


def _criteria(latencies: Mapping[str, np.ndarray], tier: tuple[float, float], needed_for: str = ALL) -> list[Criterion]:
    """The criteria of a tier: a limit for the cost of a batch, and a gain over PyTorch eager, each decided beyond the noise."""
    part, factor = tier
    one, best = latencies["one profile"], latencies["reference"]
    allowed = np.maximum(one - part * (one - best), factor * best)
    most = float(np.median(allowed))
    over_eager = speedup(latencies["eager"], latencies["yours"])
    spare = speedup(allowed, latencies["yours"], seed=0)  # of the same rounds, so that a slow machine moves both sides
    cost_ms = [most / ratio for ratio in (spare.median, spare.high, spare.low)]
    return [
        Criterion(
            "cost of a batch",
            "{:.2f} ms [{:.2f}-{:.2f}]".format(*cost_ms),
            f"at most {most:.2f} ms, {100 * part:.0f} % of the saving",
            reaches_threshold(spare, 1.0),
            needed_for,
        ),
        Criterion(
            "speed over PyTorch eager at the largest shape",
            str(over_eager),
            f"at least {OVER_EAGER:g}x",
            reaches_threshold(over_eager, OVER_EAGER),
            needed_for,
        ),
    ]


def _decided(latencies: Mapping[str, np.ndarray]) -> bool:
    """Whether the measurement is sufficient: the tier is decided."""
    full = all_met(_criteria(latencies, FULL))
    return bool(full) or (full is False and all_met(_criteria(latencies, PARTIAL)) is not None)


def _spell(box: Box) -> str:
    return f"{box[0]} x {box[1]}"


@cache
def _exported(opset: int | None) -> bytes:
    from course_lib.labs.lab07_dynamic_shapes.network import exported

    return exported(opset)


lab = DynamicShapes()
