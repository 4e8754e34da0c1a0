"""What docs/benchmarks.md says about the attention kernels alone, and about the kernels of whole networks with and without them."""

from __future__ import annotations

import re

from benchmarks.markdown import Data, device, error, page, ratio, source, table, tensorrt, torch

# Groups of kernels by what is in their names; the first that fits counts.
GROUPS = (
    ("products", r"gemm|nvjet"),
    ("attention", r"attentionKernel|sdpa"),
    ("GELU", r"Erf|gelu"),
    ("norms", r"Sqr|layer_norm"),
    ("copies and casts", r""),
)


def encoders(data: Data) -> str:
    """The engines with the plugin, as CUDA graphs, against PyTorch's variants in FP16."""
    graph = "compile+cuda graph fp16"
    lines = [
        (
            row["network"],
            row["batch"],
            *(ratio(row["speedup"][name], 2) for name in (row["same_dtype"], "cuda graph fp16", graph)),
            error(row["relative_error"]),
        )
        for row in data["rows"]
        if row["candidate"] == "TensorRT fp16, attention plugin + CUDA graph"
    ]
    about = f"""Encoders in FP16 with the course's attention plugin: {tensorrt(data)} against torch {torch(data)} on one {device(data)},
        {source("encoders_h200", data)}). Engines are built one at a time with cuBLAS and cuDNN in place, and replayed as CUDA graphs.
        Each cell is the speedup [95 % interval] over one PyTorch variant in FP16. Below 1, PyTorch is faster. Weights are random;
        the error is that of the outputs to eager FP32."""
    head = ("network", "batch", "over eager", "over a CUDA graph", "over torch.compile in a CUDA graph", "relative error")
    return page(about, table(head, lines))


def attention(data: Data) -> str:
    lines = []
    for row in data["rows"]:
        whole = row["kernel"] == "whole"
        tokens = row["sequence"] if whole else row["length"]
        copied = min((row["speed_over"][name] for name in ("copy", "negation")), key=lambda speed: float(speed["median"]))
        lines.append(
            (
                f"{row['batch']} x {tokens}, {'whole sequences' if whole else 'one new token'}",
                f"{row['us']['ours']:.1f} us",
                ratio(row["speed_over"]["torch"], 2),
                ratio(copied, 2, unit=""),
            )
        )
    about = f"""The course's two attention kernels on one {device(data)}, FP16, 12 heads of 64, under CUDA graphs, inputs rotated so that no
        cache holds them, compared with PyTorch's `scaled_dot_product_attention` on the same tensors and with the faster of two copies of as
        many bytes, torch {torch(data)}, {source("attention_h200", data)}; ratio of speeds [95 % interval] within one run):"""
    return page(about, table(("batch x tokens", "time", "over PyTorch", "of a copy's speed"), lines))


def kernels(data: Data) -> str:
    """Microseconds of one call by group of kernels."""
    lines = []
    for row in data["rows"]:
        name = f"{row['network']}, batch {row['batch']}, {row['candidate']}"
        if "failed" in row:
            lines.append((name, "not measured", *[""] * len(GROUPS)))
            continue
        sums = dict.fromkeys((group for group, _ in GROUPS), 0.0)
        for kernel in row["kernels"]:
            sums[next(group for group, pattern in GROUPS if re.search(pattern, kernel["name"]))] += kernel["us"]
        launches = sum(kernel["launches"] for kernel in row["kernels"])
        lines.append((name, launches, *(f"{us:.0f} us" for us in sums.values())))
    about = f"""Where the time of one call goes, by Nsight Compute, which runs each kernel alone: {tensorrt(data)} and torch {torch(data)}
        on one {device(data)}, {source("kernels_h200", data)}):"""
    return page(about, table(("network and candidate", "kernels", *(group for group, _ in GROUPS)), lines))
