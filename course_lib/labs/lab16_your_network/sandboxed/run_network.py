"""The process that runs a learner's network: its signature, and its answers in PyTorch to inputs that are drawn."""

from __future__ import annotations

from typing import Any

from course_lib.labs.framework import learner_code

FACTORY = "factory"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The signature and the outputs.

    Args:
        request: ``source``, the text of ``file``; ``asked``, each with shapes by input and a seed.
    """
    import torch

    from course_lib.errors import EngineError
    from course_lib.labs.lab16_your_network.given import draw
    from course_lib.models.signature import flat_outputs, signature_of

    torch.set_num_threads(1)
    try:
        module = getattr(learner_code.loaded(request["source"], request["file"]), FACTORY)()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"{FACTORY}() returned {type(module).__name__}, expected a torch.nn.Module")
        if type(module).__module__ != request["file"].removesuffix(".py"):
            raise TypeError(
                f"{type(module).__name__} is a class of {type(module).__module__}, expected one that you wrote here"
            )
        signature = signature_of(module)
        answers = []
        with torch.no_grad():
            for asked in request["asked"]:
                drawn = draw(signature.inputs, signature.integers, asked["shapes"], asked["seed"])
                outputs = flat_outputs(module(*(torch.from_numpy(value) for value in drawn.values())))
                answers.append([learner_code.encoded(output.float().numpy()) for output in outputs])
        weights = sum(parameter.dim() > 1 for parameter in module.parameters())
    except EngineError as error:  # the recipe's shapes do not fit the signature
        return {"error": str(error), "file": "recipe.toml"}
    except BaseException as error:  # whatever a learner's code raises is an answer
        return {**learner_code.failure(error, request["file"]), "file": request["file"]}
    return {
        "inputs": {name: list(shape) for name, shape in signature.inputs.items()},
        "integers": dict(signature.integers),
        "outputs": list(signature.outputs),
        "training": module.training,
        "weights": weights,
        "answers": answers,
    }


def main() -> None:
    """The child's end."""
    learner_code.run(answer)
