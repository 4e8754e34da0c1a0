"""Lost bits per byte: what a decoder with other weights loses on text that the given decoder writes.

The text begins with held-out bytes, and the given decoder draws the rest. At each byte both decoders give a probability to each
of the 256 next bytes. The mean of ``log2(given / changed)``, weighted with the given probabilities, is the number of bits per byte that the
changed decoder needs in addition on this text. It is the Kullback-Leibler divergence. It is never negative, and only equal
probabilities reach 0: on this text no decoder is better than the given one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from course_lib.errors import CourseError
from course_lib.labs.lab14_four_bits import given
from course_lib.models.torch_threads import one_thread

_GIVEN, _WINDOW = 24, 192  # bytes of held-out text at the beginning of each window, and all of its bytes
_AT_ONCE = 8  # windows of one call


@dataclass(frozen=True)
class Lost:
    """Lost bits per byte.

    Attributes:
        mean: over all windows.
        half_width: of the 95 % confidence interval of the mean, from the differences between windows.
    """

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.half_width:.4f}"


class Meter:
    """Measures lost bits per byte on one text.

    Args:
        seed: of the text; None draws one from the operating system.
        windows: parts of 192 bytes. With 16 of them the interval is about a tenth of the loss.
        learner: whose decoder it is.

    Attributes:
        tokens: the text, int64 ``(windows, 192)``.
    """

    def __init__(self, seed: int | None = 0, windows: int = 16, learner: str = "") -> None:
        self._model = given.model(learner)
        self.tokens = self._drawn(np.random.default_rng(seed), windows)
        self._expected = _log_probabilities(self._logits(self.tokens[:, :-1], {}))

    def lost(self, changed: Mapping[str, np.ndarray]) -> Lost:
        """What the decoder loses with other weights.

        Args:
            changed: weights ``(out, in)`` by the product's name. The other products keep the given weights.
        """
        for name, weight in changed.items():
            if name not in given.PRODUCTS:
                raise CourseError(f"no product {str(name)[:60]!r}: the decoder has {', '.join(given.PRODUCTS)}")
            shape = given.PRODUCTS[name][::-1]
            if np.shape(weight) != shape:
                raise CourseError(f"the weight of {name} has the shape {np.shape(weight)}, expected (out, in) = {shape}")
        return self.lost_by(self._logits(self.tokens[:, :-1], changed))

    def lost_by(self, logits: np.ndarray) -> Lost:
        """The same for logits ``(windows, 191, 256)`` after each byte but the last of a window."""
        expected = self._expected
        each = (np.exp(expected) * (expected - _log_probabilities(logits))).sum(-1).mean(-1) / np.log(2)
        return Lost(float(each.mean()), float(1.96 * each.std(ddof=1) / np.sqrt(len(each))))

    def _drawn(self, rng: np.random.Generator, windows: int) -> np.ndarray:
        """Held-out beginnings from random places, continued by the given decoder: each byte is drawn with its probability."""
        import torch

        from course_lib.models import course_text

        text = np.frombuffer(course_text("test"), np.uint8).astype(np.int64)
        starts = rng.integers(0, len(text) - _GIVEN, windows)
        tokens = text[starts[:, None] + np.arange(_GIVEN)]
        with one_thread(), torch.inference_mode():
            cache, position = self._model.empty_cache(_WINDOW, windows), 0
            new = tokens
            while tokens.shape[1] < _WINDOW:
                at = torch.tensor([position])
                logits = self._model.step(torch.from_numpy(new), at, cache, last_only=True)[0][:, -1].numpy()
                position += new.shape[1]
                # a draw with the probabilities of the logits
                new = (logits + rng.gumbel(size=logits.shape)).argmax(-1)[:, None]
                tokens = np.concatenate([tokens, new], axis=1)
        return tokens

    def _logits(self, tokens: np.ndarray, changed: Mapping[str, np.ndarray]) -> np.ndarray:
        """The logits of the given decoder with other weights inside."""
        import torch
        from torch.func import functional_call

        weights = {f"{name}.weight": torch.from_numpy(np.array(one, np.float32, order="C")) for name, one in changed.items()}
        with one_thread(), torch.inference_mode():
            parts = torch.from_numpy(tokens).split(_AT_ONCE)
            return np.concatenate([functional_call(self._model, weights, part).numpy() for part in parts])


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
