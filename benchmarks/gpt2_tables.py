"""What docs/benchmarks.md says about `gpt2.py`'s record."""

from __future__ import annotations

from benchmarks.markdown import Data, device, error, page, ratio, source, table, tensorrt, torch

GRAPHS = ("cuda graph fp16", "compile+cuda graph fp16")  # PyTorch's variants without the host's part of a call


def gpt2(data: Data) -> str:
    """Every candidate's time in every case, and its speed over PyTorch's two CUDA graphs."""
    lines = [
        (
            row["case"],
            row["candidate"],
            f"{row['ms']:.2f} ms",
            *(ratio(row["speedup"][name], 2) if name in row["speedup"] else "" for name in GRAPHS),
            error(row["relative_errors"]["logits"]),
        )
        for row in data["rows"]
        if "failed" not in row
    ]
    step = data["rows"][0]
    shape = step["shape"]
    about = f"""A decoder of GPT-2's shape ({shape["depth"]} blocks, width {shape["width"]}, {shape["heads"]} heads, vocabulary
        {shape["vocabulary"]:,}) in FP16: {tensorrt(data)} against torch {torch(data)} on one {device(data)},
        {source("gpt2_h200", data)}). All candidates of a case take turns; the time is the median device time of one call; speedups have
        95 % intervals. Below 1, PyTorch is faster. Weights and tokens are random; the error is that of the last token's logits to eager
        FP32."""
    ways = f"""decode-8 is one new token of each of 8 sequences after {step["position"]} tokens, in a cache of {step["length"]};
        prefill-1x128 is one prompt of 128 tokens. "eager" launches PyTorch's kernels one by one, "compile" those of `torch.compile` (one
        shape at a time); "cuda graph" replays the same kernels as a graph. The cache plugin writes keys and values in place and reads only
        the occupied slots. TensorRT without it writes the whole cache to other memory; PyTorch writes in place and masks empty slots."""
    head = ("case", "candidate", "time", "over a CUDA graph", "over torch.compile in a CUDA graph", "relative error")
    return page(about, ways, table(head, lines), f"Beside the measurements: {data['beside']}")
