"""The PyTorch operators that Torch-TensorRT can convert, by version: a table made from the source in its released wheels.

Each converter is registered with a decorator that names its operator. The wheels are parsed, never imported: importing one needs
TensorRT and a GPU. ``python -m course_lib.engines.backends.torch_tensorrt.converters WHEEL...`` writes the table.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from course_lib.engines.backends.torch_tensorrt.keywords import numbers, of_version

TABLE = Path(__file__).with_suffix(".json")
_PREFIX = "torch.ops."
_FOLDER = "torch_tensorrt/dynamo/conversion/"
_DECORATOR = "dynamo_tensorrt_converter"
_LACK = "a wheel of torch-tensorrt with converters, torch_tensorrt-VERSION-..."


def table() -> dict[str, list[str]]:
    """Operators by version ``"major.minor"``, such as ``"aten.add.Tensor"``. A name without overload, ``"aten.batch_norm"``, means all.

    The table also has operators of Python, such as ``"operator.getitem"``. Many converters check a node's arguments first, and only
    some accept dynamic shapes. An operator that is not in the table runs in PyTorch; one in the table may also run there.
    """
    known: dict[str, list[str]] = json.loads(TABLE.read_bytes())
    return known


def converted(operator: str, version: str) -> bool:
    """Whether a version has a converter for an operator, ``"aten.add.Tensor"``.

    Raises:
        ValueError: a version that is not in the table.
    """
    row = of_version(table(), version, "converters")
    return operator in row or operator.rpartition(".")[0] in row


def read_wheel(path: Path) -> tuple[str, list[str]]:
    """Version and operators of one wheel.

    Raises:
        ValueError: not a wheel of Torch-TensorRT, or it registers its converters in another way.
    """
    version = re.match(r"torch_tensorrt-(\d+\.\d+)", path.name)
    try:
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(_FOLDER) and name.endswith("_converters.py")]
            names += [name for name in wheel.namelist() if name == f"{_FOLDER}ops_evaluators.py"]
            operators = {operator for name in names for operator in _registered(ast.parse(wheel.read(name)))}
    except (zipfile.BadZipFile, OSError, SyntaxError) as error:
        raise ValueError(f"{path.name}: expected {_LACK} ({type(error).__name__})") from None
    if not version or not operators:
        raise ValueError(f"{path.name}: expected {_LACK}")
    return version[1], sorted(operators)


def _registered(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _DECORATOR
        if called and isinstance(node, ast.Call) and node.args:
            yield ast.unparse(node.args[0]).removeprefix(_PREFIX)


def write(versions: Mapping[str, Sequence[str]]) -> None:
    """Write the table, one line per version."""
    ordered = sorted(versions.items(), key=lambda item: numbers(item[0]))
    rows = (f' "{version}": {json.dumps(list(operators))}' for version, operators in ordered)
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(dict(read_wheel(Path(source)) for source in sys.argv[1:]))
