"""Draw docs/hero.png, the first picture of README and of the book: the first layers of a residual network before and after TensorRT.

    python docs/make_hero.py

Left is the ONNX graph with one kernel per node, right are the kernels of a real build by TensorRT for RTX, which needs no GPU.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from course_lib.engines import build
from course_lib.models import Signature, classifier, export_onnx
from course_lib.profiling.layer_tables.memory_traffic import kernel_traffic, node_traffic
from course_lib.recipe import Recipe
from course_lib.teaching.fusion import draw_round_trips

BATCH = 32


def main() -> None:
    """Build the first layers of the course's classifier and save the figure."""
    network = classifier("wide")
    layers = nn.Sequential(network.stem, network.norm, nn.ReLU(), network.block1)
    model = export_onnx(layers, signature=Signature(inputs={"x": (BATCH, 1, 32, 32)}, outputs=("y",)), keep_batchnorm=True)
    before = node_traffic(model)
    after = kernel_traffic(build(model, Recipe(targets=["sm89"], precision="fp32"), backend="tensorrt_rtx").layers)
    figure = draw_round_trips(before, after)
    factor = before.total_bytes / after.total_bytes
    axes = figure.axes[0]
    axes.set_title(
        f"{len(before.round_trips)} kernels become {len(after.round_trips)}, which move {factor:.1f} times less data",
        fontsize=11,
    )
    for text in axes.texts:
        name, _, rest = text.get_text().partition(":")
        if name in ("before", "after"):
            text.set_text(
                f"{'one kernel per operator' if name == 'before' else 'built by TensorRT'}: {rest.split(' in ')[0].strip()}"
            )
    figure.savefig(Path(__file__).with_name("hero.png"), dpi=160)
    print(f"{before}; {after}")


if __name__ == "__main__":
    main()
