"""What the headline table compares: five networks, and the candidates that run each."""

from __future__ import annotations

from dataclasses import dataclass

BATCHES = (1, 8, 64)
COMPILED = BATCHES
BASELINE = "eager fp32"
PLUGIN = "fp16-attention"  # FP16 with the course's attention plugin; the name of the plan
IMAGES = 256  # inputs of a network that are taken in turn: four batches of 64


@dataclass(frozen=True)
class Network:
    """A network of the table.

    Attributes:
        name: in commands and file names; `title` in the table.
        factory: of `yardsticks.make`, with its arguments.
        attention: matrix products carry it, and torch's defaults keep TF32 from them; convolutions get it in any case.
        heads: of each attention, all of whose size is that of the course's attention plugin; 0 where the plugin does not fit.
        frames: it is fed with frames of the digit video, whose truth is known, otherwise with noise.
    """

    name: str
    title: str
    factory: str
    arguments: tuple[int | str, ...] = ()
    attention: bool = False
    heads: int = 0
    frames: bool = False

    @property
    def int8(self) -> tuple[str, ...]:
        """Ways to an INT8 engine, of `building.WAYS`, in the order in which they are tried."""
        return ("qdq", "qdq per tensor", "calibrator") if self.attention else ("calibrator", "qdq")


NETWORKS = (
    Network("resnet50", "ResNet-50", "resnet50"),
    Network("bert", "BERT-base", "bert_base", attention=True, heads=12),
    Network("vit", "ViT-B/16", "vit_b16", attention=True, heads=12),
    Network("unet", "U-Net", "unet"),
    Network("detector", "detector", "detector", frames=True),
)
SMALL = (  # the same code in seconds on a CPU
    Network("resnet50", "ResNet-50", "classifier", ("small",)),
    Network("bert", "BERT-base", "bert_base", (1, 32, 2, 8), attention=True),
    Network("vit", "ViT-B/16", "vit_b16", (1, 32, 2, 32), attention=True),
    Network("unet", "U-Net", "unet", (4, 2, 32)),
    Network("detector", "detector", "detector", frames=True),
)


@dataclass(frozen=True)
class Candidate:
    """One way to run a network.

    Attributes:
        name: in the table.
        group: the process that holds it: ``"torch"``, ``"torch tf32"``, ``"onnxruntime"`` or ``"tensorrt"``.
        dtype: of the arithmetic: ``"fp32"``, ``"tf32"``, ``"fp16"`` or ``"int8"``.
        same: the eager candidate of the same dtype; for INT8, which eager has not, that of FP16.
        variant: of torch, see `course_lib.engines.ModelSource`; of a plan ``"plain"`` or ``"cuda_graph"``.
        plan: name of the plan that it runs; empty for torch.
    """

    name: str
    group: str
    dtype: str
    same: str
    variant: str
    plan: str = ""

    @property
    def needs_building(self) -> bool:
        return bool(self.plan) or "compile" in self.variant


def candidates(network: Network, target: str, *, gpu: bool, compiled: bool = True) -> list[Candidate]:
    """All of a network's candidates, the baseline first.

    Args:
        target: ``tensorrt@trt8``, or ``onnxruntime`` where no TensorRT is: then its plans stand for TensorRT's.
        gpu: without one there are neither CUDA graphs nor compiled kernels.
        compiled: include torch.compile.
    """
    wide = "tf32" if network.attention else "fp32"
    found = [_torch("eager", dtype) for dtype in dict.fromkeys(("fp32", wide, "fp16"))]
    if gpu:
        found += [_torch("cuda_graph", wide), _torch("cuda_graph", "fp16")]
    if gpu and compiled:
        found += [_torch(variant, dtype) for dtype in (wide, "fp16") for variant in ("compile", "compile+cuda_graph")]
    engine = target.partition("@")[0]
    for dtype in ("fp32", "fp16"):
        if engine != "onnxruntime":
            found.append(_plan("onnxruntime", dtype, wide, "plain"))
    for dtype in ("fp32", "fp16", "int8"):
        for variant in ("plain", "cuda_graph") if engine == "tensorrt" else ("plain",):
            found.append(_plan(engine, dtype, wide, variant))
    if engine == "tensorrt" and network.heads:
        found += [_plan(engine, PLUGIN, wide, variant) for variant in ("plain", "cuda_graph")]
    return found


def rivals(candidate: Candidate, others: list[Candidate]) -> list[str]:
    """Whom a candidate's speedups are taken over: eager FP32 and eager in its dtype; a plan also all of torch in its dtype."""
    named = [BASELINE, candidate.same]
    if candidate.plan:
        named += [other.name for other in others if other.same == candidate.same and not other.plan]
    return [name for name in dict.fromkeys(named) if name != candidate.name and name in {other.name for other in others}]


def _torch(variant: str, dtype: str) -> Candidate:
    group = "torch tf32" if dtype == "tf32" else "torch"
    return Candidate(f"{variant.replace('_', ' ')} {dtype}", group, dtype, f"eager {dtype}", variant)


_NAMES = {"onnxruntime": "onnxruntime", "tensorrt": "TensorRT"}


def _plan(engine: str, dtype: str, wide: str, variant: str) -> Candidate:
    same = f"eager {wide if dtype == 'fp32' else 'fp16'}"
    label = {"fp32": "fp32/TF32", PLUGIN: "fp16, attention plugin"}.get(dtype, dtype)
    plan, dtype = f"{engine}.{dtype}", "fp16" if dtype == PLUGIN else dtype
    graph = " + CUDA graph" if variant == "cuda_graph" else ""
    return Candidate(f"{_NAMES.get(engine, engine)} {label}{graph}", engine, dtype, same, variant, plan)
