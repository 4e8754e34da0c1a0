"""Recorded profiles of all tools: `course profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from course_lib.cli.commands.options import AsJson, show


def profile(
    file: Annotated[
        Path,
        typer.Argument(
            help="a file of trtexec --exportProfile or --exportTimes, a log of trtexec --dumpProfile, an export of Nsight Systems "
            "(.sqlite), a table of Nsight Compute (.csv), a trace of torch.profiler, or a profile of ONNX Runtime",
            show_default=False,
        ),
    ],
    layers: Annotated[
        Path | None, typer.Option(help="layer information of the same engine (trtexec --exportLayerInfo), for times of layers")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Times of layers, inferences, kernels or a timeline, from the file of a profiler; for timelines the usual faults, too."""
    from course_lib.cli import profile_files

    found = profile_files.read(file, layers)
    if not show(as_json, profile_files.to_json(found)):
        profile_files.show(found, str(file))
