"""Arguments that a version of Torch-TensorRT ignores, and its parts that were removed. The keywords come from its wheels."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection
from functools import cache
from pathlib import Path

from course_lib.migration.analysis.uses import Use
from course_lib.migration.findings import Severity, Verdict
from course_lib.migration.rules.data import rows

_TABLE = Path(__file__).resolve().parents[2] / "engines" / "backends" / "torch_tensorrt" / "keywords.json"
_FITTING = {"10.15": "2.11", "10.16": "2.12", "11.0": "2.13"}  # from 11.1 on the newest; none is known for 8.6
_LECTURE = 13
INSTEAD: dict[str, str] = {row["keyword"]: row["use"] for row in rows("gone.toml", "torch_tensorrt")}  # what to do now
# Keywords that `compile` reads out of ``**kwargs`` under their old names: severity, and the keyword that must be given as False for it.
_OLD_NAMES: dict[str, tuple[Severity, str]] = {
    "truncate_long_and_double": ("deprecated", ""),
    "refit": ("removed", "immutable_weights"),  # raises unless immutable_weights=False is given too
    "make_refittable": ("removed", "immutable_weights"),
}
_READ_BY_TORCH_COMPILE = ("pass_through_build_failures",)
_REDUCED = ("half", "float16", "bfloat16", "int8", "uint8", "fp16", "bf16", "char", "f16", "i8", "f8", "fp8", "float8")


def version_for(target: str) -> str:
    """The Torch-TensorRT version for a TensorRT version, ``"major.minor"``; empty if none was read."""
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
    """The keywords that ``torch_tensorrt.<function>`` reads in a version, and those that it accepts by name and ignores."""
    table = _keywords()[version]
    taken = {*table[function], *({"ir", "module", "exported_program"} if function == "compile" else {"module", "file_path"})}
    taken |= set(table["save_executorch"]) if function == "save" else set()
    return frozenset(taken), frozenset(table["ignored"]) if function == "compile" else frozenset()


_SCRIPTING = ("torch.jit.trace", "torch.jit.script", "torch.jit.load", "torch.jit.freeze", "torch.jit.optimize_for_inference")
_SCRIPT_MODULE = ("ScriptModule", "RecursiveScriptModule", "ScriptFunction")


def scripted(tree: ast.Module) -> frozenset[str]:
    """Variables of a program that hold a script module, or what `torch_tensorrt.compile` made of one."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation).endswith(_SCRIPT_MODULE):
            names.add(node.arg)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _is_scripted(node.value, names):
            names.update(ast.unparse(target) for target in (node.targets if isinstance(node, ast.Assign) else [node.target]))
    return frozenset(names)


def takes_scripted(node: ast.AST, names: Collection[str]) -> bool:
    """Whether a call's module is a script module, of these variables or made in its arguments."""
    if not isinstance(node, ast.Call):
        return False
    given = {one.arg: one.value for one in node.keywords}
    module = node.args[0] if node.args else given.get("module", given.get("model"))
    ir = given.get("ir")
    other = isinstance(ir, ast.Constant) and ir.value not in (None, "default", "ts", "torchscript")
    return module is not None and not other and _is_scripted(module, names)


def _is_scripted(value: ast.expr, names: Collection[str]) -> bool:
    """Whether an expression is a script module, also one that a method such as ``.eval()`` returns."""
    if not isinstance(value, ast.Call):
        return ast.unparse(value) in names
    function = ast.unparse(value.func)
    if function in _SCRIPTING or f"torch.{function}" in _SCRIPTING:
        return True
    if function.endswith(".compile") and function != "torch.compile":
        return takes_scripted(value, names)
    return isinstance(value.func, ast.Attribute) and _is_scripted(value.func.value, names)


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
        return [*_positional(use.node, name, version), *_compile(_given(use), version)]
    if name in ("torch_tensorrt.Input", "torch_tensorrt.save"):
        function = name.rpartition(".")[2]
        taken, _ = keywords(version, function)
        unknown = [one.arg for one in use.node.keywords if one.arg and one.arg not in taken]
        return [_verdict(f"{name}({one}=)", "ignored", version, _nobody_reads(one, function)) for one in unknown]
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
        _verdict(name, "deprecated", version, INSTEAD[key])
        if _OLD_NAMES.get(key, ("", ""))[0] == "deprecated"
        else _unread(name, key, version)
        for key in keys
        for name in (f'torch.compile(options={{"{key}"}})',)
        if key not in _READ_BY_TORCH_COMPILE and (key in ignored or key not in taken)
    ]


def _given(use: Use) -> dict[str, ast.expr]:
    """The keywords of a call, with those of ``**settings`` if the program contains the dictionary literally."""
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


def _positional(call: ast.Call, name: str, version: str) -> list[Verdict]:
    """``compile(module, {"input_shapes": ...})`` was TRTorch's form: in that place there is `ir` now."""
    second = call.args[1] if len(call.args) > 1 and name == "torch_tensorrt.compile" else None
    if not isinstance(second, ast.Dict):
        return []
    advice = "write the settings as keywords, inputs=[...]: the second argument is `ir` now"
    return [_verdict("torch_tensorrt.compile(module, {...})", "removed", version, advice)]


def _compile(given: dict[str, ast.expr], version: str) -> list[Verdict]:
    ir = given.get("ir")
    if isinstance(ir, ast.Constant) and ir.value in ("ts", "torchscript", "fx"):
        lost = [name for name in ("calibrator",) if name in given]
        return [_verdict(f"torch_tensorrt.compile({one}=)", "removed", version, INSTEAD[one]) for one in lost]
    taken, ignored = keywords(version, "compile")
    by_torch_compile = isinstance(ir, ast.Constant) and ir.value == "torch_compile"
    found = [
        _old_name(name, given, version) if name in _OLD_NAMES else _unread(f"torch_tensorrt.compile({name}=)", name, version)
        for name in given
        if (name in ignored or name not in taken) and not (by_torch_compile and name in _READ_BY_TORCH_COMPILE)
    ]
    if "enabled_precisions" in given and "enabled_precisions" not in ignored and _asks_for_less(given["enabled_precisions"]):
        found.append(_verdict("torch_tensorrt.compile(enabled_precisions=)", "removed", version, INSTEAD["enabled_precisions"]))
    if (operators := given.get("torch_executed_ops")) is not None and "::" in ast.unparse(operators):
        advice = 'names such as "torch.ops.aten.mul.Tensor": "aten::mul" matches nothing'
        found.append(_verdict("torch_tensorrt.compile(torch_executed_ops=)", "ignored", version, advice))
    caching = [name for name in ("cache_built_engines", "reuse_cached_engines") if _is(given.get(name), True)]
    if caching and not _is(given.get("immutable_weights"), False):
        found.append(_verdict(f"torch_tensorrt.compile({caching[0]}=)", "ignored", version, "pass immutable_weights=False too"))
    return found


def _old_name(name: str, given: dict[str, ast.expr], version: str) -> Verdict:
    severity, needed = _OLD_NAMES[name]
    met = needed and _is(given.get(needed), False)
    return _verdict(f"torch_tensorrt.compile({name}=)", "deprecated" if met else severity, version, INSTEAD[name])


def _unread(shown: str, name: str, version: str) -> Verdict:
    return _verdict(shown, "ignored", version, INSTEAD.get(name) or _nobody_reads(name, "compile"))


def _nobody_reads(name: str, function: str) -> str:
    """Advice for a keyword that a version does not read; another version may read it."""
    readers = [one for one in versions() if name in keywords(one, function)[0] - keywords(one, function)[1]]
    if readers:
        return f"leave it out, or use Torch-TensorRT {readers[0] if len(readers) == 1 else f'{readers[0]} to {readers[-1]}'}"
    return "no recorded version reads it: leave it out"


def _asks_for_less(node: ast.expr) -> bool:
    """Whether a set of types contains one other than FP32. A type that only the running program knows counts as one."""
    words = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    words |= {str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)}
    return bool(words & set(_REDUCED)) or isinstance(node, ast.Name)


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _verdict(name: str, severity: Severity, version: str, use: str) -> Verdict:
    return Verdict(name, severity, f"Torch-TensorRT {version}", use, _LECTURE)
