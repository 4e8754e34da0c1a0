"""What the lectures' cells for a GPU printed where there is one, as ``benchmarks/gpu_cells.py`` recorded it."""

from __future__ import annotations

from course_lib.benchmark.records import Record
from course_lib.errors import CourseError


def recorded_output(record: Record, cell: str) -> None:
    """Print what a cell printed on the GPU of the record, below a line with the machine.

    Args:
        record: such as ``recorded("gpu_cells_h100")``.
        cell: the cell's id.

    Raises:
        CourseError: the record does not have the cell.
    """
    rows = {row.get("cell"): row for row in record.rows}
    if cell not in rows:
        raise CourseError(f"{record.name} has no cell {cell!r}: record it with benchmarks/gpu_cells.py on a machine with a GPU")
    row = rows[cell]
    print(f"{record.device}, TensorRT {record.versions['tensorrt']}, torch {record.versions['torch']}, {record.date}:")
    print(row["failed"] if "failed" in row else row["printed"].rstrip("\n"))
