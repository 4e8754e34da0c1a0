"""A process in the interpreter that has Torch-TensorRT: `child.py FOLDER SECTION ...`.

Sections run one after the other, each in its own file of rows. Latencies prepare everything first, and then wait for a line on standard
input, until the GPU is idle. `benchmarks/torch_trt.py` starts these processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.sections.child import ready, run_sections
from benchmarks.sections.observing import Rows
from benchmarks.torch_trt_parts import answers, behavior, saving, timing

# They show messages or times as a program sees them that has no builder of its own; first in their process.
ALONE = ("versions", "report", "batches", "first_calls", "latency:resnet50:1", "latency:resnet50:8", "latency:resnet50:64")


def sections(folder: Path) -> dict[str, Callable[[Rows], None]]:
    """Every section by name."""
    return {
        "versions": versions,
        "report": behavior.report,
        "formats": behavior.formats,
        "partition": behavior.partition,
        "arguments": behavior.arguments,
        "layers": behavior.layers,
        "attention": answers.attention,
        "batches": answers.batches,
        "int8": lambda rows: answers.int8(rows, folder),
        "cuda_graph": answers.cuda_graph,
        "first_calls": timing.first_calls,
        "saving": lambda rows: saving.saving(rows, folder),
        **{
            f"latency:{network}:{batches}": partial(latency, network=network, batches=batches)
            for network, batches in (("resnet50", "8"), ("resnet50", "1"), ("resnet50", "64"), ("classifier", "1,8,64"))
        },
    }


def versions(rows: Rows) -> None:
    """What is installed, and what this version does not have."""
    import platform

    import numpy
    import tensorrt
    import torch_tensorrt
    from torch_tensorrt.dynamo.conversion._ConverterRegistry import DYNAMO_CONVERTERS

    rows.add(
        "installed",
        python=platform.python_version(),
        torch=torch.__version__,
        torch_tensorrt=torch_tensorrt.__version__,
        tensorrt=tensorrt.__version__,
        numpy=numpy.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        converters=sorted(str(target) for target in DYNAMO_CONVERTERS.unique_targets()),
        has={
            name: hasattr(torch_tensorrt, name) for name in ("save", "load", "runtime", "ptq", "convert_method_to_trt_engine")
        },
    )


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    with torch.no_grad():
        run_sections(sections(folder), folder, names, before=_one_builder, alone=ALONE)


def latency(rows: Rows, network: str, batches: str) -> None:
    """Prepare all batch sizes, wait, measure each."""
    prepared = [timing.prepare(network, int(batch)) for batch in batches.split(",")]
    ready(f"{network} {batches}")
    for one in prepared:
        one.measure(rows, seconds=8)


def _one_builder() -> Any:
    """While one builder lives, the next ones need not load TensorRT's kernel library again, which takes seconds."""
    import torch_tensorrt  # noqa: F401  before TensorRT is used

    if not torch.cuda.is_available():
        return None
    import tensorrt

    return tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.WARNING))


if __name__ == "__main__":
    main()
