"""Submissions of lab 11: another right answer, and mistakes with the task, the tier and the words that they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_lib.labs.lab11_torch_tensorrt import reference

FILES = {"converter.py": reference.CONVERTER, "model.py": reference.MODEL, "settings.toml": reference.SETTINGS}
_SMALLEST = "top = ctx.net.add_topk(x, trt.TopKOperation.MIN, count, 1 << dim)"
_LEVELED = "x = x.float()\n        energy"


def changed(name: str, changes: Mapping[str, str]) -> str:
    """A file of the reference with other passages."""
    text = FILES[name]
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def another(folder: Path) -> None:
    """The largest elements in place of the smallest, a scale in place of FP32, and another range."""
    largest = {
        "(x.shape[dim] + 1) // 2": "x.shape[dim] - (x.shape[dim] - 1) // 2",
        "(size + 1) // 2": "size - (size - 1) // 2",
        _SMALLEST: _SMALLEST.replace("MIN", "MAX"),
    }
    scaled = {
        _LEVELED: "x = x / x.abs().amax(dim=(1, 2), keepdim=True)\n        energy",
        "(64 * x / energy.sqrt()).half()": "64 * x / energy.sqrt()",
        ".flatten(2)": ".reshape(-1, ROWS, WIDTH)",
    }
    (folder / "converter.py").write_text(changed("converter.py", largest))
    (folder / "model.py").write_text(changed("model.py", scaled))
    (folder / "settings.toml").write_text(
        changed("settings.toml", {"max = 24": "max = 32", "true": "true\noptimization_level = 4"})
    )


@dataclass(frozen=True)
class Mistake:
    """A change of one file, and what it gets."""

    file: str
    changes: Mapping[str, str]
    task: str
    tier: str
    words: str


CONVERTS_ANOTHER = """
from torch_tensorrt.dynamo.conversion import dynamo_tensorrt_converter


@dynamo_tensorrt_converter(torch.ops.aten.cumprod.default, supports_dynamic_shapes=True)
def unchanged(ctx, target, args, kwargs, name):
    return args[0]


class Rewritten"""

MISTAKES = {
    "the upper median": Mistake(
        "converter.py", {"(x.shape[dim] + 1) // 2": "x.shape[dim] // 2 + 1"}, "converter", "none", "upper of the two middle values"
    ),
    "keepdim is ignored": Mistake(
        "converter.py", {"len(args) > 2 and args[2]": "False"}, "converter", "none", "found the shape"
    ),
    "only fixed shapes": Mistake(
        "converter.py", {"    supports_dynamic_shapes=True,\n": ""}, "converter", "partial", "supports_dynamic_shapes=True"
    ),
    "takes long axes": Mistake(
        "converter.py", {"    capability_validator=fits,\n": ""}, "converter", "partial", "at most 3,840 elements"
    ),
    "a fixed batch": Mistake(
        "model.py", {".flatten(2)": ".reshape(8, ROWS, WIDTH)"}, "model", "none", "torch.export rejects batches from 1 to 32"
    ),
    "a sum of squares in FP16": Mistake("model.py", {_LEVELED: "energy"}, "model", "none", "the same for each image"),
    "cumsum, which the validator rejects": Mistake(
        "model.py", {"before @ torch.log(gates.float())": "torch.log(gates.float()).cumsum(1)"}, "model", "partial", "aten.cumsum.default"
    ),
    "left in FP32": Mistake(
        "model.py",
        {"        self.half()\n": "", "rows.half()": "rows", "gates.float())).half()": "gates.float()))",
         "energy.sqrt()).half()": "energy.sqrt())"},
        "model", "partial", "FP32 weights of a layer is",
    ),
    "a converter for another operator": Mistake(
        "model.py",
        {
            "\n\nclass Rewritten": CONVERTS_ANOTHER,
            "before = torch.ones(ROWS, ROWS).tril()\n        return torch.exp(before @ torch.log(gates.float())).half()":
            "return gates.cumprod(1)",
        },
        "model", "none", "Register one converter",
    ),
    "a misspelled keyword": Mistake(
        "settings.toml", {"require_full_compilation": "require_full_compile"}, "settings", "none", "did you mean"
    ),
    "a border is not an error": Mistake("settings.toml", {"true": "false"}, "settings", "none", "Which keyword"),
}  # fmt: skip
