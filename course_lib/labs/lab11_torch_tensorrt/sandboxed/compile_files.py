"""The process that compiles a learner's module: the released Torch-TensorRT runs in it, with the learner's converter and module.

It gets no expected answer. The judge computes these in its own process and compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from course_lib.labs.framework import learner_code

CONVERTER, MODEL = "converter.py", "model.py"
OPERATOR = "aten.median.dim"
CLASS = "Rewritten"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What is found in the files, by the parts that are asked for.

    Args:
        request: ``sources``, texts by file; and by part what it needs: ``converter``, cases; ``model``, a seed, batches, a range and
            options; ``border``, options with which the given module is compiled.
    """
    import torch

    from course_lib.engines.backends.torch_tensorrt import without_gpu

    torch.set_num_threads(1)
    without_gpu.hide_gpus()
    without_gpu.load()
    found: dict[str, Any] = {}
    before = _registered()
    converter, module = (_loaded(request["sources"], file, found) for file in (CONVERTER, MODEL))
    found["registered"] = sorted(name for name, count in _registered().items() if count != before.get(name))
    if "converter" in request and converter:
        found["converter"] = [_converted(case) for case in request["converter"]]
        found["dynamic"] = _attempted(lambda: _compiled_median((4, 33), dynamic=True), CONVERTER)
        found["long"] = _attempted(lambda: _compiled_median((2, 9000), dynamic=False), CONVERTER)
    if "model" in request and module:
        found["model"] = _attempted(lambda: _model(module, request["model"]), MODEL)
    if "border" in request:
        found["border"] = _attempted(lambda: _border(request["border"]), MODEL)
    return found


def _registered() -> dict[str, int]:
    """The number of converters by operator."""
    from torch_tensorrt.dynamo.conversion._ConverterRegistry import DYNAMO_CONVERTERS

    counts: dict[str, int] = {}
    for registry in DYNAMO_CONVERTERS.registries:
        for target, converters in registry.items():
            several = len(converters) if isinstance(converters, (list, tuple)) else 1
            counts[str(target)] = counts.get(str(target), 0) + several
    return counts


def _loaded(sources: Mapping[str, str], file: str, found: dict[str, Any]) -> ModuleType | None:
    if file not in sources:
        return None
    try:
        return learner_code.loaded(sources[file], file)
    except BaseException as error:  # whatever a learner's code raises is an answer
        found[f"failed {file}"] = learner_code.failure(error, file)
        return None


def _attempted(attempt: Any, file: str) -> Any:
    try:
        return attempt()
    except BaseException as error:
        return learner_code.failure(error, file)


def _median(dim: int, keepdim: bool, output: int) -> Any:
    import torch

    class Median(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.median(dim, keepdim)[output]

    return Median().eval()


def _converted(case: Sequence[Any]) -> dict[str, Any]:
    """The output of the network that the converter writes for one case: an array, and the arguments of `_median`."""
    import torch

    from course_lib.engines.backends.torch_tensorrt import network_values

    def convert() -> dict[str, Any]:
        x = torch.from_numpy(learner_code.given_values(case[0]))
        exported = torch.export.export(_median(*case[1:]), (x,))
        return learner_code.encoded(network_values.converted(exported, [x])[0])

    return _attempted(convert, CONVERTER)


def _compiled_median(shape: tuple[int, ...], *, dynamic: bool) -> dict[str, Any]:
    """The blocks of a median, with an open batch size or with a fixed one."""
    import torch

    from course_lib.engines.backends.torch_tensorrt import blocks, engine

    x = torch.rand(shape)
    dims = ({0: torch.export.Dim("batch", min=1, max=8)},) if dynamic else None
    exported = torch.export.export(_median(1, False, 0), (x,), dynamic_shapes=dims)
    size = {"min": (1, *shape[1:]), "opt": shape, "max": (8, *shape[1:])} if dynamic else shape
    return blocks.read(engine.compile_exported(exported, {"x": size}, (x,), {"min_block_size": 1})).to_json()


def _model(module: ModuleType, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks of the learner's module with drawn weights, and its answers for drawn rows."""
    import numpy as np
    import torch

    from course_lib.engines.backends.torch_tensorrt import blocks, engine
    from course_lib.labs.lab11_torch_tensorrt import given

    rng = np.random.default_rng(asked["seed"])
    made = getattr(module, CLASS)().eval()
    wanted = {key: list(value.shape) for key, value in given.Reader().state_dict().items()}
    if (found := {key: list(value.shape) for key, value in made.state_dict().items()}) != wanted:
        wrong = sorted({*wanted} ^ {*found}) or sorted(key for key in wanted if wanted[key] != found[key])
        raise ValueError(f"its state_dict differs from the given one in {', '.join(wrong[:3])}")
    made.load_state_dict(given.weights(rng))
    least, best, most = asked["range"]
    rows = given.inputs(rng, best)
    with torch.no_grad():
        made(rows)  # an error of the learner's code, with its line
    dims = ({0: torch.export.Dim("batch", min=least, max=most)},) if least < most else None
    try:
        exported = torch.export.export(made, (rows,), dynamic_shapes=dims)
    except Exception as error:  # classes of several parts of PyTorch
        line = " ".join(str(error).split())[:200]
        raise ValueError(f"torch.export rejects batches from {least} to {most}: {line}") from error
    sizes = {bound: (size, given.ROWS, 32) for bound, size in zip(("min", "opt", "max"), (least, best, most), strict=True)}
    shape = sizes if least < most else sizes["opt"]
    compiled = engine.compile_exported(exported, {"rows": shape}, (rows,), asked["options"])
    answers = []
    with torch.no_grad():
        for batch in asked["batches"]:
            found_logits = compiled(given.inputs(np.random.default_rng(asked["seed"] + batch), batch))
            first = found_logits[0] if isinstance(found_logits, (tuple, list)) else found_logits
            answers.append({**learner_code.encoded(first.float().numpy()), "type": str(first.dtype).removeprefix("torch.")})
    return {"blocks": blocks.read(compiled).to_json(), "answers": answers}


def _border(options: Mapping[str, Any]) -> str:
    """How the given module, which TensorRT cannot run as a whole, ends with these settings."""
    import torch

    from course_lib.engines.backends.torch_tensorrt import engine
    from course_lib.errors import BuildError
    from course_lib.labs.lab11_torch_tensorrt import given

    rows = torch.rand(given.BATCH, given.ROWS, 32)
    exported = torch.export.export(given.reader(), (rows,))
    try:
        engine.compile_exported(exported, {"rows": tuple(rows.shape)}, (rows,), options)
    except BuildError as error:
        return str(error)
    return ""


def main() -> None:
    """The child's end."""
    learner_code.run(answer)
