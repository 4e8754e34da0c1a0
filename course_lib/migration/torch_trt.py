"""Torch-TensorRT's arguments that a version swallows, and its parts that are gone. The keywords come from its released wheels."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

from course_lib.migration.findings import Severity, Verdict
from course_lib.migration.uses import Use

_TABLE = Path(__file__).parents[1] / "engines" / "torch_trt_keywords.json"
_FITTING = {"10.15": "2.11", "10.16": "2.12", "11.0": "2.13"}  # from 11.1 on the newest; none is known for 8.6
_LECTURE = 13
INSTEAD = {  # keyword of an older release: what to do now
    "enabled_precisions": "the types are the module's own: call module.half() or module.bfloat16(), or pass enable_autocast=True",
    "use_explicit_typing": "the types are always the module's own: leave it out",
    "calibrator": "quantize the module with modelopt: its Q/DQ nodes become INT8 layers",
    "truncate_long_and_double": "truncate_double; int64 needs no truncation any more",
    "refit": "immutable_weights=False",
    "make_refittable": "immutable_weights=False",
    "debug": "compile within torch_tensorrt.dynamo.Debugger()",
    "torch_executed_modules": "name operators in torch_executed_ops",
    "capability": "engine_capability",
    "use_python_runtime": "the runtime is chosen by what is installed: leave it out",
    "op_precision": "the types are the module's own: call module.half()",
    "input_shapes": "inputs=[torch_tensorrt.Input(shape=...)] or example tensors",
    "input_signature": "inputs=[...], or kwarg_inputs={...}",
}
_REDUCED = ("half", "float16", "bfloat16", "int8", "uint8", "fp16", "bf16", "char", "f16", "i8", "f8", "fp8", "float8")


def version_for(target: str) -> str:
    """The Torch-TensorRT that goes with a TensorRT, ``"major.minor"``; empty where none was read."""
    if target in _FITTING or target.startswith(("8.", "rtx")):
        return _FITTING.get(target, "")
    return versions()[-1]


def versions() -> tuple[str, ...]:
    """The versions of Torch-TensorRT whose source was read, oldest first."""
    return tuple(sorted(_keywords(), key=lambda version: tuple(int(part) for part in version.split("."))))


@cache
def _keywords() -> dict[str, dict[str, list[str]]]:
    read: dict[str, dict[str, list[str]]] = json.loads(_TABLE.read_bytes())
    return read


def keywords(version: str, function: str) -> tuple[frozenset[str], frozenset[str]]:
    """What ``torch_tensorrt.<function>`` reads in a version, and what it accepts by name and ignores."""
    table = _keywords()[version]
    taken = {*table[function], *({"ir", "module", "exported_program"} if function == "compile" else {"module", "file_path"})}
    taken |= set(table["save_executorch"]) if function == "save" else set()
    return frozenset(taken), frozenset(table["ignored"]) if function == "compile" else frozenset()


def judge(use: Use, target: str) -> list[Verdict]:
    """The verdicts on a use whose name begins with ``torch_tensorrt``, or on a call of torch that takes a compiled module."""
    version = version_for(target)
    if not version:
        return []
    name = use.name
    if name.startswith(("torch_tensorrt.ptq", "torch_tensorrt.ts.ptq")):
        return [_verdict(name, "removed", version, INSTEAD["calibrator"])]
    if not isinstance(use.node, ast.Call):
        return []
    if name in ("torch_tensorrt.compile", "torch_tensorrt.dynamo.compile"):
        return _compile(_given(use), version)
    if name in ("torch_tensorrt.Input", "torch_tensorrt.save"):
        function = name.rpartition(".")[2]
        taken, _ = keywords(version, function)
        unknown = [one.arg for one in use.node.keywords if one.arg and one.arg not in taken]
        return [_verdict(f"{name}({one}=)", "ignored", version, "no version of it reads this: leave it out") for one in unknown]
    return []


def judge_torch(use: Use, target: str, *, compiled: bool) -> list[Verdict]:
    """The verdicts on ``torch.jit.save`` of a compiled module and on the options of ``torch.compile(backend="tensorrt")``."""
    version = version_for(target)
    if not version or not isinstance(use.node, ast.Call):
        return []
    if use.name == "torch.jit.save" and compiled:
        advice = "torch_tensorrt.save(module, path, output_format=..., arg_inputs=...): saving with torch.jit fails"
        return [_verdict("torch.jit.save", "changed", version, advice)]
    given = {one.arg: one.value for one in use.node.keywords}
    backend, options = given.get("backend"), given.get("options")
    named = isinstance(backend, ast.Constant) and backend.value in ("tensorrt", "torch_tensorrt")
    if use.name != "torch.compile" or not named or not isinstance(options, ast.Dict):
        return []
    taken, ignored = keywords(version, "compile")
    keys = [str(key.value) for key in options.keys if isinstance(key, ast.Constant)]
    return [
        _swallowed(f'torch.compile(options={{"{key}"}})', str(key), version)
        for key in keys
        if key in ignored or key not in taken
    ]


def _given(use: Use) -> dict[str, ast.expr]:
    """The keywords of a call, with those of ``**settings`` where the program writes the dictionary out."""
    given: dict[str, ast.expr] = {}
    for one in use.node.keywords if isinstance(use.node, ast.Call) else ():
        if one.arg:
            given[one.arg] = one.value
            continue
        written = one.value if isinstance(one.value, ast.Dict) else use.settings.get(ast.unparse(one.value))
        for key, value in zip(written.keys, written.values, strict=True) if written else ():
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                given[key.value] = value
    return given


def _compile(given: dict[str, ast.expr], version: str) -> list[Verdict]:
    ir = given.get("ir")
    if isinstance(ir, ast.Constant) and ir.value in ("ts", "torchscript", "fx"):
        lost = [name for name in ("calibrator",) if name in given]
        return [_verdict(f"torch_tensorrt.compile({one}=)", "removed", version, INSTEAD[one]) for one in lost]
    taken, ignored = keywords(version, "compile")
    found = [
        _swallowed(f"torch_tensorrt.compile({name}=)", name, version)
        for name in given
        if name in ignored or name not in taken
    ]  # fmt: skip
    if "enabled_precisions" in given and "enabled_precisions" not in ignored and _asks_for_less(given["enabled_precisions"]):
        found.append(_verdict("torch_tensorrt.compile(enabled_precisions=)", "removed", version, INSTEAD["enabled_precisions"]))
    if (operators := given.get("torch_executed_ops")) is not None and "::" in ast.unparse(operators):
        advice = 'names such as "torch.ops.aten.mul.Tensor": "aten::mul" matches nothing'
        found.append(_verdict("torch_tensorrt.compile(torch_executed_ops=)", "ignored", version, advice))
    caching = [name for name in ("cache_built_engines", "reuse_cached_engines") if _is(given.get(name), True)]
    if caching and not _is(given.get("immutable_weights"), False):
        found.append(_verdict(f"torch_tensorrt.compile({caching[0]}=)", "ignored", version, "pass immutable_weights=False too"))
    return found


def _swallowed(shown: str, name: str, version: str) -> Verdict:
    return _verdict(shown, "ignored", version, INSTEAD.get(name, "nothing reads it: leave it out"))


def _asks_for_less(node: ast.expr) -> bool:
    """Whether a set of types names one that is not FP32; so does one that only the running program knows."""
    words = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    words |= {str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)}
    return bool(words & set(_REDUCED)) or isinstance(node, ast.Name)


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _verdict(name: str, severity: Severity, version: str, use: str) -> Verdict:
    return Verdict(name, severity, f"Torch-TensorRT {version}", use, _LECTURE)
