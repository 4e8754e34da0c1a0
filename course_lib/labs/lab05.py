"""Lab 05, dynamic shapes: at most three profiles for bursty traffic, none refused, and little paid for padding."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines import ModelSource, Plan
from course_lib.errors import BuildError, CourseError, EngineError, PrecisionError, RecipeError
from course_lib.labs import lab05_account, lab05_search, lab05_service, lab05_traffic
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task, TimedWorker, clearly
from course_lib.labs.criteria import ALL, HALF, Criterion, all_met
from course_lib.labs.handed_in import missing
from course_lib.labs.lab05_service import Bill, Box, Service
from course_lib.labs.lab05_traffic import LARGEST
from course_lib.labs.reference import ours
from course_lib.percent import in_percent
from course_lib.recipe import Recipe

MOST = lab05_search.MOST
LARGEST_BOX = (64, 512)  # what is run for a hand-in at most; the network's table of positions ends at 512
# Points for the cost. A tier allows what leaves out that part of the possible saving, which goes from one profile for everything to
# the best three; or, where little can be saved, what is that factor over the best.
FULL, PARTIAL = (0.95, 1.05), (0.75, 1.15)
OVER_EAGER = 1.5  # and it must be that much cheaper than PyTorch that pads everything to the largest shape
WORTH_GRADING = 1.20  # the best three profiles must be that much cheaper than one, or this machine cannot tell them apart


class DynamicShapes(Lab):
    """Hand in `recipe.toml` and `account.json`. The network is the lab's, the same for everybody."""

    name = "lab05_dynamic_shapes"
    title = "Lab 05: dynamic shapes"
    artefacts: ClassVar = {"recipe.toml": 64 << 10, "account.json": lab05_account.MAX_BYTES}
    tasks = (
        Task("cover", "No request refused", 3),
        Task("account", "What your profiles do to yesterday's traffic", 2),
        Task("cost", "What a batch costs", 5),
    )
    source = ModelSource("course_lib.labs.lab05_network:masked_encoder")

    def write_model(self, path: Path | str, *, opset: int | None = None) -> None:
        """The network that is served, as ONNX: ``tokens`` ``(N, S, 32)`` and ``mask`` ``(N, S)``."""
        Path(path).write_bytes(_exported(opset))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The best three profiles if a batch cost a fixed sum and then so much a token: nothing is measured for it."""
        counts = lab05_traffic.yesterday().counts()
        recipe = lab05_service.recipe(*lab05_search.cheapest(lab05_search.by_tokens(), counts))
        recipe.save(folder / "recipe.toml")
        bill = lab05_service.bill(recipe, counts)
        lab05_account.write(folder / "account.json", (bill.shares, bill.padding))

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Build, route, check the account, then pay for a day that nobody has seen."""
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch, "model.onnx")
            self.write_model(model, opset=bench.opset)
            try:
                recipe = _recipe(folder)
                account = () if only in ("cover", "cost") else (self._account(folder, recipe),)
                if only == "account":
                    return Examination(account)
                plan = bench.build(model, recipe)
            except (RecipeError, BuildError) as error:
                return Examination(self.nothing(str(error), _hint_for_build(error), [only] if only else None))
            hidden = lab05_traffic.traffic(bench.seed).counts()
            cover = self._cover(recipe, hidden)
            if only == "cover":
                return Examination((cover,), plan)
            bill = lab05_service.bill(recipe, hidden)
            if bill.refused:
                said = (
                    f"{in_percent(bill.refused)} of the hidden day's batches are refused: a service that refuses has no cost."
                )
                return Examination((cover, *account, *self.nothing(said, cover.hint, ("cost",))), plan)
            try:
                comparison, optimum = self._race(model, bench, recipe, plan, hidden)
            except (EngineError, BuildError) as error:
                hint = "Load the engine in the notebook and run the largest shape of each profile: the error appears there too."
                return Examination((cover, *account, *self.nothing(str(error), hint, ("cost",))), plan)
        latencies = comparison.latencies()
        figures = {"saving": _saving(latencies), "padding": bill.padding, "optimum_padding": optimum.padding}
        return Examination((cover, *account, self._cost(latencies, bill)), plan, comparison, figures)

    def _cover(self, recipe: Recipe, hidden: np.ndarray) -> Outcome:
        """Whether every shape of the contract is accepted."""
        taken = lab05_service.routes(recipe)
        if (taken >= 0).all():
            return self.outcome("cover", "full", f"The engine was built and accepts every batch up to {_spell(LARGEST)}.")
        batch, length = (int(index[0]) + 1 for index in np.nonzero(taken < 0))
        said = f"{int((taken < 0).sum())} of {taken.size} shapes are refused, such as {_spell((batch, length))}."
        hint = "The contract allows 1 to 16 texts of 1 to 128 tokens, and yesterday did not hold all of it. Which corner is left out?"
        if hidden[taken < 0].sum() == 0:
            return self.outcome("cover", "partial", f"{said} The hidden day held none of them, by luck.", hint, share=0.5)
        return self.outcome("cover", "none", said, hint)

    def _account(self, folder: Path, recipe: Recipe) -> Outcome:
        """The learner's own figures for yesterday against ours."""
        truth = lab05_service.bill(recipe, lab05_traffic.yesterday().counts())
        try:
            claimed = lab05_account.read(folder / "account.json", profiles=len(recipe.profiles))
        except CourseError as error:
            hint = '`{"shares": [...], "padding": ...}`: a part between 0 and 1 for each profile, in the order of the recipe.'
            return self.outcome("account", "none", str(error), hint)
        right = lab05_account.judge(claimed, truth)
        if all(right.values()):
            return self.outcome("account", "full", "Shares and padding are right.")
        wrong = " and ".join(name for name, fine in right.items() if not fine)
        hint = {
            "shares": "A batch goes to the first profile that accepts it, in the recipe's order, not to the one that fits best.",
            "padding": "A batch of b texts with s tokens, run at B x S, computes B * S tokens and b * s of them are text.",
        }[next(name for name, fine in right.items() if not fine)]
        tier = "partial" if any(right.values()) else "none"
        return self.outcome("account", tier, f"Not right yet: {wrong}.", hint, share=0.5)

    def _race(self, model: Path, bench: Bench, recipe: Recipe, plan: Plan, hidden: np.ndarray) -> tuple[Comparison, Bill]:
        """What the hidden day costs with one profile, with the best three, with the hand-in's, and in PyTorch at the largest shape."""
        rng = bench.rng()
        full = lab05_service.batch(rng, _largest(recipe))
        with ExitStack() as stack:
            eager = stack.enter_context(bench.baseline(self.source))
            yours = stack.enter_context(bench.engine(bench.runnable(model, recipe, plan)))
            _same_answers(eager, yours, recipe, rng)
            one = stack.enter_context(_ours(bench, model, lab05_service.recipe(LARGEST)))
            latency = bench.measured(lambda: lab05_search.measured(lambda box: one.time_ms(lab05_service.cut(full, box))))
            best = lab05_service.recipe(*lab05_search.cheapest(latency, hidden))
            three = stack.enter_context(_ours(bench, model, best))
            optimum = lab05_service.bill(best, hidden)
            boxes, shares = lab05_service.boxes(recipe), lab05_service.bill(recipe, hidden).shares
            services = {
                "eager": Service(eager, [LARGEST], [1.0]),
                "one profile": Service(one, [LARGEST], [1.0]),
                "reference": Service(three, lab05_service.boxes(best), optimum.shares),
                "yours": Service(yours, boxes, shares),
            }
            comparison = bench.measured(
                lambda: compare(
                    services,
                    lambda: full,
                    baseline="eager",
                    time_limit_s=bench.measure_s,
                    min_rounds=30,
                    warmup=2,
                    settled=_decided,
                )
            )
        return comparison, optimum

    def _cost(self, latencies: Mapping[str, np.ndarray], bill: Bill) -> Outcome:
        gain = speedup(latencies["one profile"], latencies["reference"])
        over_eager = speedup(latencies["eager"], latencies["yours"])
        said = (
            f"A batch costs {np.median(latencies['yours']):.2f} ms, with one profile {np.median(latencies['one profile']):.2f}, with the "
            f"best three {np.median(latencies['reference']):.2f}: {100 * _saving(latencies):.0f} % of the possible saving. "
            f"{100 * bill.padding:.0f} % of the computed tokens are padding. {over_eager} over PyTorch eager at the largest shape."
        )
        if clearly(gain, WORTH_GRADING) is not True:
            hint = "On this machine padding costs too little to tell profiles apart."
            worth = Criterion("what three profiles gain over one here", str(gain), f"at least {WORTH_GRADING:g}x", None)
            return self.judged("cost", [worth], [worth], hint, context=said, cause="this machine cannot tell profiles apart")
        hint = "Sum latency times count over yesterday's shapes. Which shapes pay for most of the padding, and which box would spare them?"
        return self.judged("cost", _criteria(latencies, FULL), _criteria(latencies, PARTIAL, HALF), hint, context=said)


def _recipe(folder: Path) -> Recipe:
    path = folder / "recipe.toml"
    if not path.is_file():
        raise RecipeError(missing("recipe.toml"))
    recipe = Recipe.load(path)
    if not 1 <= len(recipe.profiles) <= MOST:
        raise RecipeError(f"recipe.toml has {len(recipe.profiles)} profiles, the service takes 1 to {MOST}")
    if recipe.precision != "fp32":
        raise RecipeError(f'precision = "{recipe.precision}" is another lab\'s subject: profiles are compared in fp32 here')
    if too_large := [box for box in lab05_service.boxes(recipe) if any(n > m for n, m in zip(box, LARGEST_BOX, strict=True))]:
        raise RecipeError(f"a profile reaches {_spell(too_large[0])}: no batch is larger than {_spell(LARGEST)}")
    return recipe


def _ours(bench: Bench, model: Path, recipe: Recipe) -> AbstractContextManager[TimedWorker]:
    """An engine of the course's own, for comparison."""
    with ours():
        plan = bench.runnable(model, recipe)
    return bench.reference(plan)


def _same_answers(eager: TimedWorker, yours: TimedWorker, recipe: Recipe, rng: np.random.Generator) -> None:
    """Run every box once and look at the answers.

    Raises:
        EngineError: an engine that answers wrongly.
    """
    for box in lab05_service.boxes(recipe):
        feeds = lab05_service.batch(rng, box)
        want, have = eager.infer(feeds)["logits"], yours.infer(feeds).get("logits")
        if have is None or have.shape != want.shape or not np.allclose(have, want, rtol=0.02, atol=0.05):
            raise EngineError(f"the engine's logits at {_spell(box)} are not PyTorch's")


def _largest(recipe: Recipe) -> Box:
    """A shape that every box of the recipe and of the contract can be cut from."""
    boxes = [*lab05_service.boxes(recipe), LARGEST]
    return max(b for b, _ in boxes), max(s for _, s in boxes)


def _saving(latencies: Mapping[str, np.ndarray]) -> float:
    """The part of the possible saving that the hand-in reaches: 0 costs what one profile does, 1 what the best three do."""
    one, best, yours = (float(np.median(latencies[name])) for name in ("one profile", "reference", "yours"))
    return (one - yours) / (one - best) if one > best else 0.0


def _criteria(latencies: Mapping[str, np.ndarray], tier: tuple[float, float], needed_for: str = ALL) -> list[Criterion]:
    """What a tier needs: a batch that clearly costs no more than it allows, and a clear gain over PyTorch eager."""
    part, factor = tier
    one, best = latencies["one profile"], latencies["reference"]
    allowed = np.maximum(one - part * (one - best), factor * best)
    found, most = (float(np.median(each)) for each in (latencies["yours"], allowed))
    over_eager = speedup(latencies["eager"], latencies["yours"])
    cheap = clearly(speedup(allowed, latencies["yours"]), 1.0)
    return [
        Criterion(
            "cost of a batch", f"{found:.2f} ms", f"at most {most:.2f} ms, {100 * part:.0f} % of the saving", cheap, needed_for
        ),
        Criterion(
            "speed over PyTorch eager at the largest shape",
            str(over_eager),
            f"at least {OVER_EAGER:g}x",
            clearly(over_eager, OVER_EAGER),
            needed_for,
        ),
    ]


def _decided(latencies: Mapping[str, np.ndarray]) -> bool:
    """Enough was measured: the tier is clear."""
    full = all_met(_criteria(latencies, FULL))
    return bool(full) or (full is False and all_met(_criteria(latencies, PARTIAL)) is not None)


def _spell(box: Box) -> str:
    return f"{box[0]} x {box[1]}"


def _hint_for_build(error: CourseError) -> str:
    if isinstance(error, PrecisionError) or "precision" in str(error):
        return "Leave `precision` out of the recipe: fp32 is the default."
    if "is missing" in str(error):
        return "Task 1 writes recipe.toml: solve it first, then run its cell again."
    if "profile" in str(error):
        return "Each profile names both inputs, tokens (N, S, 32) and mask (N, S), with min, opt and max; N and S agree."
    return "Build it in the notebook with course_lib.engines.build: the same error appears there."


@cache
def _exported(opset: int | None) -> bytes:
    from course_lib.labs.lab05_network import exported

    return exported(opset)


lab = DynamicShapes()
