"""What docs/benchmarks.md says about `decoder.py`'s record."""

from __future__ import annotations

from benchmarks.markdown import Data, page, ratio, source, table, versions


def decoder(data: Data) -> str:
    steps = [row for row in data["rows"] if "way" in row]
    recomputed, eager = steps[0]["way"], steps[-1]["way"]
    lines = [
        (
            row["way"],
            row["cache"],
            *(ratio(row["over"][name], 1) if name in row["over"] else "" for name in (recomputed, eager)),
        )
        for row in steps
        if row["way"] != recomputed
    ]
    forms = {"tensor_scatter": "TensorScatter", "scatter_nd": "ScatterND"}
    kernels = [(forms[row["form"]], *row["kernels"].values()) for row in data["rows"] if "form" in row]
    about = f"""One more byte from the course's GPT (1.3 million weights) after {data["position"]} bytes, FP32, batch 1, one thread of
        {data["device"]}, all ways in turn in one run, {versions(data)}, {source("decoder_cpu", data)}; speedup [95 % interval]).
        Recomputing
        runs ONNX Runtime on all bytes; the other ways read keys and values from a cache, whose length is given."""
    between = "Kernels of its plans in FP16 for sm89, as TensorRT for RTX builds them; they ran nowhere:"
    head = ("way", "cache length", "over recomputing", "over PyTorch eager with the same cache")
    return page(
        about, table(head, lines), between, table(("cache", "for prompts", "for single bytes", "both profiles"), kernels)
    )
