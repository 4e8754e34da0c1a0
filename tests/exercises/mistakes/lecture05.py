"""Wrong answers to the exercises of lecture 5."""

import numpy as np

MISTAKES = {
    "5.1": {
        "cut off": ("round(fraction", "int(fraction"),
        "one bit too few": ("mantissa_bits + 1", "mantissa_bits"),
        "one bit too many": ("mantissa_bits + 1", "mantissa_bits + 2"),
        "ties up": ("round(fraction * steps)", "math.floor(fraction * steps + 0.5)"),
    },
    "5.2": {
        "squares": lambda values: np.sqrt((values * values).mean()),
        "root of the sum": lambda values: np.sqrt((values * values).sum()),
        "fixed divisor": ("np.abs(values).max()", "np.float16(1024)"),
        "no magnitude": ("np.abs(values).max()", "values.max()"),
        "zero": ("    if largest == 0:\n        return 0.0\n", ""),
        "float32": lambda values: np.sqrt((values.astype(np.float32) ** 2).mean()),
        "not scaled back": lambda values: np.sqrt(((values / np.abs(values).max()) ** 2).mean()),
    },
    "5.3": {
        "outputs": ("(*inputs, output)]", "(output,)]"),
        "inputs": ("(*inputs, output)]", "inputs]"),
        "2048": ("65504", "2048"),
        "no underflow": (" or any(0 < size < 6e-8 for size in sizes)", ""),
        "the largest number": ("> 65504", ">= 65504"),
    },
    "5.4": {
        "outputs": ("production[tensor] for tensor in tensors", "production[tensor] for tensor in (output,)"),
        "inputs": ("production[tensor] for tensor in tensors", "production[tensor] for tensor in inputs"),
        "data_max in production": ("65504", "512"),
        "kept nodes, too": ("if in_fp16 and ", "if "),
        "always 512": ("<= data_max", "<= 512"),
        "swapped": ("calibrated[tensor]", "production_[tensor]", "production[tensor]", "calibrated[tensor]", "production_[", "production["),
    },
}  # fmt: skip
