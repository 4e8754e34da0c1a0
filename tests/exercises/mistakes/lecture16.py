"""Wrong answers to the exercises of lecture 16."""

import numpy as np

MISTAKES = {
    "16.1": {
        "a scale for each weight": lambda code, block, scale: code + scale,
        "integer division": lambda code, block, scale: code + scale // block,
        "of the block": lambda code, block, scale: code * block + scale,
        "upside down": lambda code, block, scale: code + block / scale,
    },
    "16.2": {
        "no clip": ("np.clip(np.rint(block / scale), -7, 7)", "np.rint(block / scale)"),
        "position": ("float(fractions[int(np.argmin(errors))])", "int(np.argmin(errors))"),
        "scale": ("float(fractions[int(np.argmin(errors))])", "fractions[int(np.argmin(errors))] * np.abs(block).max() / 7"),
        "maximum, not magnitude": ("np.abs(block).max()", "block.max()"),
    },
    "16.3": {
        "product": lambda i, w, alpha: i**alpha * np.maximum(w, 1e-5) ** (1 - alpha),
        "inverse": lambda i, w, alpha: np.maximum(w, 1e-5) ** (1 - alpha) / i**alpha,
        "swapped": lambda i, w, alpha: i ** (1 - alpha) / np.maximum(w, 1e-5) ** alpha,
        "division by zero": lambda i, w, alpha: i**alpha / w ** (1 - alpha),
    },
    "16.4": {
        "values": ("np.abs(groups)", "groups"),
        "the smallest": ("np.abs(groups)", "-np.abs(groups)"),
        "half of a row": ("reshape(-1, 4)", "reshape(-1, 8)", "[:, :2]", "[:, :4]"),
        "one of four": ("[:, :2]", "[:, :3]"),
    },
}  # fmt: skip
