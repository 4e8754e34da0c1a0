"""Wrong answers to the exercises of lecture 3."""

MISTAKES = {
    "3.1": {
        "every node a kernel": lambda kernels, sizes, outputs: sum(
            sizes[name] for kernel in kernels for inputs, output in kernel for name in (*inputs, output)
        ),
        "each tensor once": lambda kernels, sizes, outputs: sum(
            sizes[name] for name in {name for kernel in kernels for inputs, output in kernel for name in (*inputs, output)}
        ),
        "reads only": lambda kernels, sizes, outputs: sum(
            sizes[name] for kernel in kernels for inputs, _ in kernel for name in inputs
        ),
        "the last output only": ("{output for _, output in kernel} & needed", "{kernel[-1][1]}"),
        "outputs of the network forgotten": ("outputs.union(*read)", "set().union(*read) | {kernels[-1][-1][1]}"),
    },
    "3.2": {
        "rows": lambda w, b, s, t: (w * s[:, None], b + w @ t),
        "scaled weight": lambda w, b, s, t: (w * s, b + (w * s) @ t),
        "no bias": lambda w, b, s, t: (w * s, b),
        "shift alone": lambda w, b, s, t: (w * s, b + t),
        "transposed": lambda w, b, s, t: (w * s, b + w.T @ t),
    },
    "3.3": {
        "one node": ("found.append(readers[0])", "return [readers[0]]"),
        "no operators": (" or graph[readers[0]][0] not in pointwise", ""),
        "no second reader": ("len(readers) != 1", "not readers"),
        "no outputs": ("while tensor not in outputs", "while True"),
        "with the convolution": ("found: list[str] = []", "found = [start]"),
    },
}  # fmt: skip
