"""The process that runs a decoder: a graph and a text in, the logits after each token out. It runs no learner code."""

from __future__ import annotations

import os
import sys

import numpy as np


def question(model: bytes, tokens: np.ndarray) -> bytes:
    """What the process reads: a serialized decoder with a cache, and tokens int64 ``(windows, n)``."""
    head = np.array([len(model), *tokens.shape], np.int64)
    return head.tobytes() + model + np.ascontiguousarray(tokens, np.int64).tobytes()


def logits(asked: bytes) -> np.ndarray:
    """The logits after each token of each window, float32 ``(windows, n, 256)``, by ONNX Runtime on the CPU with one thread."""
    import onnxruntime

    size, windows, length = np.frombuffer(asked[:24], np.int64)
    tokens = np.frombuffer(asked[24 + size :], np.int64).reshape(windows, length)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    # Otherwise it replaces a product of INT4 weights by one that rounds the other input to INT8, on processors that have it.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(asked[24 : 24 + size], options, providers=["CPUExecutionProvider"])
    caches = {info.name: np.zeros(info.shape, np.float16) for info in session.get_inputs() if info.name.startswith("past_")}
    first = {"position": np.zeros(1, np.int64), **caches}
    return np.concatenate([session.run(["logits"], {"tokens": window[None], **first})[0] for window in tokens])


def main() -> None:
    """Entry point of the process: the logits on standard output, nothing if it fails."""
    reply = os.dup(1)
    os.dup2(2, 1)  # libraries print on standard output
    data = logits(sys.stdin.buffer.read()).tobytes()
    with os.fdopen(reply, "wb") as out:
        out.write(data)
