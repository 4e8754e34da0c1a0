"""What docs/benchmarks.md says about recorded gradings on a GPU: how often each lab had all points, and grading by grading."""

from __future__ import annotations

from benchmarks.markdown import Data, device, page, source, table, tensorrt


def labs(data: Data) -> str:
    """How often each lab's reference had all points, and the unsolved lab none."""
    rows: dict[str, dict[str, list[Data]]] = {}
    for row in data["rows"]:
        rows.setdefault(row["lab"], {}).setdefault(row["kind"], []).append(row)
    lines = []
    for lab, kinds in sorted(rows.items()):
        reference, untouched = (
            [one for one in kinds.get(kind, []) if "failed" not in one] for kind in ("reference", "untouched")
        )
        full = sum(one["score"] == one["max_score"] and not one["fault"] for one in reference)
        none = sum(one["score"] == 0 and not one["fault"] for one in untouched)
        seconds = f"{max(one['seconds'] for one in reference):.0f} s" if reference else "not finished"
        lines.append(
            (lab, f"{full} of {len(kinds.get('reference', []))}", f"{none} of {len(kinds.get('untouched', []))}", seconds)
        )
    about = f"""Whole gradings in the sandbox with {tensorrt(data)} on one {device(data)},
        {source("labs_h200", data)}): gradings of the reference that gave all points, of the unsolved lab that gave none, and
        the longest grading of the reference:"""
    return page(about, table(("lab", "reference, all points", "untouched, none", "longest"), lines))


def labs_alone(data: Data, name: str = "labs_alone_h200") -> str:
    """Each grading of a reference, what ran beside it, and why it lost points; the unsolved labs in a sentence.

    Args:
        name: of the record.
    """
    references = [row for row in data["rows"] if row["kind"] == "reference"]
    untouched = [row for row in data["rows"] if row["kind"] == "untouched"]
    lines = [
        (
            row["lab"],
            data["beside"][str(row["session"])],
            _points(row),
            f"{row['seconds']:.0f} s" if "seconds" in row else "",
            _lost(row),
        )
        for row in sorted(references, key=lambda row: (row["lab"], row["session"]))
    ]
    none = sum(row["score"] == 0 and not row["fault"] for row in untouched)
    about = f"""Gradings in the sandbox, one at a time on one {device(data)}, {tensorrt(data)},
        {source(name, data)}). Commit {data["commit"]}."""
    if untouched:
        released = ", ".join(sorted({row["lab"] for row in untouched}))
        about += f" The unsolved notebooks of {released} were given no points ({none} of {len(untouched)})."
    return page(about, table(("lab", "beside it", "points", "time", "why points are missing"), lines))


def _points(row: Data) -> str:
    return (
        "not finished"
        if "failed" in row
        else f"fault: {row['fault']}"
        if row["fault"]
        else f"{row['score']:g} of {row['max_score']}"
    )


def _lost(row: Data) -> str:
    """The distinct reasons, each shortened to its first sentence."""
    if "failed" in row:
        return str(row["failed"])
    said = dict.fromkeys(_short(task["message"]) for task in row["tasks"].values() if task["tier"] != "full")
    return "; ".join(said)


def _short(message: str) -> str:
    """The part of a message that says why nothing was decided, or its first sentence."""
    _, found, reason = message.partition("Inconclusive: ")
    return (reason if found else message).partition(". ")[0].rstrip(".")
