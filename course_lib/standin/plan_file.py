"""The stand-in's plans: a magic word, a JSON header of known length, an ONNX model."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Any

MAGIC = b"TRTDOUBLE\x00\x01\x02"
_PREFIX = struct.Struct("<QQ")  # bytes of the header and of the model
SMALLEST = len(MAGIC) + _PREFIX.size

Ranges = dict[str, list[list[int]]]  # input name: min, opt, max


@dataclass
class Header:
    """What a plan says about itself."""

    version: str
    capability: list[int]
    hardware_compatibility: str = "NONE"
    flags: list[str] = field(default_factory=list)
    profiles: list[Ranges] = field(default_factory=list)
    verbosity: str = "LAYER_NAMES_ONLY"
    name: str = ""
    refittable: list[str] = field(default_factory=list)


def write_plan(header: Header, model: bytes) -> bytes:
    """The bytes of a plan."""
    text = json.dumps(asdict(header)).encode()
    return MAGIC + _PREFIX.pack(len(text), len(model)) + text + model


def read_plan(data: bytes) -> tuple[Header, bytes]:
    """The header and the model.

    Raises:
        ValueError: no plan, or only a part of one, in the words of TensorRT 11's log.
    """
    if len(data) < SMALLEST:
        raise ValueError("Assertion bufferSize >= minBufferSize failed")
    if not data.startswith(MAGIC):
        raise ValueError("Serialization assertion header.magicTag == kEXPECTED_MAGIC_TAG failed")
    text, model = _PREFIX.unpack_from(data, len(MAGIC))
    if len(data) < SMALLEST + text + model:
        raise ValueError("Assertion bufferSize >= minBufferSize failed")
    fields: dict[str, Any] = json.loads(data[SMALLEST : SMALLEST + text])
    return Header(**fields), data[SMALLEST + text : SMALLEST + text + model]
