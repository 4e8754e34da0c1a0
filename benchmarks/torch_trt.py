"""What Torch-TensorRT 2.2 does, recorded on a GPU: one section for each behavior that lecture 13 teaches, and latencies.

    SITE/run python benchmarks/torch_trt.py --output FILE.json [--folder DIR] [--sections NAME ...] [--minutes 4]
    python benchmarks/torch_trt.py --output FILE.json --folder DIR --assemble

It runs in an interpreter with Torch-TensorRT, numpy and nothing else, from the repository's root. Sections run in several processes,
one after the other unless ``--at-once`` says more; latencies are timed while no other process works. Every row is on disk at once, in
DIR; ``--assemble`` makes the record from there. A second run into the same folder adds its sections. (The script is not called
``torch_tensorrt.py``, since Python would import it in place of the package.)
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.sections.lanes import Recording, start

RECORDING = Recording(
    module="benchmarks.torch_trt_parts.child",
    # the first section of each process is the one that is worth most
    lanes=(
        ("versions", "report", "partition", "formats"),
        ("batches", "attention", "cuda_graph"),
        ("arguments", "layers"),
        ("saving", "int8"),
        ("first_calls",),
    ),
    timed=("latency:resnet50:8", "latency:resnet50:1", "latency:resnet50:64", "latency:classifier:1,8,64"),
    libraries=("torch_tensorrt", "torch", "tensorrt", "cuda", "cudnn", "numpy", "python"),
    reserved_s=60.0,
)


if __name__ == "__main__":
    start(RECORDING, __doc__, minutes=4)
