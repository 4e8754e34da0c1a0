"""Kernels for notebooks that start with PyTorch and its friends imported: each is forked from a process that has imported them once.

    python tests/warm_kernels.py serve SOCKET             the process that has imported them
    python tests/warm_kernels.py SOCKET CONNECTION_FILE   what Jupyter starts as a kernel: it asks for one and lives as long

A kernel shares nothing with another but these imports: neither names nor files nor the random numbers that come next.
"""

from __future__ import annotations

import json
import os
import socket
import sys

HEAVY = (
    *("numpy", "onnx", "onnxruntime", "onnxscript", "torch", "torch.export", "torch._dynamo", "torch._inductor"),
    *("torch.onnx._internal.exporter._core", "torch.onnx._internal.exporter._registration", "sklearn.datasets"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "ipykernel.kernelapp", "pandas"),
)


def serve(path: str) -> None:
    """Import everything, then fork a kernel for each that asks, until standard input closes."""
    import contextlib
    import importlib
    import select
    import signal

    os.environ.update(OPENBLAS_NUM_THREADS="1", MPLBACKEND="module://matplotlib_inline.backend_inline")
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels: the system clears them away
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while sys.stdin not in (ready := select.select([listener, sys.stdin], [], [])[0]) and ready:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _kernel(connection)
            connection.close()


def _kernel(connection: socket.socket) -> None:
    """The rest of this process is a kernel, for as long as who asked for it lives."""
    import random
    import signal
    import threading

    import numpy as np

    asked = json.loads(connection.makefile().readline())
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    random.seed()
    np.random.seed()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def end_with_asker() -> None:
        connection.recv(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_asker, daemon=True).start()
    from ipykernel.kernelapp import IPKernelApp

    sys.argv = ["ipykernel_launcher.py", "-f", asked["file"]]
    IPKernelApp.launch_instance()
    os._exit(0)


def ask(path: str, file: str) -> None:
    """Have a kernel made for this folder and environment, and end when it ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        asked = {"file": file, "folder": os.getcwd(), "environment": dict(os.environ)}
        connection.sendall(json.dumps(asked).encode() + b"\n")
        connection.recv(1)


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1] == "serve" else ask(*sys.argv[1:])
