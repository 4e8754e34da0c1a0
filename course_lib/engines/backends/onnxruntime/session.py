"""ONNX Runtime's sessions: on the GPU if there is one and its provider loads, otherwise on the CPU with one thread.

ONNX Runtime falls back silently, with a log message at most: if the CUDA provider cannot load its libraries, the session runs
on the CPU. Here that is an error with the reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib._util.cpu_int8 import session_options
from course_lib._util.plain_text import reason
from course_lib.engines.cuda import driver
from course_lib.engines.onnx_file import REPAIR
from course_lib.errors import BackendUnavailable, BuildError

if TYPE_CHECKING:
    import onnxruntime

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_LEGACY_DEFAULT_STREAM = 1  # cudaStreamLegacy; ONNX Runtime takes the handle 0, which means the same, for "no stream given"


def device() -> str:
    """``"cuda"`` if a GPU answers and the installed ONNX Runtime was built for CUDA, otherwise ``"cpu"``."""
    import onnxruntime

    return "cuda" if driver.capability() and CUDA in onnxruntime.get_available_providers() else "cpu"


def open_session(data: bytes, where: str, *, stream: int = 0, tf32: bool = True) -> onnxruntime.InferenceSession:
    """A session on one device. On the CPU it has one thread, so that a measurement does not depend on how many cores are free.

    Args:
        data: an ONNX file with its weights inside.
        where: ``"cpu"`` or ``"cuda"``.
        stream: on CUDA, handle of the stream on which all work is enqueued. A session cannot change its stream.
        tf32: on CUDA, whether FP32 products and convolutions may round their inputs to TF32, as TensorRT's flag of that name says.

    Raises:
        BuildError: ONNX Runtime rejects the model.
        BackendUnavailable: the CUDA provider does not load; the text says which library is missing.
    """
    import onnxruntime

    options = session_options()
    providers: list[Any] = [CPU]
    if where == "cuda":
        _preload()
        settings = {"device_id": 0, "use_tf32": int(tf32), "user_compute_stream": stream or _LEGACY_DEFAULT_STREAM}
        providers = [(CUDA, settings), CPU]
    try:
        session = onnxruntime.InferenceSession(data, options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
        if "protobuf" in str(error).lower():
            raise BuildError("the file is not an ONNX model, or only a part of one") from None
        raise BuildError(f"onnxruntime {onnxruntime.__version__} rejects the model: {_with_advice(error)}") from None
    if where == "cuda" and CUDA not in session.get_providers():
        raise BackendUnavailable(
            f"onnxruntime {onnxruntime.__version__} found the GPU but its CUDA provider did not load ({_missing_library()}): "
            "install the CUDA and cuDNN that it was built for, pip install 'onnxruntime-gpu[cuda,cudnn]'"
        )
    return session


_ADVICE = (  # what to do about the commonest rejections
    ("Unsupported model IR version", "set `model.ir_version` to the supported one and save the model again"),
    ("newer than the newest supported one", "export with a lower opset, or convert it with onnx.version_converter"),
    ("is not a registered function/op", "rewrite this operator with standard ones, or use the backend that has it"),
    ("Could not find an implementation", "cast the node's inputs to float32, or use another backend"),
    ("bound to different types", "cast the node's inputs to one type"),
)


_NEW_OPSET = re.compile(r".*Opset (\d+) is under development.* (\S+) is till opset (\d+).*")


def _with_advice(error: Exception) -> str:
    """Why ONNX Runtime rejects a model, and what to do."""
    why = _NEW_OPSET.sub(r"opset \1 of \2 is newer than the newest supported one, \3", reason(error, most=2000))
    advice = next((advice for words, advice in _ADVICE if words in why), REPAIR)
    return f"{reason(why).rstrip('.')}: {advice}"


def _preload() -> None:
    """Load CUDA's and cuDNN's libraries from installed Python packages, which ONNX Runtime's own search does not find."""
    import onnxruntime

    if hasattr(onnxruntime, "preload_dlls"):
        # it prints what it misses; what matters is told when the provider fails
        with contextlib.redirect_stdout(io.StringIO()):
            onnxruntime.preload_dlls()


def _missing_library() -> str:
    """The loader's message about the CUDA provider's libraries, which ONNX Runtime only logs."""
    import onnxruntime

    folder = Path(onnxruntime.__file__).parent / "capi"
    try:
        for name in ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"):
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return " ".join(str(error).split())[:300]
    return "its libraries load, yet it did not start"
