"""New weights for an engine that is already built, without a new build.

Source: NVIDIA TensorRT documentation, "Refitting an Engine".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from course_lib.engines.backends.tensorrt.loaded import Loaded
from course_lib.errors import EngineError


def weight_names(loaded: Loaded) -> tuple[str, ...]:
    """Names of the weights that may be replaced. For an ONNX model, they are the names of its initializers.

    Raises:
        EngineError: the plan was built without the recipe's flag ``refit``.
    """
    return tuple(_refitter(loaded).get_all_weights())


def refit(loaded: Loaded, weights: Mapping[str, np.ndarray]) -> None:
    """Replace weights. Existing executions use the new weights from their next run on. No execution may run during the call.

    Raises:
        EngineError: the engine is not refittable, a name is unknown, the number or type of elements is wrong, or weights are missing that
            the builder merged with given ones.
    """
    refitter = _refitter(loaded)
    known = set(refitter.get_all_weights())
    if unknown := sorted(weights.keys() - known):
        raise EngineError(
            f"no weights {unknown[0]!r} in this engine: it has {', '.join(sorted(known)[:8])} and {len(known)} in total"
        )
    held = {name: np.ascontiguousarray(array) for name, array in weights.items()}  # trt.Weights copies nothing
    for name, array in held.items():
        if not refitter.set_named_weights(name, loaded.trt.Weights(array)):
            raise EngineError(f"weights {name!r} reject {array.size} numbers of {array.dtype}: {loaded.log.take()}")
    if missing := sorted(refitter.get_missing_weights()):
        raise EngineError(f"these weights depend on what was replaced and must be given too: {', '.join(missing)}")
    if not refitter.refit_cuda_engine():
        raise EngineError(f"the engine cannot be refitted: {loaded.log.take()}")


def _refitter(loaded: Loaded) -> Any:
    if not loaded.engine.refittable:
        raise EngineError('this plan cannot be refitted: add "refit" to the recipe\'s flags and build it again')
    return loaded.trt.Refitter(loaded.engine, loaded.log)
