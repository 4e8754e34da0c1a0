"""What the compiler makes of a decoder in FP16: fused attention, and the tensors of the cache's size that a step writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from course_lib.engines import Layer, LayerTable, split_target
from course_lib.errors import PRECISION, PROFILE, BuildError, CourseError, ExaminerFault
from course_lib.labs.framework import one_graph
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab13_generation import graph_form
from course_lib.labs.lab13_generation.bypass import bypassed
from course_lib.labs.lab13_generation.graph_form import GraphForm
from course_lib.labs.lab13_generation.half import halved
from course_lib.labs.lab13_generation.network import BLOCKS, CACHE_SHAPE, HEADS, LENGTH, SIZE
from course_lib.recipe import Recipe

# TensorRT 8.6 has neither the operators nor a table of kernels, and 10 has the cache from 10.15 on. TensorRT for RTX compiles on any
# machine, for a GPU that need not be there.
PROVER, ITS_TARGET = "tensorrt_rtx", "sm89"
LONGEST_PROMPT = 232  # of the service, so that 24 new tokens fit


@dataclass(frozen=True)
class Kernels:
    """Counts of one plan.

    Attributes:
        attention: kernels that compute a whole attention.
        split: products of activations and softmaxes outside of these kernels.
        bypassed: caches that reach the logits without passing through one of these kernels.
        large: tensors of at least the cache's size that kernels write; the caches themselves are `2 * BLOCKS`.
        total: all kernels.
    """

    attention: int
    split: int
    bypassed: tuple[str, ...]
    large: int
    total: int

    @classmethod
    def of(cls, table: LayerTable, products: tuple[str, ...], bypasses: Callable[[set[str]], tuple[str, ...]]) -> Kernels:
        """The counts of a layer table. `bypasses` finds the caches that bypass the fused nodes."""
        fused = list(filter(_is_attention, table.kernels))
        inside = {node for kernel in fused for node in kernel.onnx_nodes}
        parts = {*products, *(node for node, operator in table.operators.items() if operator == "Softmax")}
        size = math.prod(CACHE_SHAPE)
        large = [tensor for kernel in table.kernels for tensor in kernel.outputs if math.prod(map(abs, tensor.shape)) >= size]
        return cls(len(fused), len(parts - inside), bypasses(inside), len(large), len(table.kernels))

    @property
    def whole(self) -> int:
        """How many of the network's attentions are one kernel: two parts outside of these kernels are one that is split.

        So is an attention that reads a cache in another way, with whatever operators.
        """
        elsewhere = len({name.partition("_")[2] for name in self.bypassed})
        return max(0, min(BLOCKS, self.attention) - max(math.ceil(self.split / 2), elsewhere))


def _is_attention(kernel: Layer) -> bool:
    """The compiler's own name for a fused attention. Other kernels have names that a submission can choose, but not this kind.

    It answers for each new token. One with more numbers hands entries of a cache to another attention.
    """
    named = kernel.kind == "kgen" and kernel.name.startswith(("_gemm_mha", "_gemv_mha"))
    return named and all(math.prod(map(abs, tensor.shape)) <= HEADS * SIZE for tensor in kernel.outputs)


@dataclass(frozen=True)
class Plans:
    """The counts of both uses of a decoder: a prompt in one call, and a token alone."""

    prompt: Kernels
    token: Kernels


def profiles(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """The recipe with its profile for prompts alone, and with that for single tokens alone.

    Raises:
        BuildError: it has other profiles than these two.
    """
    if recipe.precision != "fp16":
        raise BuildError(
            f'recipe.toml says precision = "{recipe.precision}"; the grader compiles your graph in "fp16"', code=PRECISION
        )
    if len(recipe.profiles) != 2:
        raise BuildError(f"recipe.toml has {len(recipe.profiles)} profiles, expected two: prompts, and one token", code=PROFILE)
    found: dict[bool, Recipe] = {}
    for profile in recipe.profiles:
        shapes = profile.root.get("tokens")
        if shapes is None or len(profile.root) != 1 or len(shapes.max) != 2:
            raise BuildError(
                "each profile must give min, opt and max of `tokens` (1, new), and of no other input", code=PROFILE
            )
        found[shapes.max[1] == 1] = recipe.model_copy(update={"profiles": (profile,)})
    if True not in found:
        raise BuildError("no profile is for a single token alone: one must have max = (1, 1)", code=PROFILE)
    if False not in found:
        raise BuildError("both profiles are for a single token alone: one must accept prompts", code=PROFILE)
    shapes = found[False].profiles[0].root["tokens"]
    if not all(shapes.contains((1, size)) for size in (2, LONGEST_PROMPT)) or shapes.max[1] > LENGTH:
        raise BuildError(
            f"the profile for prompts must accept 2 to {LONGEST_PROMPT} tokens, and at most {LENGTH}, the slots of the cache",
            code=PROFILE,
        )
    return found[False], found[True]


def plans(model: bytes, form: GraphForm, recipe: Recipe, examiner: Examiner) -> Plans:
    """Compile a float32 graph in FP16, once for each profile.

    Raises:
        BuildError: the graph cannot be turned into FP16, or the builder rejects it.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder, "decoder.onnx")
        half = halved(model, launcher=examiner.launcher)
        path.write_bytes(half)
        bypasses = partial(bypassed, half, launcher=examiner.launcher)
        found = [Kernels.of(_built(path, one, examiner), form.products, bypasses) for one in profiles(recipe)]
    return Plans(*found)


def _built(model: Path, recipe: Recipe, examiner: Examiner) -> LayerTable:
    """The layer table of `PROVER`, so that a verdict is the same on every machine."""
    builder = examiner.builder if split_target(examiner.builder)[0] == PROVER else PROVER
    return replace(examiner, builder=builder).build(model, recipe.model_copy(update={"targets": (ITS_TARGET,)})).layers


@cache
def reference_plans() -> Plans:
    """The reference's counts. No sandbox: it is the course's own network.

    Raises:
        ExaminerFault: it cannot be built, or its tables show no fused attention.
    """
    from course_lib.labs.lab13_generation import reference

    examiner = Examiner(builder=PROVER)
    try:
        with TemporaryDirectory() as folder:
            written = Path(folder, "decoder.onnx")
            written.write_bytes(reference.serialized())
            with TemporaryDirectory() as scratch:
                model = one_graph.fixed(written, Path(scratch), examiner).read_bytes()
            found = plans(model, graph_form.examined(model), reference.RECIPE, examiner)
    except CourseError as error:
        raise ExaminerFault(f"the reference cannot be built: {error}") from None
    if not (found.prompt.attention and found.token.attention):
        raise ExaminerFault(f"{PROVER} does not show which kernels its engines have")
    return found
