"""The blocks of a compiled module: which operators TensorRT runs, which PyTorch runs, and the layer table of each engine.

`module_blocks` compiles a PyTorch module with the released Torch-TensorRT in a worker, with or without a GPU. `read` does the same for a
module that this process has compiled.
"""

from __future__ import annotations

import io
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib._util.html import LEFT, WIDE, notebook_table
from course_lib.engines.backends.tensorrt.layer_sources import parse_build_log, parse_inspector
from course_lib.engines.layers import LayerTable
from course_lib.engines.worker.environment import HERE
from course_lib.engines.worker.parent import Worker
from course_lib.errors import BuildError, ProfileError

if TYPE_CHECKING:
    import torch

_LIMIT_S = 600.0


@dataclass(frozen=True)
class Block:
    """Operators that run consecutively in one place.

    Attributes:
        operators: such as ``"aten.relu.default"``, in order of execution.
        name: of the compiled module's child, "" if it has none.
        plan_bytes: size of the engine, 0 in PyTorch.
        layers: the engine's kernels, empty in PyTorch.
    """

    in_tensorrt: bool
    operators: tuple[str, ...]
    name: str = ""
    plan_bytes: int = 0
    layers: LayerTable = field(default_factory=LayerTable)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` reads them back."""
        return {**asdict(self), "layers": self.layers.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Block:
        """The block that `to_json` wrote."""
        return cls(**{**values, "operators": tuple(values["operators"]), "layers": LayerTable.from_json(values["layers"])})


@dataclass(frozen=True)
class Blocks:
    """The blocks of one compiled module in the order of the run.

    Attributes:
        release: version of Torch-TensorRT.
        relative_error: norm of the difference between the compiled module's answer and eager's, over the norm of eager's.
            Without a GPU, PyTorch computes the lowered graph of each engine. None if it was not computed.
        convertible: whether Torch-TensorRT has a converter for an operator that is in PyTorch.
    """

    blocks: tuple[Block, ...]
    release: str = ""
    relative_error: float | None = None
    convertible: bool = False

    @property
    def engines(self) -> int:
        """Number of blocks that run in TensorRT."""
        return sum(block.in_tensorrt for block in self.blocks)

    @property
    def share(self) -> float:
        """Share of the operators that run in TensorRT, from 0 to 1."""
        sizes = [(len(block.operators), block.in_tensorrt) for block in self.blocks]
        return sum(size for size, inside in sizes if inside) / max(1, sum(size for size, _ in sizes))

    @property
    def in_pytorch(self) -> tuple[str, ...]:
        """The operators outside TensorRT, each once."""
        return tuple(dict.fromkeys(name for block in self.blocks if not block.in_tensorrt for name in block.operators))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` reads them back."""
        return {**asdict(self), "blocks": [block.to_json() for block in self.blocks]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Blocks:
        """The blocks that `to_json` wrote."""
        return cls(**{**values, "blocks": tuple(map(Block.from_json, values["blocks"]))})

    def heading(self) -> str:
        """The result in a line."""
        operators = sum(len(block.operators) for block in self.blocks)
        outside = f"; in PyTorch: {', '.join(self.in_pytorch)}" if self.in_pytorch else ""
        error = "" if self.relative_error is None else f"; relative error of the lowered graph {self.relative_error:.1e}"
        engines = f"{self.engines} engine{'' if self.engines == 1 else 's'}"
        blocks = f"{len(self.blocks)} block{'' if len(self.blocks) == 1 else 's'}"
        return f"Torch-TensorRT {self.release}: {operators} operators in {blocks}, {engines}{outside}{error}"

    def rows(self) -> list[dict[str, str]]:
        """One dict of short texts a block: block, runs in, operators, kernels, plan."""
        return [
            {
                "block": str(number),
                "runs in": "TensorRT" if block.in_tensorrt else "PyTorch",
                "operators": _counted(block.operators),
                "kernels": str(len(block.layers.kernels)) if block.in_tensorrt else "",
                "plan": f"{block.plan_bytes / 1e6:.2f} MB" if block.in_tensorrt else "",
            }
            for number, block in enumerate(self.blocks)
        ]

    def _repr_html_(self) -> str:
        columns = ["block", "runs in", "operators", "kernels", "plan"]
        styles = dict.fromkeys(columns, LEFT) | {"operators": WIDE}
        rows: list[tuple[dict[str, str], list[str]]] = [({}, [row[column] for column in columns]) for row in self.rows()]
        tables = (block.layers._repr_html_() for block in self.blocks if block.in_tensorrt)
        return "".join((notebook_table(self.heading(), styles, rows), *tables))


def _counted(operators: Sequence[str]) -> str:
    """The operators of a block without their namespace; neighbors of one name are counted."""
    short = (name.removeprefix("aten.").removesuffix(".default") for name in operators)
    runs = ((name, len(list(run))) for name, run in groupby(short))
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in runs)


def read(compiled: torch.nn.Module, release: str = "") -> Blocks:
    """The blocks of a module that ``torch_tensorrt.compile(ir="dynamo")`` returned in this process."""
    import torch

    blocks: list[Block] = []
    graph = getattr(compiled, "graph", None)
    for node in graph.nodes if graph else ():
        if node.op == "call_module" and "_run_on_" in str(node.target):  # others are PyTorch's own, such as guards
            child = compiled.get_submodule(str(node.target))
            inside = "_run_on_acc" in str(node.target)  # how both partitioners name what goes to TensorRT
            lowered = getattr(child, "lowered", child)
            names = tuple(_operators(lowered)) if isinstance(lowered, torch.fx.GraphModule) else ()
            plan = getattr(child, "serialized_engine", None) or b""
            blocks.append(Block(inside, names, str(node.target), len(plan), _layers(child)))
        elif node.op == "call_function" and node.target is not operator.getitem:
            names = (str(node.target),)
            if blocks and not blocks[-1].in_tensorrt and not blocks[-1].name:
                names = (*blocks.pop().operators, *names)
            blocks.append(Block(False, names))
    return Blocks(tuple(blocks), release)


def _operators(graph: torch.fx.GraphModule) -> Iterator[str]:
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            yield str(node.target)


def _layers(child: Any) -> LayerTable:
    if log := getattr(child, "layer_log", ""):
        return parse_build_log(log)
    inspect = getattr(child, "get_layer_info", None)  # with a GPU; it fails for an engine that has no details
    try:
        return parse_inspector(str(inspect())) if inspect else LayerTable()
    except (RuntimeError, ProfileError):
        return LayerTable()


def module_blocks(
    module: torch.nn.Module, inputs: Mapping[str, Any], *, time_limit_s: float = _LIMIT_S, **options: Any
) -> Blocks:
    """Compile a module in a worker, and describe its blocks. Operators that TensorRT cannot run stay in PyTorch.

    Args:
        module: in eval mode.
        inputs: by the name of ``forward``'s arguments, in their order: a shape, a range of shapes, ``{"min": ..., "opt": ...,
            "max": ...}``, or an example, which is necessary for an input of integers.
        options: keywords of ``torch_tensorrt.compile`` whose values are numbers, texts, booleans or lists of these.

    Raises:
        BackendUnavailable: Torch-TensorRT is not installed.
        BuildError: the module cannot be exported, an option would be ignored, or the compiler rejects the module.
    """
    exported, shapes = _exported(module, inputs)
    file = io.BytesIO()
    import torch

    torch.export.save(exported, file)
    with Worker(HERE, timeout_s=time_limit_s) as worker:
        request = {"do": "module", "inputs": shapes, "options": dict(options)}
        header, _ = worker._ask(request, {"program": np.frombuffer(file.getvalue(), np.uint8)})
    return Blocks.from_json(header["blocks"])


def answer(request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The worker's end of `module_blocks`."""
    import torch

    from course_lib.engines.backends.torch_tensorrt import engine, without_gpu

    if find_spec("torch_tensorrt") is None:  # the build for a machine with a GPU is not installed
        without_gpu.hide_gpus()
    torch_tensorrt = without_gpu.load()
    program = torch.export.load(io.BytesIO(arrays["program"].tobytes()))
    if torch.cuda.is_available():
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, "cuda")
    examples = program.example_inputs[0] if program.example_inputs else ()
    compiled = engine.compile_exported(program, request["inputs"], examples, request["options"])
    found = read(compiled, torch_tensorrt.__version__.partition("+")[0])
    with torch.inference_mode():
        error = relative_error(compiled(*examples), program.module()(*examples))
    nodes = (node for graph in compiled.modules() if isinstance(graph, torch.fx.GraphModule) for node in graph.graph.nodes)
    outside = (node for node in nodes if str(node.target) in found.in_pytorch)
    convertible = any(node in torch_tensorrt.dynamo.conversion.DYNAMO_CONVERTERS for node in outside)
    return {"blocks": Blocks(found.blocks, found.release, error, convertible).to_json()}


def relative_error(found: Any, expected: Any) -> float:
    """The norm of the difference over the norm of what is expected, over all outputs."""
    pairs = list(zip(_tensors(found), _tensors(expected), strict=True))
    off = sum(float((one.double() - other.double()).norm() ** 2) for one, other in pairs)
    size = sum(float(other.double().norm() ** 2) for _, other in pairs)
    return (off / size) ** 0.5 if size else off**0.5


def _tensors(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _exported(module: Any, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The exported module, and its inputs as plain values: a shape, or a range by bound."""
    import torch

    kind = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)
    examples: list[torch.Tensor] = []
    dims: list[Any] = []
    shapes: dict[str, Any] = {}
    for name, given in inputs.items():
        if isinstance(given, torch.Tensor):
            examples.append(given)
            dims.append(None)
            shapes[name] = list(given.shape)
            continue
        bounds = {bound: list(given[bound]) for bound in ("min", "opt", "max")} if isinstance(given, Mapping) else {}
        shape = bounds.get("opt") or list(given)
        examples.append(torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(kind))
        axes = {axis for axis in range(len(shape)) if bounds and bounds["min"][axis] != bounds["max"][axis]}
        named = {axis: (bounds["min"][axis], bounds["max"][axis]) for axis in axes}
        dims.append({a: torch.export.Dim(f"{name}_{a}", min=low, max=high) for a, (low, high) in named.items()} or None)
        shapes[name] = bounds or shape
    before = logging.root.manager.disable
    try:
        logging.disable(logging.CRITICAL)  # PyTorch logs the graph up to an error, which the message below has
        dynamic = tuple(dims) if any(dims) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on the module's own code, which is exported all the same
            return torch.export.export(module.eval(), tuple(examples), dynamic_shapes=dynamic), shapes
    except Exception as error:  # classes of several parts of PyTorch, without a common public base
        raise BuildError(f"torch.export rejects the module: {' '.join(str(error).split())[:300]}") from None
    finally:
        logging.disable(before)
