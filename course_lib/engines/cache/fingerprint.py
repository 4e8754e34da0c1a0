"""The build fingerprint: everything that a build depends on. Equal fingerprints mean that one plan serves both requests."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib._util.plain_text import reason
from course_lib.engines.compiler import Compiler
from course_lib.engines.cuda import driver
from course_lib.engines.registry import default_builder, find
from course_lib.engines.worker.environment import split_target
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError

if TYPE_CHECKING:
    import onnx

    from course_lib.recipe import Recipe  # a worker imports this package in environments without pydantic

    Model = onnx.ModelProto | str | os.PathLike[str]

FORMAT = 5  # raise it when the course's own part of a build changes: what a backend asks of its compiler or notes in a plan


def build_fingerprint(
    model: Model,
    recipe: Recipe | None = None,
    *,
    backend: str | None = None,
    launcher: Launcher | None = None,
    version: str | None = None,
) -> dict[str, object]:
    """Everything that a build depends on, as plain JSON values; the arguments are those of `engines.build`.

    If the backend's version is not given, the function queries it, for another interpreter by starting that interpreter.

    The device is the model of the GPU and its compute capability: TensorRT warns that an engine may be slow, or fail, on another
    model. With ``hardware_compatibility = "same_compute_capability"`` the plan is built for all models of one, which then share it.

    Raises:
        BackendUnavailable: there is no such backend or environment.
        BuildError: the model cannot be read, or the environment does not answer.
    """
    if version is None:
        with Compiler(backend) as compiler:
            version = compiler.version()
    if recipe is None:
        from course_lib.recipe import Recipe

        recipe = Recipe()
    name = split_target(backend or default_builder())[0]
    digest, more = _model_sha256(model)
    capability, shared = driver.capability(), recipe.hardware_compatibility == "same_compute_capability"
    here = ["no GPU"] if capability is None else [capability] if shared else [capability, driver.model()]
    return {
        "format": FORMAT,
        "model": digest,
        # With a launcher the compiler gets the model's bytes, and a submission must not choose which files this process reads.
        "weights": weights_sha256(Path(model)) if more and launcher is None else "",
        "recipe": recipe.wire(),
        "backend": name,
        "version": version,
        "device": list(recipe.targets) or here,
        "settings": find(name).build_settings(),
    }


def cache_key(fingerprint: dict[str, Any]) -> str:
    """SHA-256 in hexadecimal of a fingerprint as canonical JSON: sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(fingerprint, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _model_sha256(model: Model) -> tuple[str, bool]:
    """Digest of the model, and whether some of its weights may be in files next to it.

    A tensor says where its data is with the key "location" (onnx.proto, `external_data`), so a file without that word has no
    such tensor, and most models need not be parsed.
    """
    if not isinstance(model, (str, os.PathLike)):
        return hashlib.sha256(model.SerializeToString()).hexdigest(), False  # in memory: there is nothing beside it
    try:
        content = Path(model).read_bytes()
    except FileNotFoundError:
        raise BuildError(f"{model}: no such file") from None
    except OSError as error:
        raise BuildError(f"{model} cannot be read: {error.strerror}") from None
    return hashlib.sha256(content).hexdigest(), b"location" in content


def weights_sha256(model: Path) -> str:
    """Digest of the weights that are in files next to an ONNX file.

    Raises:
        BuildError: the file is not an ONNX model, or its weights cannot be read.
    """
    import onnx_ir

    digest = hashlib.sha256()
    try:
        opened = onnx_ir.load(model.resolve())  # beside the file, not beside a link to it
        for graph in (*opened.graphs(), *opened.functions.values()):
            tensors = [value.const_value for value in getattr(graph, "initializers", {}).values()]
            attributes = (attribute for node in graph for attribute in node.attributes.values())
            tensors += [attribute.value for attribute in attributes if attribute.type == onnx_ir.AttributeType.TENSOR]
            for tensor in tensors:
                if isinstance(tensor, onnx_ir.ExternalTensor):
                    digest.update(tensor.numpy().tobytes())
    except Exception as error:  # protobuf's own class, which differs between its versions
        raise BuildError(f"{model} is not an ONNX model, or its weights cannot be read ({reason(error)})") from None
    return digest.hexdigest()
