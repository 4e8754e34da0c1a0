"""The process that reads a ``config.pbtxt``: its text in, the configuration as JSON out, by NVIDIA's own protobuf schema.

It is started as a file, with ``python -I``. The schema is a module of the package tritonclient. It is loaded by its path,
because importing the package would need grpc.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def schema() -> ModuleType:
    """The module ``model_config_pb2``.

    Raises:
        ImportError: tritonclient is not installed.
    """
    package = importlib.util.find_spec("tritonclient")
    folders = list(package.submodule_search_locations or []) if package else []
    for folder in folders:
        file = Path(folder, "grpc", "model_config_pb2.py")
        spec = importlib.util.spec_from_file_location("model_config_pb2", file)
        if file.is_file() and spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError("NVIDIA's schema of config.pbtxt is not here: pip install tritonclient")


def parsed(text: str) -> dict[str, Any]:
    """The configuration, with the defaults of all missing fields.

    Raises:
        ImportError: tritonclient is not installed.
        ValueError: the text does not parse; the message is the parser's.
    """
    from google.protobuf import json_format, text_format  # type: ignore[import-untyped]

    module = schema()
    try:
        config = text_format.Parse(text, module.ModelConfig())
    except text_format.ParseError as error:
        raise ValueError(str(error)) from None
    values: dict[str, Any] = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return values


def main() -> None:
    """One text on standard input, one JSON object on standard output: ``config``, ``error`` or ``missing``."""
    answer: dict[str, Any]
    try:
        answer = {"config": parsed(sys.stdin.buffer.read().decode("utf-8-sig"))}
    except ImportError as error:
        answer = {"missing": str(error)}
    except (ValueError, RecursionError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps({key: " ".join(v.split())[:300] if isinstance(v, str) else v for key, v in answer.items()}))


if __name__ == "__main__":
    main()
