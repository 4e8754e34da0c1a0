"""The process that exports a learner's module: source text in, the graph of `torch.export` out, as plain values without weights.

It is started as text, by `isolation.text_command`, in a sandbox without the course. It has torch, numpy and Python's own modules. The
notebook and the judge use `described` too, for modules of the course.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, answered, encoded, run

CLASS = "Rewritten"
MOST_NODES = 2000
_COMPOSITE = "CompositeImplicitAutograd"  # the kernel of operators that `torch.export` of every version decomposes
_CHECKS = "aten._assert_"  # later exports write such operators; they compute nothing
_KEPT = "aten.scaled_dot_product_attention"  # a pass of Torch-TensorRT 2.2 keeps it as one operator


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """See `learner_code.answered`. A question has ``shape``, of the input, and ``decomposed``, names of operators."""
    return answered(request, {CLASS: _exported})


def _exported(learner_class: Callable[[], Any], question: dict[str, Any]) -> dict[str, Any]:
    """The ``nodes``, the ``state``: the shapes in the state_dict by key, and the ``types`` there."""
    import torch

    torch.set_num_threads(1)
    module = learner_class()
    given = {str(key): value for key, value in module.state_dict().items()}
    state = {key: list(value.shape) for key, value in given.items()}
    types = {key: str(value.dtype).removeprefix("torch.") for key, value in given.items()}
    example = torch.rand(question["shape"], generator=torch.Generator().manual_seed(0))
    return {"nodes": described(module, example, question["decomposed"]), "state": state, "types": types}


def described(module: Any, example: Any, decomposed: Sequence[str]) -> list[dict[str, Any]]:
    """The nodes of an exported module in order.

    ``name`` and ``kind``: ``"input"``; ``"weight"`` with its ``key`` in the state_dict; ``"constant"`` with its ``value``, `encoded`;
    ``"call"`` with ``operator``, ``args`` and ``kwargs``; or ``"output"`` with ``args``. `plain` says what an argument looks like.

    Args:
        module: a torch.nn.Module with one input.
        example: the input.
        decomposed: operators that are decomposed, as Torch-TensorRT 2.2 does it. PyTorch decomposes composite ones in any case.

    Raises:
        TypeError: it has control flow, more than one output, or arguments of another kind.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module.eval(), (example,)).run_decompositions(_table(decomposed))
    signature = exported.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = dict(signature.inputs_to_lifted_tensor_constants)
    nodes: list[dict[str, Any]] = []
    for node in exported.graph.nodes:
        one: dict[str, Any] = {"name": node.name}
        if node.op == "placeholder":
            key = weights.get(node.name) or constants.get(node.name)
            if key in exported.state_dict:
                one |= {"kind": "weight", "key": key}
            elif key:
                one |= {"kind": "constant", "value": encoded(exported.constants[key].detach().numpy())}
            else:
                one |= {"kind": "input"}
        elif str(node.target).startswith(_CHECKS):
            continue
        elif node.op == "call_function":
            args, kwargs = [plain(value) for value in node.args], {key: plain(value) for key, value in node.kwargs.items()}
            one |= {"kind": "call", "operator": _name(node.target), "args": args, "kwargs": kwargs}
        elif node.op == "output":
            one |= {"kind": "output", "args": [plain(value) for value in node.args[0]]}
        else:
            raise TypeError(f"the exported graph has a node of the kind {node.op}, such as control flow: {node.name}")
        nodes.append(one)
    if len(nodes) > MOST_NODES:
        raise TypeError(f"the exported graph has {len(nodes)} nodes, more than {MOST_NODES}")
    return nodes


def plain(value: Any) -> Any:
    """An argument as JSON values: a node as ``{"node": name}``, a type as ``{"dtype": name}``, a layout or device as None."""
    import torch

    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (torch.layout, torch.device, torch.memory_format)):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"an operator has an argument of the type {type(value).__name__}")


def _name(target: Any) -> str:
    text = str(target)
    return f"operator.{target.__name__}" if text.startswith("<") else text


def _table(decomposed: Sequence[str]) -> Any:
    """PyTorch's decompositions of composite operators, and those of `decomposed`."""
    import torch
    from torch._decomp import core_aten_decompositions

    table = torch.export.default_decompositions()
    wanted = set(decomposed)
    core = set(core_aten_decompositions())
    for operator in list(table):
        packet, _, _ = str(operator).rpartition(".")
        listed = operator in core and not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), _COMPOSITE)
        if packet == _KEPT or (listed and not wanted & {str(operator), packet}):
            table.pop(operator)
    extra = torch._decomp.get_decompositions([operator for name in wanted if (operator := _operator(name))])
    for operator, function in extra.items():
        if operator not in table:
            table[operator] = function
    table[torch.ops.aten.alias.default] = lambda x: x  # a slice of a whole tensor; PyTorch makes it prims.view_of
    table[torch.ops.aten.reciprocal.default] = lambda x: torch.div(1, x)
    table[torch.ops.aten.rsqrt.default] = lambda x: torch.div(1, torch.sqrt(x))
    table[torch.ops.prims.var.default] = _variance
    return table


def _variance(x: Any, dims: Sequence[int] | None, correction: float = 1, **_: Any) -> Any:
    import torch

    dims = list(dims or range(x.ndim))
    difference = x - torch.mean(x, dims, keepdim=True)
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    return torch.sum(difference * difference, dims) / (count - correction)


def _operator(name: str) -> Any:
    import torch

    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def main() -> None:
    """Answer one request."""
    run(answers, OnlyPackages("torch", "numpy", file="model.py"))
