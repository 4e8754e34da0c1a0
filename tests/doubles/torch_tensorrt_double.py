"""A stand-in for ``torch_tensorrt``, which needs a GPU and TensorRT to be imported at all.

It compiles nothing: the module runs in PyTorch under the name that the real partitioner gives to what TensorRT takes. Its
signatures are those of the released wheels, unknown ``**kwargs`` included; `tests/engines/test_torch_trt.py` checks that.
"""

from types import ModuleType
from typing import Any

import torch


class Input:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.said = kwargs
        self.shape = kwargs.get("shape") or kwargs["opt_shape"]

    def tensor(self) -> torch.Tensor:
        return torch.zeros(self.shape, dtype=self.said["dtype"])


def make(version: str, *, converts: bool = True) -> ModuleType:
    """The stand-in as a module.

    Args:
        version: such as ``"2.13.0+cu130"``.
        converts: whether the module goes to TensorRT; False leaves all of it in PyTorch.
    """
    double = ModuleType("torch_tensorrt")
    calls: list[tuple[str, dict[str, Any]]] = []

    def compile(
        module: Any,
        ir: str = "default",
        inputs: Any = None,
        arg_inputs: Any = None,
        kwarg_inputs: Any = None,
        enabled_precisions: Any = None,
        **kwargs: Any,
    ) -> Any:
        assert ir == "dynamo" and inputs is None and enabled_precisions is None
        calls.append(("compile", {"arg_inputs": arg_inputs, **kwargs}))
        if len(arg_inputs) > 1:
            raise AssertionError("'arg_inputs' do not fit\nthe signature of forward")
        part = "_run_on_acc_0" if converts else "_run_on_gpu_0"
        graph = torch.fx.Graph()
        graph.output(graph.call_module(part, (graph.placeholder("x"),)))
        return torch.fx.GraphModule({part: module}, graph)

    def save(
        module: Any,
        file_path: str = "",
        *,
        extra_files: Any = None,
        output_format: str = "exported_program",
        inputs: Any = None,
        arg_inputs: Any = None,
        kwarg_inputs: Any = None,
        retrace: bool = True,
        use_legacy_exporter: Any = None,
        pickle_protocol: int = 2,
        dynamic_shapes: Any = None,
        **kwargs: Any,
    ) -> None:
        calls.append(("save", {"output_format": output_format, **kwargs}))
        torch.export.save(torch.export.export(module, tuple(spec.tensor() for spec in arg_inputs)), file_path)

    def load(file_path: str = "", extra_files: Any = None, **kwargs: Any) -> Any:
        calls.append(("load", kwargs))
        return torch.export.load(file_path, extra_files=extra_files)

    double.__dict__.update(__version__=version, Input=Input, compile=compile, save=save, load=load, calls=calls)
    return double


def make_2_2(*, unsupported: tuple[str, ...] = ()) -> ModuleType:
    """A stand-in for 2.2, whose `compile` takes ``inputs`` and the engine's types, and leaves operators in PyTorch without an error.

    Args:
        unsupported: operators that stay in PyTorch, such as ``"aten.cumprod.default"``. The rest of the module is run first.
    """
    double = ModuleType("torch_tensorrt")
    calls: list[tuple[str, dict[str, Any]]] = []

    def compile(module: Any, ir: str = "default", inputs: Any = None, enabled_precisions: Any = None, **kwargs: Any) -> Any:
        assert ir == "dynamo" and kwargs.pop("output_format") == "fx", "the default is an exported program"
        calls.append(("compile", {"inputs": inputs, "enabled_precisions": enabled_precisions, **kwargs}))
        root, graph = torch.nn.Module(), torch.fx.Graph()
        root.add_module("_run_on_acc_0", module)
        node = graph.call_module("_run_on_acc_0", (graph.placeholder("x"),))
        if unsupported:
            rest = torch.fx.Graph()
            x = rest.placeholder("x")
            for name in unsupported:
                namespace, operator, overload = name.split(".")
                x = rest.call_function(getattr(getattr(getattr(torch.ops, namespace), operator), overload), (x, 0))
            rest.output(x)
            root.add_module("_run_on_gpu_1", torch.fx.GraphModule({}, rest))
            node = graph.call_module("_run_on_gpu_1", (node,))
        graph.output((node,))
        return torch.fx.GraphModule(root, graph)

    double.__dict__.update(__version__="2.2.0", Input=Input, compile=compile, calls=calls)
    return double
