"""The end of a recording that runs sections, one after the other, each with its own file of rows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks.sections.observing import Rows, file_of, one_line


def run_sections(
    sections: Mapping[str, Callable[[Rows], None]],
    folder: Path,
    names: list[str],
    *,
    before: Callable[[], Any] = lambda: None,
    alone: Collection[str] = (),
) -> None:
    """Run them, and end the process without unloading libraries, which disagree on who leaves first.

    Args:
        sections: functions by name.
        before: called ahead of the first section that is not in `alone`; its result is kept alive.
    """
    held: Any = None
    for name in names:
        if held is None and name not in alone:
            held = before()
        try:
            sections[name](Rows(folder, name))
            outcome: dict[str, Any] = {"done": True}
        except Exception as error:  # the next section may still work
            outcome = {"done": False, "failed": one_line(error)}
        file_of(folder, name, "outcome.json").write_text(json.dumps(outcome))
        print("=====", name, json.dumps(outcome), flush=True)
    sys.stdout.flush()
    os._exit(0)


def ready(name: str) -> None:
    """Say that everything is prepared, and wait for the word to measure."""
    print("ready", name, flush=True)
    sys.stdin.readline()
