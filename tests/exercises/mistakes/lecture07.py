"""Wrong answers to the exercises of lecture 7."""

MISTAKES = {
    "7.1": {
        "symmetric": ("-half, half", "1 - half, half"),
        "another scale": ("(half - 1)\n", "half\n"),
        "no clip": ("np.clip(np.rint(values / scale), -half, half - 1)", "np.rint(values / scale)"),
        "codes": ("half - 1) * scale", "half - 1)"),
        "cut off": ("np.rint", "np.trunc"),
    },
    "7.2": {
        "plain": ("return clipped + (rounded - clipped).detach()", "return rounded"),
        "detached": ("return clipped + (rounded - clipped).detach()", "return rounded.detach()"),
        "clipped values too": ("return clipped + (rounded - clipped).detach()", "return x + (rounded - x).detach()"),
        "not rounded": lambda x, scale, low, high: x * 1,
        "not clipped": ("torch.clamp(x / scale, low, high) * scale", "x"),
        "with the scale": ("low, high) * scale", "low, high)", "torch.round(clipped / scale)", "torch.round(clipped)"),
    },
    "7.3": {
        "no root": ("np.sqrt(", "("),
        "upside down": ("np.sqrt(", "1 / np.sqrt("),
        "no bias": ("bias / factor", "bias"),
        "nothing": lambda first, bias, second: (first, bias, second),
        "first only": ("second * factor", "second"),
        "two arrays": ("bias / factor, ", ""),
    },
}  # fmt: skip
