"""Wrong answers to the exercises of lecture 1."""


def _no_order(launch, kernels):
    return len(kernels) * launch + kernels[-1]


def _free_first_launch(launch, kernels):
    host = gpu = 0
    for kernel in kernels:
        gpu = max(gpu, host) + kernel
        host += launch
    return gpu


MISTAKES = {
    "1.1": {
        "everything": lambda launch, kernels: len(kernels) * launch + sum(kernels),
        "the larger sum": lambda launch, kernels: max(len(kernels) * launch, sum(kernels)),
        "the first launch only": lambda launch, kernels: launch + sum(kernels),
        "no order": _no_order,
        "free first launch": _free_first_launch,
    },
    "1.2": {
        "sum": lambda ops, moved, peak, width: 1e6 * (ops / peak + moved / width),
        "memory": lambda ops, moved, peak, width: 1e6 * moved / width,
        "arithmetic": lambda ops, moved, peak, width: 1e6 * ops / peak,
        "seconds": lambda ops, moved, peak, width: max(ops / peak, moved / width),
        "intensity": lambda ops, moved, peak, width: ops / moved,
    },
    "1.3": {
        "whole request": lambda request, network, target: request / target,
        "no rest": lambda request, network, target: network / target,
        "negative": lambda request, network, target: network / (target - (request - network)),
        "no time left": lambda request, network, target: (
            network / (target - request + network) if target >= request - network else float("inf")
        ),
        "slower": lambda request, network, target: (
            network / (target - request + network) if target > request - network else float("inf")
        ),
    },
}
