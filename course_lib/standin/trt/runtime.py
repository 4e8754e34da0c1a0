"""The stand-in's runtime: which plans it takes, and why not the others."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

import hashlib
from typing import Any

from course_lib.standin import gpu
from course_lib.standin.conforming import Template, kept
from course_lib.standin.onnx_model import OnnxModel
from course_lib.standin.plan_file import Header, read_plan
from course_lib.standin.trt.values import report


class Runtime(Template):
    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._host_code_allowed = False

    @property
    def logger(self) -> Any:
        return self._logger

    engine_host_code_allowed = kept("_host_code_allowed", "bool")

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        try:
            header, model = read_plan(bytes(serialized_engine))
        except ValueError as damage:
            return self._reject(f"Error Code 1: Serialization ({damage}.)")
        if rejection := _wrong_version(header, self._trt.__version__) or _wrong_device(header):
            return self._reject(rejection)
        carries_code = "VERSION_COMPATIBLE" in header.flags and "EXCLUDE_LEAN_RUNTIME" not in header.flags
        if carries_code and not self._host_code_allowed:
            return self._reject(
                "Error Code 3: API Usage Error (the plan holds host code, and engine_host_code_allowed is False)"
            )
        try:
            digest = hashlib.sha256(serialized_engine).hexdigest()
            return self._trt.ICudaEngine._make(self._logger, header, OnnxModel(model), digest)
        except gpu.OutOfMemory:
            return self._reject("Error Code 2: OutOfMemory (no memory for the weights)")

    def _reject(self, text: str) -> None:
        gpu.current().note("rejected", "deserialize_cuda_engine", 0, text)
        report(self._logger, "ERROR", f"IRuntime::deserializeCudaEngine: {text}")


def _wrong_version(header: Header, version: str) -> str:
    """A plan runs with the version that built it; a version-compatible one also with later ones, up to the next major."""
    theirs, ours = ([int(n) for n in text.split(".")] for text in (header.version, version))
    later = theirs <= ours <= [theirs[0] + 1, 1 << 30]
    if theirs == ours or ("VERSION_COMPATIBLE" in header.flags and later):
        return ""
    tags = (f"{numbers[0]}{numbers[1]:02}" for numbers in (ours, theirs))
    note = "Note: Current Version: {}, Serialized Engine Version: {}".format(*tags)
    return (
        f"Error Code 1: Serialization (Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed."
        f"Version tag does not match. {note})"
    )


def _wrong_device(header: Header) -> str:
    theirs, ours = tuple(header.capability), gpu.current().capability
    if theirs == ours or (header.hardware_compatibility == "AMPERE_PLUS" and ours >= (8, 0) <= theirs):
        return ""
    compute = "expecting compute {}.{} got compute {}.{}".format(*ours, *theirs)
    return f"Error Code 6: API Usage Error (The engine plan file is generated on an incompatible device, {compute}, please rebuild.)"
