"""Wrong answers to the exercises of lecture 6."""

MISTAKES = {
    "6.1": {
        "256 steps": ("/ 255", "/ 256"),
        "symmetric": lambda low, high: (max(abs(low), abs(high)) / 127, 0),
        "signed": ("round(-low / scale)", "round(-low / scale) - 128"),
        "rounded down": ("round(", "int("),
        "0 not in the range": ("    low, high = min(low, 0.0), max(high, 0.0)\n", ""),
    },
    "6.2": {
        "per tensor": ("max((1, 2, 3))", "max()", "[:, None, None, None]", "", "np.int8), scales", "np.int8), scales.ravel()"),
        "per input": ("max((1, 2, 3))", "max((0, 2, 3))", "[:, None, None, None]", "[:, None, None]"),
        "128": ("/ 127", "/ 128"),
        "cut off": ("np.rint", "np.trunc"),
        "not converted": ("np.int8", "np.float32"),
        "an empty filter": ("np.where(largest > 0, largest / 127, 1.0)", "largest / 127"),
        "codes only": ("np.int8), scales", "np.int8)"),
    },
    "6.3": {
        "lower edge": ("+ 1)", "+ 0)"),
        "middle": ("+ 1)", "+ 0.5)"),
        "more than": (">=", ">"),
        "share of the range": lambda counts, width, percent: percent / 100 * len(counts) * width,
        "no width": (" * bin_width", ""),
    },
    "6.4": {
        "nothing": lambda model, tensor, scale: model,
        "no way back": ("{tensor}/back", "{tensor}/codes", "    graph.node.insert(after + 1,", "    (after + 1,"),
        "readers unchanged": ("node.input[place] = back", "pass"),
        "one reader": ("for place, name in enumerate(node.input):", "if tensor in node.input:", "            if name == tensor:\n", "",
            "node.input[place] = back", "node.input[:] = [back if name == tensor else name for name in node.input]\n                break"),
        "unsigned": ("np.int8", "np.uint8"),
        "at the end": ("next(place for place, node in enumerate(graph.node) if tensor in node.output) + 1", "len(graph.node)"),
        "reads itself": ("node.input[place] = back", "pass", "    return model",
            "    for node in graph.node:\n        node.input[:] = [back if name == tensor else name for name in node.input]\n"
            "    return model"),
        "another scale": ('[f"{tensor}/codes", *constants]', '[f"{tensor}/codes", "double", constants[1]]', "    return model",
            '    graph.initializer.append(numpy_helper.from_array(np.array(2 * scale, np.float32), "double"))\n    return model'),
    },
}  # fmt: skip
