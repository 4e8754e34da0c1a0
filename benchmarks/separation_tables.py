"""What docs/benchmarks.md says about `separation.py`'s record."""

from __future__ import annotations

from benchmarks.markdown import Data, device, error, page, ratio, source, table, tensorrt, torch


def separation(data: Data) -> str:
    titles, types = {"resnet50": "ResNet-50", "unet": "U-Net"}, {"fp32": "FP32/TF32", "fp16": "FP16"}
    best = [row for row in data["rows"] if row["engine"] == "fixed shape"]
    lines = [
        (titles[row["network"]], types[row["precision"]], row["batch"], ratio(row["speedup"], 2), error(row["relative_error"]))
        for row in best
    ]
    about = f"""Engines that were built alone on the GPU, for one fixed shape, with cuBLAS and cuDNN in place, and `torch.compile`: each
        replayed as a CUDA graph on an input that stays on the device, 20 calls in a row (5 at batch 64). {tensorrt(data)} against
        torch {torch(data)} on one {device(data)}, {source("separation_h200", data)}; speedup [95 % interval] over `torch.compile` in the
        same type). Random weights; relative error of the outputs to eager FP32, whose convolutions use TF32."""
    return page(
        about, table(("network", "engine", "batch", "over torch.compile", "relative error"), lines), *_one_at_a_time(data)
    )


def _one_at_a_time(data: Data) -> tuple[str, str]:
    """What each difference from a fixed shape costs."""
    rows = {(row["network"], row["precision"], row["batch"], row["engine"]): row for row in data["rows"]}
    fixed = rows["resnet50", "fp16", 8, "fixed shape"]["ms"]
    words = {
        "without libraries": "neither cuBLAS nor cuDNN, their tactic sources off",
        "three profiles": "one engine with an optimization profile for each of the batch sizes 1, 8 and 64",
        "FP32 tensors": "weights, input and output in FP32, FP16 permitted",
        "FP16 demanded": "the same, FP16 demanded of products and convolutions",
    }
    costs = [(text, f"{rows['resnet50', 'fp16', 8, name]['ms'] / fixed - 1:+.1%}") for name, text in words.items()]
    return "ResNet-50 in FP16 at batch 8, one difference at a time:", table(("difference", "time"), costs)
