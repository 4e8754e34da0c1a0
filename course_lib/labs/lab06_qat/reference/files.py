"""The reference submission: the file that a learner writes, and the network that it trains."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from course_lib.labs.lab06_qat import graph_file, network
from course_lib.labs.lab06_qat.sandboxed.call_qat import FILE
from course_lib.labs.lab06_qat.stored import Stored


def write(folder: Path) -> None:
    """Write qat.py and model.onnx."""
    (folder / FILE).write_bytes(Path(__file__).with_name(FILE).read_bytes())
    (folder / graph_file.MODEL).write_bytes(graph_file.graph(trained()).SerializeToString())


@cache
def trained() -> dict[str, Stored]:
    """The given network, trained once in each process: 10 s on one core."""
    import torch

    from course_lib.labs.lab06_qat.reference import qat

    data, threads = network.training_images(), torch.get_num_threads()
    torch.set_num_threads(1)  # the layers are small, and sums are then in the same order everywhere
    try:
        with torch.inference_mode(False), torch.enable_grad():
            found = qat.train(network.layers(), torch.from_numpy(data.images), torch.from_numpy(data.labels), network.forward)
    finally:
        torch.set_num_threads(threads)
    arrays = {name: {part: value.numpy() for part, value in one.items()} for name, one in found.items()}
    return {name: Stored(one["codes"], one["scale"], one["bias"], float(one["input_scale"])) for name, one in arrays.items()}
