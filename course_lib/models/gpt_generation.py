"""The language model in ONNX Runtime, with a cache that is written in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx


class CachedSession:
    """A language model with a static cache in ONNX Runtime on the CPU, from `export_cached`.

    Each tensor of the cache is one buffer, bound as an input and as the output that replaces it. A node that writes in place
    then writes the new keys and values only. With a buffer for each, ONNX Runtime copies the whole cache in every step.

    Args:
        model: of the form "tensor_scatter" or "scatter_nd".
        in_place: False gives each output a buffer of its own, which is the next step's input. It shows what copying costs.
        longest: positions that a sequence may reach, for a model that uses slots again; default: the slots of its cache.

    Attributes:
        position: number of tokens in the cache, int64 ``(batch,)``, or ``(1,)`` for "scatter_nd". Set it to 0 for another text:
            what the cache holds from there on is not read.

    Raises:
        ValueError: the model does not have a static cache.
    """

    def __init__(self, model: onnx.ModelProto, *, in_place: bool = True, longest: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        if not in_place:
            options.log_severity_level = 3  # errors: TensorScatter would warn of each copy in each step
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        inputs = {info.name: info for info in self._session.get_inputs()}
        past = {name: info.shape for name, info in inputs.items() if name.startswith("past_")}
        if not past or any(not isinstance(size, int) for shape in past.values() for size in shape):
            raise ValueError("expected a model with a static cache: export it with form='tensor_scatter' or 'scatter_nd'")
        dtype = np.float16 if inputs["past_key_0"].type == "tensor(float16)" else np.float32
        self._longest, self._vocabulary = longest or past["past_key_0"][2], self._session.get_outputs()[0].shape[2]
        self._last_only = self._session.get_outputs()[0].shape[1] == 1
        self._batch = inputs["tokens"].shape[0]
        self.position = np.zeros(inputs["position"].shape, np.int64)
        self._caches = [{name: np.zeros(shape, dtype) for name, shape in past.items()} for _ in range(1 if in_place else 2)]
        self._turn = 0  # which of the caches is the next step's input
        self._decode: dict[int, _Bound] = {}  # by turn

    @property
    def cache(self) -> dict[str, np.ndarray]:
        """The buffers that the next step reads, by input name. Writing to them changes the cache."""
        return self._caches[self._turn]

    def step(self, tokens: np.ndarray) -> np.ndarray:
        """Append tokens to the cache and advance `position`.

        Args:
            tokens: int64 ``(batch, new)``.

        Returns:
            The logits float32 ``(batch, new, vocabulary)``, or of the last token only, as the model was exported. The next step of
            as many tokens overwrites them.

        Raises:
            ValueError: the tokens do not fit into the cache.
        """
        _check_room(int(self.position.max()), tokens.shape[1], self._longest)
        bound = self._decode.get(self._turn) if tokens.shape[1] == 1 else None
        if bound is None:
            bound = self._bind(tokens.shape[1])
            if tokens.shape[1] == 1:
                self._decode[self._turn] = bound
        bound.tokens[:] = tokens
        self._session.run_with_iobinding(bound.binding)
        self.position += tokens.shape[1]
        self._turn = (self._turn + 1) % len(self._caches)
        return bound.logits

    def _bind(self, new: int) -> _Bound:
        """Inputs and outputs by address, for `new` tokens and the caches of this turn."""
        tokens = np.empty((self._batch, new), np.int64)
        logits = np.empty((self._batch, 1 if self._last_only else new, self._vocabulary), np.float32)
        binding = self._session.io_binding()

        def bind(which: Any, name: str, array: np.ndarray) -> None:
            which(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

        for name, array in (("tokens", tokens), ("position", self.position)):
            bind(binding.bind_input, name, array)
        bind(binding.bind_output, "logits", logits)
        after = self._caches[(self._turn + 1) % len(self._caches)]
        for name, array in self._caches[self._turn].items():
            bind(binding.bind_input, name, array)
            bind(binding.bind_output, name.replace("past_", "present_"), after[name])
        return _Bound(binding, tokens, logits)


@dataclass(frozen=True)
class _Bound:
    """A binding with the arrays whose addresses it holds: int64 ``(batch, new)``, float32 ``(batch, new or 1, vocabulary)``."""

    binding: Any
    tokens: np.ndarray
    logits: np.ndarray


def _check_room(before: int, new: int, length: int) -> None:
    if new < 1:
        raise ValueError(f"need at least one new token, got {new}")
    if before + new > length:
        raise ValueError(
            f"{before} tokens and {new} new ones are more than {length}, the room for one sequence: ask for fewer, or export a cache "
            "of larger length"
        )
