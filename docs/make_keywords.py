"""Write the keywords of Torch-TensorRT's releases: course_lib/engines/backends/torch_tensorrt/keywords.json.

    python docs/make_keywords.py 2.14.0 WHEEL...

Each argument is a version, which pip downloads, or a local wheel. Torch-TensorRT's functions end in ``**kwargs``, so a keyword that is
not read is accepted silently. Their source is parsed, never imported. The table serves the scanner of old code and the check of a
compiler's options.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from course_lib.engines.backends.torch_tensorrt.options import KEYWORDS, Keywords

SOURCES = ("_compile", "_Input", "dynamo/_compiler", "dynamo/_tracer")

# How the source itself says that an argument does nothing.
_SAID_TO_DO_NOTHING = (
    r"`(\w+)` is deprecated and has no effect",
    r"Detected (\w+) was non-empty",
    r"(\w+) \(bool\): [^\n]*only applicable to torch\.compile",
)


def read_wheel(path: Path) -> tuple[str, Keywords]:
    """Version ``"major.minor"`` and keywords of one wheel.

    Raises:
        ValueError: the file is not a wheel of Torch-TensorRT, or its functions have moved.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            sources = {name: ast.parse(wheel.read(f"torch_tensorrt/{name}.py")) for name in SOURCES}
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise ValueError(f"{path} is not a wheel of torch-tensorrt: {error}") from None
    version = re.match(r"torch_tensorrt-(\d+\.\d+)", path.name)
    if not version:
        raise ValueError(f"{path.name}: expected a wheel's name, torch_tensorrt-VERSION-...")
    return version[1], of_sources(sources)


def of_sources(sources: Mapping[str, ast.Module]) -> Keywords:
    """The keywords by function.

    ``compile``: read when a module is compiled with ``ir="dynamo"``. ``ignored``: accepted there by name, without effect.
    ``save`` and ``load``: those of the function. ``save_executorch``: read by ``save`` only for that output format. ``Input``:
    those of that class.
    """
    front, dynamo = _function(sources["_compile"], "compile"), _function(sources["dynamo/_compiler"], "compile")
    save, load = (_function(sources["_compile"], name) for name in ("save", "load"))
    traced = set(_read_from_kwargs(_function(sources["dynamo/_tracer"], "trace")))
    shared = {"module", "ir", "inputs", "arg_inputs", "kwarg_inputs"}
    lost = set(_named(front)) - set(_named(dynamo)) - shared  # the front takes them and hands them to the older frontends alone
    said = {name for pattern in _SAID_TO_DO_NOTHING for name in re.findall(pattern, _texts(dynamo))}
    only_executorch = set(_read_from_kwargs(save)) - {"inductor_configs"}
    return {
        "compile": sorted({*_named(front), *_named(dynamo), *traced} - {"module", "ir", "exported_program"}),
        "ignored": sorted(lost | said),
        "save": sorted({*_named(save), "inductor_configs"} - {"module", "file_path"}),
        "save_executorch": sorted(only_executorch),
        "load": sorted(set(_named(load)) - {"file_path"}),
        "Input": sorted(set(_read_from_kwargs(_function(sources["_Input"], "__init__")))),
    }


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The last definition of that name, also within a class: earlier ones are overloads."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        raise ValueError(f"torch_tensorrt no longer defines {name}() where it did")
    return found[-1]


def _named(function: ast.FunctionDef) -> Iterator[str]:
    arguments = function.args
    yield from (argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _read_from_kwargs(function: ast.FunctionDef) -> Iterator[str]:
    """Names in ``kwargs["name"]``, ``kwargs.get("name")`` and ``kwargs.pop("name")``."""
    for node in ast.walk(function):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            place, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("get", "pop")
            and node.args
        ):
            place, key = node.func.value, node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and ast.unparse(place) == "kwargs":
            yield key.value


def _texts(function: ast.FunctionDef) -> str:
    return "\n".join(
        node.value for node in ast.walk(function) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def download(version: str, folder: Path) -> Path:
    """Torch-TensorRT's wheel for Linux (4 MB, Python code and one library) from pip's registry.

    Raises:
        ValueError: pip cannot download it; the message is pip's last line.
    """
    platforms = [word for name in ("manylinux_2_28", "manylinux_2_34") for word in ("--platform", f"{name}_x86_64")]
    wanted = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.11", *platforms]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wanted, "--dest", str(folder), f"torch-tensorrt=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = list(folder.glob(f"torch_tensorrt-{version}-*.whl"))
    if not found:
        raise ValueError(
            f"pip cannot download torch-tensorrt {version}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}"
        )
    return found[0]


def write(versions: Mapping[str, Keywords]) -> None:
    """Write the table with one line per list, so that changes are easy to read."""
    rows = (
        f' "{version}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(words)}' for name, words in functions.items()) + "\n }"
        for version, functions in sorted(versions.items(), key=lambda item: [int(part) for part in item[0].split(".")])
    )
    KEYWORDS.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main(sources: Sequence[str]) -> None:
    """Add the keywords of releases to the table. Each source is a wheel, or a version that pip downloads."""
    known: dict[str, Keywords] = json.loads(KEYWORDS.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            version, read = read_wheel(Path(source) if source.endswith(".whl") else download(source, Path(folder)))
            known[version] = read
    write(known)


if __name__ == "__main__":
    main(sys.argv[1:])
