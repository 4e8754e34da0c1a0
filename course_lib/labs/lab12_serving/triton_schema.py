"""Reads a ``config.pbtxt`` by NVIDIA's own protobuf schema, a module of the package tritonclient."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from course_lib.errors import ExaminerFault


def schema() -> ModuleType:
    """The module ``model_config_pb2``, loaded by its path: importing the package would need grpc."""
    package = importlib.util.find_spec("tritonclient")
    for folder in (package and package.submodule_search_locations) or []:
        spec = importlib.util.spec_from_file_location("model_config_pb2", Path(folder, "grpc", "model_config_pb2.py"))
        if spec and spec.loader and Path(str(spec.origin)).is_file():
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ExaminerFault("NVIDIA's schema of config.pbtxt is not here: pip install tritonclient")


def parsed(text: str) -> dict[str, Any]:
    """The configuration, with the defaults of all missing fields.

    Raises:
        ExaminerFault: tritonclient is not installed.
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
