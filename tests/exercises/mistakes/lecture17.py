"""Wrong answers to the exercises of lecture 17."""

import numpy as np

MISTAKES = {
    "17.1": {
        "weights of each": ("free - sum(weights for weights, _, _ in models)", "free",
            "sum(buffers for _, _, buffers in models)", "sum(weights + buffers for weights, _, buffers in models)"),
        "without buffers": (" + sum(buffers for _, _, buffers in models)", ""),
        "never shared": ("max(scratch) if shared else ", ""),
        "always shared": (" if shared else sum(scratch)", ""),
        "the smallest": ("max(scratch)", "min(scratch)"),
        "without weights": ("free - sum(weights for weights, _, _ in models)", "free"),
        "negative": ("max(0, left // each)", "left // each"),
        "one for all": (
            "    each =",
            "    if shared:\n        return (left - max(scratch)) // sum(buffers for _, _, buffers in models)\n    each ="),
    },
    "17.2": {
        "absolute": (" * np.abs(right).max()", ""),
        "each value": ("np.abs(tested[name] - right).max()", "(np.abs(tested[name] - right) / np.abs(right)).max()",
            "limit * np.abs(right).max()", "limit"),
        "largest": lambda reference, tested, limit: max(
            (
                (np.abs(tested[name] - right).max() / np.abs(right).max(), name)
                for name, right in reference.items()
                if name in tested and not np.abs(tested[name] - right).max() <= limit * np.abs(right).max()
            ),
            default=(0, ""),
        )[1],
        "NaN": ("not np.abs(tested[name] - right).max() <=", "np.abs(tested[name] - right).max() >"),
        "fused": ("name in tested and not", "name not in tested or not"),
    },
    "17.3": {
        "linear": ("(low + high) // 2", "low"),
        "twice": ("        if is_wrong", "        is_wrong(names[middle])\n        if is_wrong"),
        "the one after": ("names[low] if", "names[min(low + 1, len(names) - 1)] if"),
        "the one before": ("names[low] if", "names[max(low - 1, 0)] if"),
        "the last": ('else ""', "else names[-1]"),
        "a position": lambda names, is_wrong: 0,
    },
}  # fmt: skip
