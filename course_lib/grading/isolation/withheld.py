"""What learners never get of the library: the labs' references. The sandbox and the learner's bundle both read this list."""

from __future__ import annotations

from pathlib import Path

from course_lib.labs import withheld

PLACEHOLDER = Path(withheld.__file__)  # its text takes the place of each reference, so that other modules can import it
_REFERENCES = "lab*/reference*"


def references(package: Path) -> list[Path]:
    """The files of all references, in order.

    Args:
        package: the folder ``course_lib``.
    """
    found = (package / "labs").glob(_REFERENCES)
    files = (file for path in found for file in (path.rglob("*") if path.is_dir() else [path]))
    return sorted(file for file in files if file.is_file() and file.suffix != ".pyc")
