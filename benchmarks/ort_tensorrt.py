"""What ONNX Runtime's TensorRT provider does, recorded on a GPU: options, caches, batch sizes, fall-back, and times against CUDA.

    SITE/run python benchmarks/ort_tensorrt.py --output FILE.json [--folder DIR] [--sections NAME ...] [--minutes 1.2]
    python benchmarks/ort_tensorrt.py --output FILE.json --folder DIR --assemble

It runs in an interpreter with onnxruntime-gpu, onnx, torch (which exports the classifier) and numpy, from the repository's root. As in
`torch_trt.py`, sections run one after the other unless ``--at-once`` says more, and what is compared is timed while no other works.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.sections.lanes import Recording, start

RECORDING = Recording(
    module="benchmarks.ort_tensorrt_parts.child",
    lanes=(
        ("versions", "fallback", "course", "options"),
        ("batches",),
        ("profiles",),
        ("caches",),
    ),
    timed=("latency",),
    libraries=("onnxruntime", "tensorrt", "onnx", "numpy", "python"),
    reserved_s=25.0,
)


def models(folder: Path) -> None:
    """The ONNX files, made in a process of its own, so that no section loads torch's libraries."""
    subprocess.run([sys.executable, "-m", "benchmarks.ort_tensorrt_parts.models", str(folder)], check=True)


if __name__ == "__main__":
    start(RECORDING, __doc__, minutes=1.2, first=models)
