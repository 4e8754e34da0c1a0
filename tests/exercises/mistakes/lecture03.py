"""Wrong answers to the exercises of lecture 3."""

from __future__ import annotations


def _all_tensors(kernels):
    return [(set(sum((inputs for inputs, _ in kernel), ())), {output for _, output in kernel}) for kernel in kernels]


def _every_node_a_kernel(kernels, sizes, outputs):
    return sum(sizes[name] for kernel in kernels for inputs, output in kernel for name in (*inputs, output))


def _each_once(kernels, sizes, outputs):
    return sum(sizes[name] for name in set().union(*(read | written for read, written in _all_tensors(kernels))))


def _only_the_last_output(kernels, sizes, outputs):
    total = 0
    for kernel, (read, written) in zip(kernels, _all_tensors(kernels), strict=True):
        total += sum(sizes[name] for name in read - written) + sizes[kernel[-1][1]]
    return total


def _outputs_forgotten(kernels, sizes, outputs):
    read = [read - written for read, written in _all_tensors(kernels)]
    needed = set().union(*read) | {kernels[-1][-1][1]}
    written = [written & needed for _, written in _all_tensors(kernels)]
    return sum(sizes[name] for names in (*read, *written) for name in names)


def _reads_only(kernels, sizes, outputs):
    return sum(sizes[name] for kernel in kernels for inputs, _ in kernel for name in inputs)


def _follow(graph, start, outputs, pointwise, *, operators=True, readers=True, given=True, most=99):
    found, tensor = [], graph[start][2]
    while (not given or tensor not in outputs) and len(found) < most:
        reading = [name for name, node in graph.items() if tensor in node[1]]
        if not reading or (readers and len(reading) > 1) or (operators and graph[reading[0]][0] not in pointwise):
            break
        found.append(reading[0])
        tensor = graph[reading[0]][2]
    return found


MISTAKES = {
    "3.1": {
        "every node a kernel": _every_node_a_kernel,
        "each tensor once": _each_once,
        "reads only": _reads_only,
        "the last output only": _only_the_last_output,
        "outputs of the network forgotten": _outputs_forgotten,
    },
    "3.2": {
        "rows": lambda w, b, s, t: (w * s[:, None], b + w @ t),
        "scaled weight": lambda w, b, s, t: (w * s, b + (w * s) @ t),
        "no bias": lambda w, b, s, t: (w * s, b),
        "shift alone": lambda w, b, s, t: (w * s, b + t),
        "transposed": lambda w, b, s, t: (w * s, b + w.T @ t),
    },
    "3.3": {
        "one node": lambda *given: _follow(*given, most=1),
        "no operators": lambda *given: _follow(*given, operators=False),
        "no second reader": lambda *given: _follow(*given, readers=False),
        "no outputs": lambda *given: _follow(*given, given=False),
        "with the convolution": lambda graph, start, *given: [start, *_follow(graph, start, *given)],
    },
}
