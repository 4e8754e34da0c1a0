"""A logger that keeps messages: TensorRT reports failures with return values, and only the logger receives the reason."""

from __future__ import annotations

from typing import Any

_KEPT = 50  # a verbose log of ResNet-50 would fill megabytes


def keep_log(trt: Any) -> Any:
    """A logger with `errors`, the last error messages, and `layers`, the layer section that TensorRT for RTX prints."""

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.layers = ""

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors = [*self.errors[1 - _KEPT :], message]
            elif message.startswith("Layers:"):
                self.layers = message

        def take(self) -> str:
            """The first error since the last call, on one line. It is the cause; later errors are consequences."""
            errors, self.errors = self.errors, []
            return " ".join(errors[0].split()) if errors else "no reason was logged"

    return Log()
