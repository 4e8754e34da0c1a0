"""An exported module as a graph that PyTorch can run, with the changes that Torch-TensorRT 2.2.0 makes before it divides a graph.

The nodes may come from a hostile process. Only operators of PyTorch that compute tensors from tensors are accepted.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import EngineError
from course_lib.labs.framework.learner_answers import decoded
from course_lib.labs.lab11_torch_tensorrt import release

if TYPE_CHECKING:
    import torch

Node = dict[str, Any]
_MAX_POOLS = {f"aten.max_pool{n}d_with_indices.default": f"aten.max_pool{n}d.default" for n in (1, 2, 3)}
_RENAMED = {
    "aten.view.default": "aten.reshape.default",
    "aten._unsafe_view.default": "aten.reshape.default",
    "aten._reshape_alias.default": "aten.reshape.default",
}
_WITHOUT_TENSORS = (
    *("aten.arange.", "aten.full.", "aten.zeros.", "aten.ones.", "aten.eye.", "aten.scalar_tensor.", "prims.iota."),
    *("aten.empty.", "aten.empty_strided."),  # filled afterwards, and folded into a constant
)
_MOST_DEPTH = 6  # levels of lists in an argument


def built(nodes: Sequence[Node], weights: Mapping[str, torch.Tensor], inputs: torch.Tensor) -> torch.fx.GraphModule:
    """The lowered graph. Each node has its value for `inputs` in ``meta["val"]``, in the type that the module names.

    Args:
        nodes: what `export_model.described` returns.
        weights: the state_dict.

    Raises:
        EngineError: the nodes are not a graph of operators, or cannot be run.
    """
    try:
        return _Builder(weights, inputs).graph_module(nodes)
    except EngineError:
        raise
    except Exception as error:  # the shapes and types of a hostile graph fail in more ways than PyTorch has classes for
        raise EngineError(f"the exported graph cannot be run: {' '.join(f'{error}'.split())[:120]}") from None


class _Builder:
    def __init__(self, weights: Mapping[str, torch.Tensor], inputs: torch.Tensor) -> None:
        import torch

        self.weights, self.inputs, self.tensor = weights, inputs, torch.Tensor
        self.root, self.graph = torch.nn.Module(), torch.fx.Graph()
        self.made: dict[str, torch.fx.Node] = {}
        self.constant: set[torch.fx.Node] = set()

    def graph_module(self, nodes: Sequence[Node]) -> torch.fx.GraphModule:
        import torch

        kinds = {"input": self._input, "weight": self._weight, "constant": self._constant, "call": self._call}
        if not nodes or nodes[-1]["kind"] != "output":
            raise EngineError("the exported graph has no output")
        with torch.inference_mode():
            for one in nodes[:-1]:
                self.made[str(one["name"])] = kinds[one["kind"]](one)
        self._output(nodes[-1])
        _replace_max_pools(self.graph)
        self.graph.eliminate_dead_code()
        self.graph.lint()
        return torch.fx.GraphModule(self.root, self.graph)

    def _input(self, one: Node) -> torch.fx.Node:
        if any(node.op == "placeholder" for node in self.graph.nodes):
            raise EngineError("the module has more than one input")
        node = self.graph.placeholder("inputs")
        node.meta["val"] = self.inputs
        return node

    def _weight(self, one: Node) -> torch.fx.Node:
        if one["key"] not in self.weights:
            raise EngineError(f"the module has a weight {str(one['key'])[:60]!r}, which is not in the given state_dict")
        return self._attribute(self.weights[one["key"]])

    def _constant(self, one: Node) -> torch.fx.Node:
        import torch

        return self._attribute(torch.from_numpy(decoded(one["value"], "iufb").copy()))

    def _call(self, one: Node) -> torch.fx.Node:
        name = str(one["operator"])
        args, kwargs = self._argument(one["args"]), {str(key): self._argument(value) for key, value in one["kwargs"].items()}
        kwargs = {key: value for key, value in kwargs.items() if value is not None}
        target = _target(_RENAMED.get(name, name))
        node = self.graph.call_function(target, tuple(args), kwargs)
        value = _run(node)
        is_tensor = isinstance(value, self.tensor)
        if is_tensor and all(need in self.constant for need in node.all_input_nodes):
            self.graph.erase_node(node)
            return self._attribute(value)
        node.meta["val"] = value
        # The splitter of PyTorch keeps nodes together that have no `tensor_meta`; those that a pass writes have none.
        if is_tensor and name not in _RENAMED and release.ATTENTION not in name:
            node.meta["tensor_meta"] = True
        return node

    def _output(self, one: Node) -> None:
        outputs = self._argument(one["args"])
        if len(outputs) != 1 or not hasattr(outputs[0], "meta"):
            raise EngineError("the module must return one tensor")
        self.graph.output(outputs[0])

    def _attribute(self, value: torch.Tensor) -> torch.fx.Node:
        name = f"constant_{len(self.made)}_{len(self.constant)}"
        self.root.register_buffer(name, value)
        node = self.graph.get_attr(name)
        node.meta["val"] = self.root.get_buffer(name)
        self.constant.add(node)
        return node

    def _argument(self, value: Any, depth: int = 0) -> Any:
        import torch

        if isinstance(value, list) and depth < _MOST_DEPTH:
            return [self._argument(one, depth + 1) for one in value]
        if isinstance(value, dict) and "node" in value:
            return self.made[value["node"]]
        if isinstance(value, dict) and "dtype" in value:
            found = getattr(torch, str(value["dtype"]))
            if not isinstance(found, torch.dtype):
                raise EngineError("an operator has an unknown type")
            return found
        if value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 40):
            return value
        raise EngineError("an operator has an argument that is neither a number, a node nor a list")


def _target(name: str) -> Any:
    """The function of an operator.

    Raises:
        EngineError: it is unknown, or does anything but compute tensors.
    """
    import torch

    if name == "operator.getitem":
        return operator.getitem
    if name.startswith(f"aten.{release.ATTENTION}."):
        return torch.nn.functional.scaled_dot_product_attention
    space, packet, overload = [*name.split("."), "", ""][:3]
    found = getattr(getattr(getattr(torch.ops, space), packet, None), overload, None) if space in ("aten", "prims") else None
    if not isinstance(found, torch._ops.OpOverload):
        raise EngineError(f"the exported graph has an operator {name[:60]!r}, which the grader does not run")
    schema = found._schema
    takes = any("Tensor" in str(one.type) for one in schema.arguments) or name.startswith(_WITHOUT_TENSORS)
    random = torch.Tag.nondeterministic_seeded in found.tags
    if schema.is_mutable or not takes or random or not schema.returns:
        raise EngineError(f"the exported graph has an operator {name[:60]!r}, which the grader does not run")
    return found


def _run(node: torch.fx.Node) -> Any:
    import torch

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda need: need.meta["val"])
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _replace_max_pools(graph: torch.fx.Graph) -> None:
    """A pooling whose indices are not used becomes one without indices, as a pass of 2.2.0 does it."""
    for node in list(graph.nodes):
        users = list(node.users)
        name = _MAX_POOLS.get(str(node.target))
        if name and len(users) == 1 and users[0].target is operator.getitem and users[0].args[1] == 0:
            with graph.inserting_after(users[0]):
                pooled = graph.call_function(_target(name), node.args, node.kwargs)
            pooled.meta["val"] = users[0].meta["val"]
            users[0].replace_all_uses_with(pooled)
            graph.erase_node(users[0])
            graph.erase_node(node)
