"""Wrong answers to the exercises of lecture 9."""

MISTAKES = {
    "9.1": {
        "interleaved": ("x[:half], x[half:]", "x[::2], x[1::2]",
            "np.concatenate([", "np.stack([", "np.sin(angle)])", "np.sin(angle)], 1).ravel()"),
        "half the exponent": ("-2 *", "-1.0 *"),
        "twice the exponent": ("-2 *", "-4.0 *"),
        "the other direction": ("angle =", "angle = -1 *"),
        "in place": ("    return", "    a_was = a\n    a = a * np.cos(angle) - b * np.sin(angle)\n    return",
            "[a * np.cos(angle) - b * np.sin(angle),", "[a,"),
    },
    "9.2": {
        "bytes": lambda first, size: len(first) * size // 32,
        "for each thread": lambda first, size: len(first),
        "one too far": ("range(size)", "(0, size)"),
        "from first to last": lambda first, size: (max(first) + size - 1) // 32 - min(first) // 32 + 1,
        "first bytes only": ("range(size)", "(0,)"),
    },
    "9.3": {
        "no heads": ("row // heads % sequence", "row"),
        "stride of a half": ("row * head_size", "row * half"),
        "next to it": ("a + half", "a + 1"),
        "a whole head": ("a + half", "a + head_size"),
        "position first": ("row // heads % sequence", "row % sequence"),
        "one sample": (" % sequence", ""),
    },
    "9.4": {
        "bytes": ("16 // bytes_each", "16"),
        "always 8": ("16 // bytes_each", "8"),
        "a whole head": ("head_size // 2", "head_size"),
        "the first address": ("*addresses", "addresses[0]"),
        "never": lambda *given: 1,
    },
    "9.5": {
        "tables like x": ('1: ("float32",), 2: ("float32",)', "1: (tensors[0][0],), 2: (tensors[0][0],)"),
        "all tensors": ('layout == "LINEAR"', 'all(layout == "LINEAR" for _, layout in tensors)'),
        "any type": ('"bfloat16"', '"bfloat16", "int8"'),
        "no tables": ("kind in allowed[pos]", "(pos in (1, 2) or kind in allowed[pos])"),
        "one table": ("kind in allowed[pos]", "(pos == 2 or kind in allowed[pos])"),
        "y alone": ("3: (tensors[0][0],)", '3: ("float32", "float16", "bfloat16")'),
        "no layout": ('layout == "LINEAR" and ', ""),
        "two types": (', "bfloat16"', ""),
    },
    "9.6": {
        "no domain": ('"course", scale', '"", scale'),
        "the order of the inputs": ('["x", "r"]', '["r", "x"]'),
        "no version": ('"plugin_version": "1", ', ""),
        "no namespace": (', "plugin_namespace": "course"', ""),
        "an integer": ("float(scale)", "1"),
        "always 0.5": ("float(scale)", "0.5"),
        "the name": ("**names)", "**names).op_type"),
    },
}  # fmt: skip
