"""A stand-in for the `tensorrt` module of one version: it builds, loads and runs plans on the host with onnxruntime."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from course_lib.migration.tables.api_table import ApiTable
from course_lib.standin.conforming import VERSIONS, conform, make_enum
from course_lib.standin.trt import builder, config, context, engine, network, runtime, values

_PARTS = (values, network, config, builder, runtime, engine, context)


def make(version: str) -> Any:
    """The module of ``"10.16"`` or ``"11.4"``. Everything that it has is in NVIDIA's bindings of that version.

    Its plans say for which device they are: the one of `course_lib.standin.gpu`.
    """
    if version not in VERSIONS:
        raise ValueError(f"no stand-in for TensorRT {version!r}: there are {', '.join(VERSIONS)}")
    table = ApiTable.load(version)
    trt: Any = ModuleType("tensorrt", f"A stand-in for TensorRT {version} that runs on the host.")
    trt.__spec__ = ModuleSpec("tensorrt", None)
    trt.__version__ = table.wheel["version"]
    for name in table.enums():
        if "." not in name:
            setattr(trt, name, make_enum(name, table.enum(name)))
    for part in _PARTS:
        for template in vars(part).values():
            if not isinstance(template, type) or template.__module__ != part.__name__:
                continue
            bases = tuple(getattr(trt, base) for base in table.bases(template.__name__))
            setattr(trt, template.__name__, conform(template, bases, trt, table))
    trt.IHostMemory = values.host_memory(trt)
    _set_severity(trt, table)
    for name, value in table.values().items():
        kind, _, member = value.rpartition(".")
        setattr(trt, name, getattr(getattr(trt, kind), member))
    trt.nptype, trt.volume = _nptype(trt), lambda iterable: int(np.prod([*iterable], dtype=np.int64))
    return trt


def _set_severity(trt: Any, table: ApiTable) -> None:
    """Nested in the logger, and its members are attributes of the loggers."""
    severity = make_enum("ILogger.Severity", table.enum("ILogger.Severity"))
    for logger in (trt.ILogger, trt.Logger):
        logger.Severity = severity
        for name, member in severity.__members__.items():  # type: ignore[attr-defined]
            setattr(logger, name, member)


def _nptype(trt: Any) -> Any:
    """The function is Python in the real module too."""
    names = {"FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "INT64": "int64", "BOOL": "bool_"}

    def nptype(trt_type: Any) -> Any:
        if trt_type.name == "UINT8" or trt_type.name in names:
            return getattr(np, names.get(trt_type.name, "uint8"))
        raise TypeError("Could not resolve TensorRT datatype to an equivalent numpy datatype.")

    return nptype
