"""The data types and the small protocol that all backends share."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from course_lib._util.files import write_atomically
from course_lib.engines.layers import LayerTable
from course_lib.errors import OUTSIDE_PROFILES, EngineError, PlanError

if TYPE_CHECKING:
    import numpy as np

Feeds = Mapping[str, "np.ndarray"]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of an engine; -1 marks a dynamic dimension; `dtype` is numpy's name, such as ``"float32"``."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Engine(Protocol):
    """Something that runs a network: a TensorRT engine, an ONNX Runtime session, a PyTorch module."""

    backend: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name.

        Raises:
            EngineError: an input is missing, unknown, or has a shape or dtype that the engine does not accept.
        """
        ...

    def time_ms(self, feeds: Feeds) -> float:
        """Latency in milliseconds of one call on inputs that are already in device memory."""
        ...


VARIANTS = ("eager", "compile", "cuda_graph", "compile+cuda_graph")


@dataclass(frozen=True)
class ModelSource:
    """A PyTorch model, given by the function that makes it (``module:function``) and its arguments, so that a worker can make a copy.

    Attributes:
        dtype: type of parameters and arithmetic, ``"fp32"``, ``"fp16"`` or ``"bf16"``.
        variant: how torch runs it, one of `VARIANTS`; see `TorchEngine`.

    Raises:
        ValueError: an unknown variant.

    >>> ModelSource("course_lib.models:classifier", ("wide",)).variant
    'eager'
    """

    backend: ClassVar[str] = "torch"

    factory: str
    arguments: tuple[Any, ...] = ()
    dtype: str = "fp32"
    variant: str = "eager"

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ValueError(f"torch has the variants {', '.join(VARIANTS)}, found {self.variant!r}")


@dataclass(frozen=True)
class Plan:
    """The result of a build: the serialized engine and its metadata.

    Attributes:
        backend: the backend that built it and can run it.
        version: version of that backend.
        data: the serialized engine. It is executable code: load only plans that you built yourself.
        onnx_sha256: digest of the model it was built from.
        recipe: the recipe, as plain JSON values.
        targets: compute capabilities it runs on, such as ``("sm89",)``, or ``("sm80+",)`` for that and all later ones; empty
            if it runs on any device.
        layers: the layer table.
        build_seconds: time in the compiler.
        notes: remarks on this build for the reader, one sentence each.
    """

    backend: str
    version: str
    data: bytes = field(repr=False)
    onnx_sha256: str
    recipe: dict[str, Any]
    targets: tuple[str, ...]
    layers: LayerTable = field(repr=False)
    build_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What built it, and for which devices."""
        return f"{self.backend} {self.version}{' for ' if self.targets else ''}{', '.join(self.targets)}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, and then its metadata next to it as ``PATH.json``. A file that cannot be written stays as it was.

        Raises:
            PlanError: the disk is full, or the folder does not exist or is read-only.
        """
        path = Path(path)
        known = self.to_json()
        known["digest"] = _digest(self.data, known)
        for target, content in ((path, self.data), (_beside(path), json.dumps(known).encode())):
            try:
                write_atomically(target, content)
            except OSError as error:
                raise PlanError(f"cannot write {target}: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote.

        Raises:
            PlanError: no such file, no metadata next to it, or the two do not belong together.
        """
        path = Path(path)
        try:
            data, known = path.read_bytes(), json.loads(_beside(path).read_bytes())
            if known.pop("digest") != _digest(data, known):
                raise PlanError(f"{path} is corrupt: its contents are not what was built; build it again")
            return cls.from_json(known, data)
        except FileNotFoundError as error:
            if Path(error.filename) == path:
                raise PlanError(f"{path}: no such plan") from None
            raise PlanError(
                f"{path} has no {_beside(path).name} next to it, so its origin is unknown: a plan is executable code, build your own"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PlanError(f"{path} cannot be read ({type(error).__name__}: {error}); build it again") from None

    def summary(self) -> dict[str, object]:
        """Plain JSON values without the engine's bytes and without the layers."""
        values = asdict(self)
        del values["data"], values["layers"]
        return values

    def to_json(self) -> dict[str, Any]:
        """`summary` with the layers: everything but the engine's bytes, as plain JSON values."""
        return {**self.summary(), "layers": self.layers.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], data: bytes) -> Plan:
        """The plan with the values from `to_json` and these bytes as its engine.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the values are not those of a plan.
        """
        tuples = {key: tuple(values[key]) for key in ("targets", "notes")}
        return cls(**{**values, **tuples, "layers": LayerTable.from_json(values["layers"]), "data": data})


def _beside(plan: Path) -> Path:
    return plan.with_name(plan.name + ".json")


def _digest(data: bytes, description: Mapping[str, Any]) -> str:
    """One digest over the engine and its metadata. It is BLAKE2, because many processors have no SHA instructions."""
    digest = hashlib.blake2b(data, digest_size=32)
    digest.update(json.dumps(description, sort_keys=True).encode())
    return digest.hexdigest()


def check_target(plan: Plan, capability: str | None) -> None:
    """Reject a plan that this device cannot run; `capability` is the device's, such as ``"sm90"``, None without a GPU.

    Raises:
        PlanError: the plan was compiled for other compute capabilities.
    """
    if not plan.targets or capability in plan.targets:
        return
    if capability and any(target.endswith("+") and _number(capability) >= _number(target) for target in plan.targets):
        return
    here = f"this GPU is {capability}" if capability else "this machine has no usable NVIDIA GPU"
    advice = (
        "build it for this device (`targets` in the recipe)"
        if capability
        else "build it with backend=default_runner(), or `course build --backend onnxruntime`"
    )
    raise PlanError(f"the plan runs on {', '.join(plan.targets)} and {here}: {advice}")


def _number(target: str) -> int:
    return int(target.removeprefix("sm").removesuffix("+"))


def check_feeds(inputs: tuple[TensorInfo, ...], feeds: Feeds) -> None:
    """Reject feeds that do not fit the inputs of an engine.

    Raises:
        EngineError: a missing or unknown name, a wrong dtype, rank or fixed dimension.
    """
    expected = {info.name: info for info in inputs}
    if missing := expected.keys() - feeds.keys():
        raise EngineError(f"missing input {', '.join(sorted(missing))}: the engine needs {', '.join(sorted(expected))}")
    if unknown := feeds.keys() - expected.keys():
        raise EngineError(f"unknown input {', '.join(sorted(unknown))}: the engine needs {', '.join(sorted(expected))}")
    for name, info in expected.items():
        array = feeds[name]
        if str(array.dtype) != info.dtype:
            raise EngineError(f"input {name!r} needs dtype {info.dtype}, found {array.dtype}")
        fits = len(array.shape) == len(info.shape) and all(
            want in (-1, have) for want, have in zip(info.shape, array.shape, strict=True)
        )
        if not fits:
            raise EngineError(f"input {name!r} needs shape {spell(info.shape)}, found {spell(array.shape)}")


def check_profiles(recipe: Mapping[str, Any], feeds: Feeds) -> int | None:
    """Index of the first profile whose ranges hold all shapes; None if the recipe has no profile.

    Raises:
        EngineError: no profile accepts the shapes; the message quotes the ranges.
    """
    profiles = recipe.get("profiles", [])
    for index, profile in enumerate(profiles):
        if all(_within(feeds[name].shape, ranges) for name, ranges in profile.items() if name in feeds):
            return index
    if not profiles:
        return None
    name = next(n for n, ranges in profiles[0].items() if n in feeds and not _within(feeds[n].shape, ranges))
    offered = "; ".join(f"{spell(p[name]['min'])} to {spell(p[name]['max'])}" for p in profiles if name in p)
    raise EngineError(
        f"shape {spell(feeds[name].shape)} of input {name!r} is outside every profile ({offered})", code=OUTSIDE_PROFILES
    )


def _within(shape: tuple[int, ...], ranges: Mapping[str, Any]) -> bool:
    bounds = list(zip(ranges["min"], ranges["max"], strict=True))
    return len(shape) == len(bounds) and all(low <= n <= high for n, (low, high) in zip(shape, bounds, strict=True))


def spell(shape: Sequence[int]) -> str:
    """A shape in text, such as ``Nx3x32x32``."""
    return "x".join("N" if n < 0 else str(n) for n in shape) or "scalar"
