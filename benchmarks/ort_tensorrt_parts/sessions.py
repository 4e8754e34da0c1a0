"""Sessions with chosen providers, and which provider ran which node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

TENSORRT, CUDA, CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"
CHAIN: tuple[Any, ...] = (TENSORRT, CUDA, CPU)
WARNING = 2
PROFILE = {
    "trt_profile_min_shapes": "image:1x1x32x32",
    "trt_profile_opt_shapes": "image:8x1x32x32",
    "trt_profile_max_shapes": "image:32x1x32x32",
}


def tensorrt(**options: Any) -> tuple[Any, ...]:
    """The whole chain, with options for its first provider."""
    return ((TENSORRT, {"device_id": 0, **options}), CUDA, CPU)


def opened(
    model: Path, providers: Sequence[Any] = CHAIN, *, entries: Mapping[str, str] | None = None, profile: Path | None = None
) -> Any:
    """A session.

    Args:
        entries: session options by their long names, such as ``session.disable_cpu_ep_fallback``.
        profile: where ONNX Runtime writes its profile, as the beginning of a file's name.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = WARNING
    for name, value in (entries or {}).items():
        options.add_session_config_entry(name, value)
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    return onnxruntime.InferenceSession(str(model), options, providers=list(providers))


def images(count: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Smooth images in [0, 1], ``(count, 1, 32, 32)``, as a session's inputs."""
    coarse = np.random.default_rng(seed).random((count, 1, 8, 8), np.float32)
    return {"image": np.repeat(np.repeat(coarse, 4, axis=2), 4, axis=3)}


def relative_error(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> float:
    """Norm of the first output's difference over its norm."""
    return float(np.linalg.norm(got[0] - want[0]) / np.linalg.norm(want[0]))


def placement(session: Any) -> list[dict[str, str]]:
    """Node, operator and provider of every kernel in the session's profile, in the order of the first run. Ends the profiling."""
    events = json.loads(Path(session.end_profiling()).read_text())
    ran: dict[str, dict[str, str]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"].removesuffix("_kernel_time")
            ran[name] = {"node": name, "operator": event["args"].get("op_name"), "provider": event["args"].get("provider")}
    return list(ran.values())
