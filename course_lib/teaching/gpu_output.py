"""What the lectures' cells for a GPU printed where there is one, as ``benchmarks/gpu_cells.py`` recorded it."""

from __future__ import annotations

from course_lib.benchmark.records import Record, recorded
from course_lib.errors import CourseError


def recorded_output(cell: str, record: Record | None = None) -> None:
    """Print what a cell printed on a GPU, below a line with the machine.

    Args:
        cell: the cell's id.
        record: by default ``recorded("gpu_cells_h200")``.

    Raises:
        CourseError: the record does not have the cell.
    """
    record = record or recorded("gpu_cells_h200")
    rows = {row.get("cell"): row for row in record.rows}
    if cell not in rows:
        raise CourseError(f"{record.name} has no cell {cell!r}: record it with benchmarks/gpu_cells.py on a machine with a GPU")
    row, versions = rows[cell], record.versions
    machine = f"{record.device}, TensorRT {versions['tensorrt']}, torch {versions['torch']}"
    beside = ", while other lectures ran" if row["jobs"] > 1 else ""
    print(f"Recorded on {machine}, {record.date}{beside}:")
    print(row["failed"] if "failed" in row else row["printed"].rstrip("\n"))
