"""Exercises of lecture 14: the key of a plan, a cache that verifies, fallbacks, and dynamic batching."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet

_FACTS = {
    "model": b"weights of the digits",
    "recipe": {"flags": ["tf32"], "profiles": [{"image": [1, 8, 32]}]},
    "backend": "tensorrt1",
    "version": "0.16",
    "device": "sm89",
    "driver": "580.1",
}
_OTHER: Mapping[str, Any] = {
    "model": b"weights of the digitz",
    "recipe": {"flags": ["fp16"], "profiles": [{"image": [1, 8, 32]}]},
    "backend": "onnxruntime",
    "version": "0.17",
    "device": "sm120",
}
_WHY = {
    "model": "A retrained model must not find the old plan. TensorRT would load it and answer.",
    "recipe": "Other flags or profiles make another plan, and TensorRT does not check them.",
    "backend": "A plan of one backend does not load in another.",
    "version": "A plan is valid for one version of the software.",
    "device": "Kernels were chosen for one GPU.",
}


def _key_covers(plan_key: Answer) -> None:
    key = plan_key(dict(_FACTS))
    if not (isinstance(key, str) and len(key) == 64 and set(key) <= set("0123456789abcdef")):
        raise NotYet(
            f"`plan_key(facts)` returned {shown(key)}, expected the 64 hexadecimal digits of a SHA-256. "
            "Python's `hash` differs in each process: use `hashlib.sha256(...).hexdigest()`."
        )
    turned = {name: _FACTS[name] for name in reversed(_FACTS)}
    recipe = dict(reversed(list(_FACTS["recipe"].items())))  # type: ignore[attr-defined]
    for what, facts in (("the facts", turned), ("the recipe's entries", {**_FACTS, "recipe": recipe})):
        if plan_key(facts) != key:
            raise NotYet(
                f"With {what} in another order, `plan_key` returned another key, expected the same. "
                "Equal dictionaries must give equal text: `json.dumps(..., sort_keys=True)`."
            )
    for name, value in _OTHER.items():
        if plan_key({**_FACTS, name: value}) == key:
            raise NotYet(f"With another `{name}`, `plan_key` returned the same key, expected another. {_WHY[name]}")
    if plan_key({**_FACTS, "backend": "tensorrt", "version": "10.16"}) == key:
        raise NotYet(
            "Backend `tensorrt1` in version `0.16` and backend `tensorrt` in version `10.16` got the same key, expected two. "
            "Text that is only joined is ambiguous: keep the names, or a separator."
        )
    if plan_key({**_FACTS, "driver": "590.2"}) != key:
        raise NotYet(
            "With another `driver`, `plan_key` returned another key, expected the same. "
            "A newer driver runs old plans, so leave it out."
        )


class _Builder:
    """Builds a plan, and counts how often."""

    plan = b"a plan of some bytes" * 50

    def __init__(self) -> None:
        self.builds = 0

    def __call__(self) -> bytes:
        self.builds += 1
        return self.plan


def _cache_verifies(get_plan: Answer) -> None:
    with tempfile.TemporaryDirectory() as name:
        _first_and_second_start(get_plan, Path(name))
        _damage(get_plan, Path(name))
        _no_folder(get_plan, Path(name))


def _started(get_plan: Answer, path: Path, builds: int, when: str, hint: str) -> None:
    builder = _Builder()
    found = get_plan(path, builder)
    if builder.builds != builds:
        raise NotYet(f"{when}, `get_plan(path, build)` built {builder.builds} times, expected {builds}. {hint}")
    if found != _Builder.plan:
        raise NotYet(
            f"{when}, `get_plan(path, build)` returned {shown(found)}, expected the bytes of the plan. Return the verified bytes."
        )


def _first_and_second_start(get_plan: Answer, folder: Path) -> None:
    path = folder / "model.plan"
    _started(get_plan, path, 1, "With an empty folder", "A file that does not exist is a miss: build.")
    names = sorted(each.name for each in folder.iterdir())
    if names != ["model.plan", "model.sha256"]:
        raise NotYet(
            f"After the first start the folder has the files {names}, expected `model.plan` and `model.sha256`. "
            "Store both, and leave no temporary file behind."
        )
    _started(get_plan, path, 0, "At the second start", "The digest in `model.sha256` is that of the file, so use the file.")


def _damage(get_plan: Answer, folder: Path) -> None:
    path = folder / "model.plan"
    damaged = bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]
    path.write_bytes(damaged)
    with path.open("rb") as reader:  # a process that still reads the old file
        _started(get_plan, path, 1, "After one bit was flipped", "Compute the digest of the bytes that you read, and compare.")
        seen = reader.read()
    if seen != damaged:
        raise NotYet(
            "The new plan was written into the old file, expected a new file. A reader would see half of it: "
            "write under another name, and rename with `os.replace`."
        )
    if path.read_bytes() != _Builder.plan:
        raise NotYet("After the repair, the file is still damaged, expected the new plan. Store what you built.")
    path.with_suffix(".sha256").unlink()
    _started(get_plan, path, 1, "Without the file `model.sha256`", "A plan without a digest cannot be verified: build.")
    _started(get_plan, path, 0, "After that build", "The digest must be stored again.")


def _no_folder(get_plan: Answer, folder: Path) -> None:
    try:
        _started(get_plan, folder / "missing" / "model.plan", 1, "In a folder that does not exist", "Build.")
    except NotYet as problem:
        if not isinstance(problem.__cause__, OSError):
            raise
        raise NotYet(
            f"In a folder that does not exist, `get_plan` raised {type(problem.__cause__).__name__}, expected the plan. "
            "A cache that cannot be written must not stop the service."
        ) from problem


_KNOWN = np.array([1.0, 2.0, 3.0])
_LIBRARY, _SHAPE = "no such library", "no profile holds this shape"  # what two of the ways raise


def _cannot_open() -> Callable[[Any], Any]:
    raise OSError(_LIBRARY)


def _cannot_answer() -> Callable[[Any], Any]:
    def infer(request: Any) -> Any:
        raise ValueError(_SHAPE)

    return infer


def _answers(value: np.ndarray) -> Callable[[], Callable[[Any], Any]]:
    return lambda: lambda request: value


def _only_the_right_way(first_right: Answer) -> None:
    faults: dict[str, tuple[Callable[[], Callable[[Any], Any]], str]] = {
        "cannot open": (_cannot_open, "A way that raises while it opens is skipped: catch the exception."),
        "cannot answer": (_cannot_answer, "It opens, but its first answer raises: put the call into the `try`, too."),
        "answers wrong": (_answers(_KNOWN + 0.1), "It answers, but the answer is wrong: compare it with `expected`."),
        "answers NaN": (
            _answers(_KNOWN * np.nan),
            "No comparison with NaN is true, so `error > limit` accepts it. Use `np.allclose`.",
        ),
        "answers with an axis too many": (
            _answers(_KNOWN[None]),
            "Its shape is (1, 3), and NumPy broadcasts it to (3,): compare the shapes, too.",
        ),
    }
    for fault, (way, hint) in faults.items():
        ways = {fault: way, "PyTorch": _answers(_KNOWN + 1e-6), "spare": _answers(_KNOWN)}
        call = f"first_right({{'{fault}': ..., 'PyTorch': ..., 'spare': ...}}, request, expected)"
        try:
            found = first_right(ways, None, _KNOWN)
        except NotYet as problem:
            cause = problem.__cause__
            if str(cause) not in (_LIBRARY, _SHAPE):
                raise
            raise NotYet(f"`{call}` raised {type(cause).__name__}, `{cause}`, expected 'PyTorch'. {hint}") from cause
        if found != "PyTorch":
            why = hint if found == fault else "Its answer is right up to rounding, and it comes before the spare way."
            raise NotYet(f"`{call}` returned {shown(found)}, expected 'PyTorch'. {why}")
    try:
        found = first_right({"cannot open": _cannot_open}, None, _KNOWN)
    except NotYet as problem:
        if isinstance(problem.__cause__, RuntimeError):
            return
        found = problem.__cause__
    raise NotYet(
        f"`first_right` without any right way ended with {shown(found)}, expected a RuntimeError. "
        "A service that cannot answer must not start."
    )


EXAMINATIONS = {"14.1": _key_covers, "14.2": _cache_verifies, "14.3": _only_the_right_way}
