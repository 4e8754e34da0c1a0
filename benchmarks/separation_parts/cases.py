"""The engines that `separation.py` compares: each differs from a fixed shape, alone and with all libraries, in a single respect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx

from course_lib.precision import cast
from course_lib.recipe import Profile, Recipe

BATCHES = (1, 8, 64)
SHAPES = {"resnet50": (3, 224, 224), "unet": (3, 256, 256)}  # of one image
RESTRICTED = "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS"  # where cuBLAS and cuDNN are missing
_WORKSPACE_MIB = 4096


@dataclass(frozen=True)
class Case:
    """One engine of a network.

    Attributes:
        name: of the way to build it; the same for all precisions and batch sizes.
        precision: ``"fp32"``, which permits TF32, or ``"fp16"``, which permits FP32 and TF32, too.
        batches: one is a fixed shape; several are one engine with an optimization profile of exactly that size for each.
        libraries: cuBLAS and cuDNN are in place and all tactic sources are on.
        half_tensors: FP16 in the file's weights, its input and its output; otherwise FP32, and the builder converts.
        company: built while the other engines with this mark are built on the same GPU.
        torch_tensorrt: made by Torch-TensorRT from the module instead of from an ONNX file.
        demanded: FP16 is demanded of convolutions and matrix products, as in the recorded headline table.
        network: a key of `SHAPES`.
    """

    name: str
    precision: str
    batches: tuple[int, ...]
    libraries: bool = True
    half_tensors: bool = False
    company: bool = False
    torch_tensorrt: bool = False
    demanded: bool = False
    network: str = "resnet50"

    @property
    def key(self) -> str:
        """Name of its files, without an ending."""
        batches = "-".join(map(str, self.batches))
        return f"{self.network}.{self.precision}.{self.name.replace(',', '').replace(' ', '-')}.{batches}"

    @property
    def recipe(self) -> dict[str, Any]:
        """Plain JSON values; a `Recipe` has no flag that only permits FP16."""
        profiles = self.batches if len(self.batches) > 1 else ()
        exact = [dict.fromkeys(("min", "opt", "max"), (batch, *SHAPES[self.network])) for batch in profiles]
        recipe = Recipe(workspace_mib=_WORKSPACE_MIB, profiles=tuple(Profile({"image": sizes}) for sizes in exact)).wire()
        permitted = self.precision == "fp16" and not self.demanded
        precision = "fp16" if self.demanded else "fp32"
        return {**recipe, "precision": precision, "flags": ["tf32", *(["fp16"] if permitted else [])]}


def cases() -> list[Case]:
    """In the order of their worth: an interrupted run has the first ones."""
    half = partial(Case, precision="fp16", half_tensors=True)
    fixed = [
        Case("fixed shape", precision, (batch,), half_tensors=precision == "fp16", network=network)
        for network in SHAPES
        for precision in ("fp16", "fp32")
        for batch in (8, 1, 64)
    ]
    alone = [
        half("without libraries", batches=(8,), libraries=False),
        Case("FP32 tensors", "fp16", (8,)),
        Case("FP16 demanded", "fp16", (8,), demanded=True),
        half("three profiles", batches=BATCHES),
    ]
    torch = [half("Torch-TensorRT", batches=(batch,), torch_tensorrt=True) for batch in (8, 1, 64)]
    company = [half("in company", batches=(batch,), company=True) for batch in (8, 1)]
    company += [Case("as recorded", "fp16", BATCHES, libraries=False, company=True, demanded=True)]
    return [*fixed[:3], *alone, *company, *fixed[3:9], *torch, *fixed[9:]]


def model_for(case: Case, exported: onnx.ModelProto) -> onnx.ModelProto:
    """The exported network with the tensor types and the batch size of a case."""
    model = cast(exported, "fp16") if case.half_tensors else onnx.ModelProto.FromString(exported.SerializeToString())
    outputs = {value.name for value in model.graph.output}
    for value in (*model.graph.input, *model.graph.output):
        if case.half_tensors:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        if len(case.batches) == 1:
            value.type.tensor_type.shape.dim[0].dim_value = case.batches[0]
    for node in model.graph.node:
        if case.half_tensors and node.op_type == "Cast" and outputs & {*node.output}:
            node.attribute[0].i = onnx.TensorProto.FLOAT16
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    return model
