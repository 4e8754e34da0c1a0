"""One network of the course as a LiteRT file with one signature for each batch size, by Google's converter.

    PYTHON benchmarks/litert_convert.py OUTPUT.tflite MODULE:FUNCTION [ARGUMENT ...] --input image --shape 1 32 32 --batches 1 8 32

PYTHON is an interpreter that has litert-torch and the course's PyTorch. They need an environment for themselves, because pip does not
find versions for the converter and for the course together. On Linux, from nothing::

    python -m venv build/litert
    build/litert/bin/pip install litert-torch==0.10.0 torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PACKAGES = ("litert-torch", "litert-converter")  # what the result depends on besides PyTorch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("factory", help="the function that makes the module, as MODULE:FUNCTION")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--input", required=True, help="name of the network's input")
    parser.add_argument("--output-name", default="logits")
    parser.add_argument("--shape", nargs="+", type=int, required=True, help="shape of the input without the batch")
    parser.add_argument("--batches", nargs="+", type=int, required=True)
    options = parser.parse_args()

    import litert_torch
    import torch

    module, _, function = options.factory.partition(":")
    network = getattr(importlib.import_module(module), function)(*options.arguments).eval()

    class Named(torch.nn.Module):
        """LiteRT names outputs by the keys of a dict."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, **feeds: torch.Tensor) -> dict[str, torch.Tensor]:
            return {options.output_name: self.network(feeds[options.input])}

    named, converter = Named().eval(), litert_torch
    for batch in options.batches:
        example = {options.input: torch.zeros(batch, *options.shape)}
        converter = converter.signature(f"batch{batch}", named, sample_kwargs=example)
    converter.convert().export(str(options.output))


if __name__ == "__main__":
    main()
