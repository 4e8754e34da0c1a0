"""The files of lab 12's reference and of the server from which learners start, in the form of a submission."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
CONFIG = """\
name: "scorer"
platform: "tensorrt_plan"
max_batch_size: 16
input [ { name: "features" data_type: TYPE_FP32 dims: [ 256 ] } ]
output [ { name: "scores" data_type: TYPE_FP32 dims: [ 8 ] } ]
instance_group [ { kind: KIND_GPU count: 2 } ]
dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 1000 }
version_policy { latest { num_versions: 2 } }
"""


def sources(server: str = "server") -> dict[str, str]:
    """``store.py`` and ``server.py``, which do not import the course."""
    text = (HERE / f"{server}.py").read_text(encoding="utf-8")
    own = text.replace("from course_lib.labs.lab12_serving.reference.store import", "from store import")
    return {"store.py": (HERE / "store.py").read_text(encoding="utf-8"), "server.py": own}


def write(folder: Path) -> None:
    """The reference's submission."""
    for name, text in (sources() | {"config.pbtxt": CONFIG}).items():
        (folder / name).write_text(text, encoding="utf-8")
