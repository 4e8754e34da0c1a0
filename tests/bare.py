"""An interpreter that sees few packages, as TensorRT 8.6's own does."""

import sys
from importlib.metadata import distribution
from pathlib import Path


def bare_python(folder: Path, *distributions: str) -> str:
    """A command for this interpreter with these packages and no other; `folder` gets links to them."""
    for name in distributions:
        found = distribution(name)
        for top in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return f"env PYTHONPATH={folder} {sys.executable} -S"
