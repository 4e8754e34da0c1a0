"""Write the tables of TensorRT's Python API by version: course_lib/migration/tables/api/*.json.gz.

    python docs/make_tables.py [--check]

They are read from NVIDIA's own bindings (`course_lib.migration.tables.bindings`): no GPU, no driver, no TensorRT libraries needed.
pybind11 writes each signature into a docstring, so importing the module shows the whole API and its deprecations. No function is
called. With ``--check``, the tables are compared with a fresh reading.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from course_lib._util.files import write_atomically
from course_lib.errors import CourseError
from course_lib.migration.tables.api_table import TABLES, Overload
from course_lib.migration.tables.bindings import RELEASES, BindingsUnavailable, Release, download, make_libraries

_OVERLOAD = re.compile(r"^\d+\. ")
_PREFIX = re.compile(r"tensorrt(_rtx)?_bindings\.tensorrt(_rtx)?\.|\b(typing|typing_extensions|collections\.abc)\.")
_CPP_PREFIX = re.compile(r"\bnv(infer1|onnxparser)::(v_\d+_\d+::)?")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OPENING, _CLOSING = "([{<", ")]}>"
_PROPERTY = re.compile(r":ivar (\w+):")
_MARK = re.compile(
    r"(?:^\s*(?:\w+ : )?|:ivar \w+:\s*(?::class:`[^`]*`\s*)?)[\[(]deprecated[^\])]*[\])]\s*|\b(?=deprecated, use )", re.I | re.M
)
_END = re.compile(r"\n\s*(?:\n|:|\*\*)")  # a blank line, the next field, or a note
# Of the special methods, those that change how a user writes code; the rest comes with every class.
_SPECIAL = ("__init__", "__len__", "__getitem__", "__setitem__", "__iter__", "__call__", "__enter__", "__exit__")
_OF_EVERY_ENUM = ("name", "value")
_MACHINERY = ("attr", "value")  # loop variables that the package leaves in its namespace


def read_bindings(version: str) -> dict[str, Any]:
    """The API of one version as plain JSON values; the same wheel gives the same values.

    Args:
        version: a key of `RELEASES`.

    Returns:
        ``wheel`` (file, name, version, sha256), ``classes`` (bases, methods with their overloads as of `parse_signatures`,
        properties as "r", "w" or "rw", their types, attributes), ``enums`` (members and numbers), ``functions``, ``values``,
        ``deprecated`` (the sentence of the docstring, by full name).

    Raises:
        ValueError: no such version.
        NoNetwork: pip reached no registry.
        BindingsUnavailable: no wheel for this Python, no C compiler, or the module cannot be imported.
    """
    if version not in RELEASES:
        raise ValueError(f"no version {version!r}: there are {', '.join(RELEASES)}")
    release = RELEASES[version]
    wheel = download(release)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        make_libraries(release.libraries, Path(folder))
        found = _import(release, folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for kind in found["classes"].values():
        kind["methods"] = {name: parse_signatures(doc) for name, doc in kind["methods"].items()}
        kind["types"] = {name: read[0]["returns"] for name, doc in kind["types"].items() if (read := parse_signatures(doc))}
        if not kind["methods"].get("__init__", True):  # made by TensorRT only
            del kind["methods"]["__init__"]
    found["functions"] = {name: parse_signatures(doc) for name, doc in found["functions"].items()}
    docs = found.pop("docs")
    found["deprecated"] = {name: text for owner, doc in docs.items() for name, text in parse_deprecations(owner, doc)}
    return {"wheel": {"file": wheel.name, "name": release.package, "version": release.version, "sha256": digest}, **found}


def _import(release: Release, folder: str) -> dict[str, Any]:
    """The content of a binding module, from another process: one can import only one TensorRT, and the libraries behind it are empty."""
    environment = {**os.environ, "LD_LIBRARY_PATH": folder, "PYTHONPATH": folder}
    command = [sys.executable, __file__, "--describe", release.module]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        reason = " ".join(done.stderr.strip().splitlines()[-1:])
        raise BindingsUnavailable(f"{release.package} {release.version} cannot be imported: {reason}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table_file(version: str) -> Path:
    """Where the table of a version is kept."""
    return TABLES / f"{version}.json.gz"


# ---- content of a module


def describe_module(module: ModuleType) -> dict[str, object]:
    """Classes, enums, functions and constants of a binding module, and the docstrings that mention deprecation."""
    found: dict[str, Any] = {"classes": {}, "enums": {}, "functions": {}, "values": {}, "docs": {}}
    for name in sorted(vars(module)):
        thing = getattr(module, name)
        if name.startswith("_") or name in _MACHINERY or isinstance(thing, ModuleType):
            continue
        if isinstance(thing, type):
            _describe_class(name, thing, found)
        elif callable(thing):
            found["functions"][name] = _text(thing)
            _keep_doc(name, thing, found)
        else:
            found["values"][name] = str(thing)
    return found


def _describe_class(name: str, kind: type, found: dict[str, Any]) -> None:
    members = getattr(kind, "__members__", None)
    if members is not None:
        found["enums"][name] = {member: int(value) for member, value in members.items()}
        for member, (_, doc) in getattr(kind, "__entries").items():
            _keep_doc(f"{name}.{member}", doc, found)
    _keep_doc(name, kind, found)
    methods, properties, attributes, types = {}, {}, {}, {}
    for key, value in sorted(vars(kind).items()):
        if key.startswith("_") and key not in _SPECIAL:
            continue
        if members is not None and key in (*members, *_OF_EVERY_ENUM, "__init__"):
            continue
        if isinstance(value, property):
            properties[key] = ("r" if value.fget else "") + ("w" if value.fset else "")
            types[key] = inspect.getdoc(value.fget) or "" if value.fget else ""
            _keep_doc(f"{name}.{key}", value, found)
        elif isinstance(value, type):
            if value.__module__ == kind.__module__ and value.__qualname__ == f"{name}.{key}":
                _describe_class(f"{name}.{key}", value, found)
            else:
                attributes[key] = value.__qualname__
        elif callable(value) or isinstance(value, staticmethod):
            methods[key] = _text(value)
            if not key.startswith("_"):
                _keep_doc(f"{name}.{key}", value, found)
        else:
            attributes[key] = str(value)
    if methods or properties or attributes or members is None:
        bases = [base.__name__ for base in kind.__bases__ if base.__module__ == kind.__module__]
        content = {"methods": methods, "properties": properties, "types": types, "attributes": attributes}
        found["classes"][name] = {"bases": bases, **content}


def _keep_doc(name: str, thing: Any, found: dict[str, Any]) -> None:
    doc = thing if isinstance(thing, str) else inspect.getdoc(thing)
    if doc and "deprecated" in doc.lower():
        found["docs"][name] = doc


def _text(function: Any) -> str:
    """The docstring of an object. With pybind11 it begins with the signature; for a Python function, the signature is added."""
    function = function.__func__ if isinstance(function, staticmethod) else function
    if inspect.isfunction(function):
        return f"{function.__name__}{inspect.signature(function)}"
    return inspect.getdoc(function) or ""


# ---- docstrings


def parse_signatures(doc: str) -> list[Overload]:
    """All overloads in a docstring; an empty list for text that does not begin with a signature."""
    first, *rest = doc.splitlines() or [""]
    if first.endswith("(*args, **kwargs)") and "Overloaded function." in rest:
        lines = [_OVERLOAD.sub("", line) for line in rest if _OVERLOAD.match(line)]
    else:
        lines = [first]
    return [signature for line in lines if (signature := _parse(_short(line))) is not None]


def _short(text: str) -> str:
    return _ADDRESS.sub("", _CPP_PREFIX.sub("", _PREFIX.sub("", text)))


def _parse(line: str) -> Overload | None:
    """One signature; None for any other line, such as "Initialize self."."""
    start, end = line.find("("), _closing(line)
    if start < 0 or end < 0 or " " in line[:start].strip():
        return None
    parameters = [_parameter(text) for text in _split(line[start + 1 : end])]
    if parameters and parameters[0][0] in ("self", "this"):
        del parameters[0]
    return {"parameters": parameters, "returns": line[end + 1 :].strip().removeprefix("->").strip()}


def _parameter(text: str) -> list[str]:
    declared, has_default, default = text.partition("=")
    name, _, kind = declared.partition(":")
    return [name.strip(), kind.strip(), *([default.strip()] if has_default else [])]


def _closing(line: str) -> int:
    """The position at which the first opened parenthesis closes; -1 if it does not close."""
    depth = 0
    for place, sign in _brackets(line):
        depth += 1 if sign in _OPENING else -1
        if depth == 0:
            return place
    return -1


def _split(text: str) -> list[str]:
    """The parts between commas outside all brackets."""
    depth, cuts = 0, [-1]
    for place, sign in _brackets(text, also=","):
        if sign == ",":
            cuts += [place] if depth == 0 else []
        else:
            depth += 1 if sign in _OPENING else -1
    cuts.append(len(text))
    return [part for a, b in itertools.pairwise(cuts) if (part := text[a + 1 : b].strip())]


def _brackets(text: str, also: str = "") -> list[tuple[int, str]]:
    """Brackets with their positions. The ``>`` of an arrow is not a bracket."""
    wanted = _OPENING + _CLOSING + also
    return [(i, sign) for i, sign in enumerate(text) if sign in wanted and not (sign == ">" and text[i - 1 : i] == "-")]


def parse_deprecations(name: str, doc: str) -> Iterator[tuple[str, str]]:
    """What the docstring of `name` (a class, function or member) calls deprecated: names with their sentences.

    The sentence is on one line, without the mark; it is ``"Deprecated."`` if the docstring gives no sentence.
    """
    own, *properties = re.split(r"(?=:ivar \w+:)", doc.partition("\nMembers:\n")[0])
    if text := _sentence(own):
        yield name, text
    for entry in properties:
        found = _PROPERTY.match(entry)
        if found and (text := _sentence(entry)):
            yield f"{name}.{found[1]}", text


def _sentence(doc: str) -> str:
    mark = _MARK.search(doc)
    if mark is None:
        return ""
    text = " ".join(_END.split(doc[mark.end() :], maxsplit=1)[0].split()).rstrip(")")
    return text or "Deprecated."


def main(arguments: list[str]) -> int:
    """Write the tables, or compare them with ``--check``; the number of tables that differ is the exit status."""
    if "--describe" in arguments:
        json.dump(describe_module(importlib.import_module(arguments[-1])), sys.stdout)
        return 0
    stale = 0
    for version in RELEASES:
        text = json.dumps(read_bindings(version), sort_keys=True, separators=(",", ":")).encode()
        file = table_file(version)
        same = file.exists() and gzip.decompress(file.read_bytes()) == text  # compressed bytes depend on the zlib
        if "--check" in arguments:
            print(f"{version}: {'as committed' if same else 'differs from the committed table'}")
            stale += not same
        elif not same:
            write_atomically(file, gzip.compress(text, mtime=0))
            print(f"{version}: written")
    return stale


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CourseError as error:
        sys.exit(str(error))
