"""Solutions of the exercises in lecture 1."""

from __future__ import annotations


def finished_us(launch_us: float, kernels_us: list[float]) -> float:
    """1.1: two clocks, one for the host and one for the GPU."""
    host = gpu = 0.0
    for kernel in kernels_us:
        host += launch_us
        gpu = max(gpu, host) + kernel
    return gpu


def least_time_us(operations: float, bytes_moved: float, operations_per_s: float, bytes_per_s: float) -> float:
    """1.2: the roofline as a time."""
    return 1e6 * max(operations / operations_per_s, bytes_moved / bytes_per_s)


def speedup_needed(request_ms: float, network_ms: float, target_ms: float) -> float:
    """1.3: Amdahl's law, solved for the factor."""
    left = target_ms - (request_ms - network_ms)
    return max(1.0, network_ms / left) if left > 0 else float("inf")
