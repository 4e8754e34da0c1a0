"""What is looked at in each task of lab 08: the rotations and accesses of a kernel, and the answers of a plugin."""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError, NotExamined
from course_lib.exercises.exercise import Case
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_right, at_least, at_most, holds
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.framework.runner import Failed, case_criterion, read_hostile, run_isolated
from course_lib.labs.framework.submission import read_text
from course_lib.labs.lab08_plugin import reference
from course_lib.labs.lab08_plugin.given import (
    BIG,
    GpuKernel,
    Rotation,
    Run,
    compile_program,
    numbers,
    reference_s,
    rotate,
    rotations,
    run_compiled,
    traffic,
    usable_gpu,
    watched_rotations,
)
from course_lib.labs.lab08_plugin.sandboxed import plugin as sandboxed
from course_lib.migration.tables import bindings
from course_lib.plugins.launchers import DTYPES

MOST_BYTES = 64 << 10  # of each of the two files
# Of the sectors that a warp's request touches, the share that it needs. Recorded: neighboring packs of 16 bytes 1.0; a thread for each
# pair, whose two accesses lie side by side, 0.5; a thread for each head 0.5 with packs, and 0.06 to 0.13 without.
FULL_USED, PARTIAL_USED = 0.9, 0.45
MOST_LAUNCHES = 4  # by one call: packs and the rest, rotated and copied numbers can have a kernel each
MOST_OF_THREAD = 256  # numbers of y that one thread writes, unless a head has more
FULL_WIDTH = 12.0  # bytes that a thread moves at once, on average; packs have 16, a number at a time 2 or 4
# On a GPU: speed as a share of the reference's and of a plain copy's, in FP16.
FULL_SPEED, FULL_OF_COPY, PARTIAL_SPEED = 0.7, 0.6, 0.2
_SHOWN = 2  # wrong rotations in a message
MOST_BROKEN = 2  # parts of the plugin's contract that may be broken for half of its points


class PluginWork(Work):
    """Both files of a submission."""

    @step
    def source(self) -> str:
        """The text of rotary.cu."""
        return read_text(self.folder / "rotary.cu", MOST_BYTES)

    @step
    def program(self) -> bytes:
        """rotary.cu, compiled for the processor."""
        return compile_program(self.source, "examine_on_host.cpp", self.examiner.launcher)

    @step
    def watched(self) -> list[Run]:
        """Runs whose accesses were recorded."""
        return run_compiled(self.program, watched_rotations(self.rng()), self.examiner.launcher)

    @step
    def runs(self) -> list[Run]:
        """All runs on the processor."""
        asked = rotations(self.rng())
        runs = [*self.watched, *run_compiled(self.program, asked, self.examiner.launcher)]
        self.figures |= {"rotations": float(len(asked) + len(self.watched)), "right": float(sum(run.right for run in runs))}
        return runs

    @step
    def on_gpu(self) -> GpuKernel:
        """rotary.cu, compiled for the GPU."""
        return GpuKernel.compile(self.source, self.examiner.launcher)

    @step
    def wrong_on_gpu(self) -> list[str]:
        """What is wrong on the GPU, at the large shape in each type."""
        seeds = self.rng().integers(1 << 31, size=len(DTYPES)).tolist()
        large = [Rotation(BIG.shape, BIG.rotary, dtype, seed) for dtype, seed in zip(DTYPES, seeds, strict=True)]
        try:
            return [f"{one}: {wrong} numbers wrong" for one in large if (wrong := self.on_gpu.wrong_numbers(one, step=997))]
        except EngineError as error:
            return [str(error)]

    @step
    def contract(self) -> dict[str, tuple[list[Case], list[Any]]]:
        """By part of the contract, the cases and the plugin's results."""
        asked = contract_cases(self.rng())
        source = read_text(self.folder / "rotary_plugin.py", MOST_BYTES)
        try:
            answers = iter(call_plugin(source, [case for cases in asked.values() for case in cases], self.examiner.launcher))
        except bindings.BindingsUnavailable as error:
            raise NotExamined(f"Not examined: TensorRT's Python bindings are missing. {error}") from None
        return {part: (cases, [next(answers) for _ in cases]) for part, cases in asked.items()}


# ---- the kernel


def kernel(work: PluginWork) -> Iterator[Criterion]:
    """Safe and parallel, right where it is easy, right everywhere, on the stream; and right on a GPU, if there is one."""
    runs = work.runs
    stopped = [run for run in runs if run.kind in _UNSAFE]
    yield _rotations("rotations that access only their tensors", stopped, len(runs), HALF)
    yield from _parallel(runs)
    easy = [run for run in runs if run.rotation.plain and run.rotation.dtype == "float32"]
    others = [run for run in runs if run not in easy]
    for name, several, needed_for in (("FP32 rotations of plain shapes", easy, HALF), ("other rotations", others, ALL)):
        wrong = [run for run in several if not run.right and run.kind not in _UNSAFE]
        yield _rotations(name, wrong, len(several), needed_for)
    if (missing := int(work.figures["rotations"]) - len(runs)) > 0:
        yield at_most("rotations that were not run, because an earlier one did not end", missing, 0)
    yield holds("every launch is on the given stream", all(run.on_stream for run in runs), hint=_STREAM)
    yield at_most("kernel launches by one call", max(run.launches for run in runs), MOST_LAUNCHES, hint=_LAUNCHES)
    if usable_gpu():
        yield all_right("GPU", work.wrong_on_gpu, len(DTYPES), hint="Do all products of sizes and indices fit into 32 bits?")


def memory(work: PluginWork) -> Iterator[Criterion]:
    """The accesses of a warp's threads in the recorded runs; with a GPU its clock decides instead."""
    runs = work.watched
    wrong = [run for run in runs if not run.right]
    yield _rotations("recorded rotations", wrong, len(runs), HALF)
    if wrong:
        return
    yield from _parallel(runs)
    yield at_most("kernel launches by one call", max(run.launches for run in runs), MOST_LAUNCHES, HALF, hint=_LAUNCHES)
    if usable_gpu():
        yield from _speed(work)
        return
    found = [traffic(run) for run in runs]
    written = all(one.written_once for one in found)
    yield holds("each number of y is written once", written, HALF, hint="Which other thread writes the same number of y?")
    used, width = min(one.used for one in found), min(one.width for one in found)
    yield at_least("needed share of the 32-byte sectors of x and y", used, PARTIAL_USED, HALF, hint=_SECTORS)
    once = holds("each number of x is read once", all(one.read_once for one in found), hint=_TWICE)
    yield replace(once, expected="one thread makes both results of a pair")
    yield at_least("bytes of x and y that a thread moves at once", width, FULL_WIDTH, hint=_WIDE)
    yield at_least("needed share of the 32-byte sectors of x and y", used, FULL_USED, hint=_SECTORS)


def _speed(work: PluginWork) -> Iterator[Criterion]:
    rotation = Rotation(BIG.shape, BIG.rotary, BIG.dtype, int(work.rng().integers(1 << 31)))
    wrong = work.on_gpu.wrong_numbers(rotation, step=997)
    yield at_most("wrong numbers on the GPU", wrong, 0, HALF, hint="Fix the results of task 1 first.")
    if wrong:
        return
    yours, copy = work.on_gpu.launch_s(rotation), work.on_gpu.launch_s(rotation, is_copy=True)
    yield at_least(f"share of a copy's speed, with {1e6 * yours:.0f} us", copy / yours, FULL_OF_COPY, hint=_SLOW)
    of_reference = reference_s(reference.KERNEL, rotation, work.examiner.for_ours.launcher) / yours
    yield at_least("share of the reference's speed", of_reference, PARTIAL_SPEED, HALF, hint=_SECTORS)
    yield at_least("share of the reference's speed", of_reference, FULL_SPEED, hint=_SLOW)


def _parallel(runs: Sequence[Run]) -> Iterator[Criterion]:
    """The threads must be in proportion to the numbers."""
    written = [(run.most_written, max(MOST_OF_THREAD, run.rotation.shape[3])) for run in runs if run.right]
    if written:
        most, bound = max(written, key=lambda one: one[0] / one[1])
        yield at_most("numbers of y that one thread writes", most, bound, HALF, hint=_SERIAL)


def _rotations(name: str, wrong: Sequence[Run], count: int, needed_for: str) -> Criterion:
    """Several rotations that must all be right. The smallest wrong ones are shown, after one that did not end."""
    shown = sorted(wrong, key=lambda run: (run.kind != "time", run.rotation.count))[:_SHOWN]
    found = f"{count - len(wrong)} of {count}" + (f" ({'; '.join(run.message() for run in shown)})" if shown else "")
    return Criterion(name, found, f"{count} of {count}", not wrong, needed_for, _hint(shown[:1], wrong))


def _hint(smallest: Sequence[Run], wrong: Sequence[Run]) -> str:
    """Where to look: the fault of the smallest run, or the mistake that explains the numbers of the largest one."""
    for run in smallest:
        if run.kind:
            return _GUARD if run.unguarded else _FAULTS[run.kind]
    ended = [run for run in wrong if not run.kind]
    if not ended:
        return ""
    largest = max(ended, key=lambda run: run.rotation.count)
    if np.isinf(largest.excess).any():
        return _MISSING
    for words, made in MISTAKES.items():
        if _explains(made, largest):
            return words
    by_little = np.median(largest.excess[largest.excess > 1]) < 100
    return _ROUNDING if by_little and all(run.rotation.dtype != "float32" for run in ended) else _BY_HAND


Mistake = Callable[[Rotation, np.ndarray, np.ndarray], np.ndarray]  # of a rotation, its x and the position of each head


def _explains(made: Mistake, run: Run) -> bool:
    """Whether a mistake gives the numbers that the kernel wrote."""
    rotation = run.rotation
    heads = np.arange(rotation.heads)
    y = numbers(run.y, rotation.dtype).reshape(rotation.heads, -1)
    mistaken = made(rotation, rotation.x(heads), rotation.positions(heads).astype(np.int64))
    return bool(np.isclose(y, mistaken, rtol=2.0**-7, atol=1e-4, equal_nan=True).mean() > 0.99)


def _rotated(rotation: Rotation, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    cos, sin = (table[positions] for table in rotation.tables())
    return rotate(x, cos, sin)


def _halves(rotation: Rotation, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    place = np.arange(rotation.rotary).reshape(2, -1).T.ravel()  # number 2i of the pairs is number i of the head
    order = np.concatenate([place, np.arange(rotation.rotary, rotation.shape[3])])
    return _rotated(rotation, x[:, order], positions)[:, np.argsort(order)]


def _new_a(rotation: Rotation, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    y = _rotated(rotation, x, positions)
    sin = rotation.tables()[1][positions]
    a, b = slice(0, rotation.rotary, 2), slice(1, rotation.rotary, 2)
    y[:, b] += (y[:, a] - x[:, a]) * sin
    return y


def _token_numbers(rotation: Rotation, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return _rotated(rotation, x, np.arange(len(x)) % rotation.shape[2])


MISTAKES: Mapping[str, Mistake] = {
    "The numbers are those of other pairs. Which two numbers of a head belong together?": _halves,
    "The second number of each pair is rotated with the first one's new value.": _new_a,
    "Each token got the row of its place in the sequence. Where does its position come from?": _token_numbers,
}
_STREAM = "A launch without the stream goes to the default stream, before or after TensorRT's work."
_LAUNCHES = "Each launch costs microseconds. Can one grid cover all batches, heads and tokens?"
_GUARD = "The last block has more threads than there is work left. What must such a thread do before it touches memory?"
_SERIAL = "Which thread moves which numbers? The grid follows from batch, heads, sequence and head size."
_SECTORS = "Look at the threads of one warp: do neighbors touch neighboring addresses?"
_TWICE = "Each result of a pair needs both of its numbers. Which threads load them?"
_WIDE = "Let each thread load and store 16 bytes at a time where addresses and head size allow it."
_SLOW = "An array whose index is known only at run time is in memory, not in registers. Do all loops over packs unroll?"
_MISSING = "Some numbers of y are never written, or not finite. What becomes of the rest of a head, and of the last block?"
_ROUNDING = "Only small types are wrong, and by little: where is a number rounded before the end?"
_BY_HAND = "Rotate one head by hand with numbers from the tables, and compare every number."
_FAULTS = {
    "outside": "Where does the row of this thread begin, and how many numbers does it have? Try the smallest shape by hand.",
    "misaligned": "An access of 16 bytes needs an address that is a multiple of 16. Which pointers and sizes decide that?",
    "input": "x, cos, sin and positions are inputs: write into y.",
    "host": "rotary_launch runs on the host. It passes the pointers on to the kernel and looks only at their values.",
    "host memory": "A kernel gets its numbers as arguments, by value.",
    "rejected": "Put the dimension that can be large into the grid's x, which goes up to 2^31 - 1.",
    "time": "Does each loop in this case come to its end? And is the number of threads near the number of pairs?",
    "crash": "A division by zero or a wild pointer: try the smallest shape by hand.",
}
_UNSAFE = ("outside", "input", "host", "host memory")  # on a GPU these overwrite other tensors, or end the process


# ---- the plugin

TENSORRT = "10.16"
NAMES = ["LabRotary", "1", "lab08"]  # name, version, namespace
TIME_LIMIT_S = 30.0
_TYPES = dict(zip(("FLOAT", "HALF", "BF16"), DTYPES, strict=True))  # by their names in TensorRT
_INPUTS = ("FLOAT", "FLOAT", "INT32")  # cos, sin and positions
_OTHER_TYPES, _OTHER_FORMATS = ("INT8", "BOOL", "INT64", "FP8"), ("CHW4", "HWC8", "CHW32")
_PARTS = {  # of the contract, with where to look
    "fields": "Which array does a field point to when TensorRT reads it, and which plugin does the array belong to?",
    "copies": "TensorRT works on clones. What does a clone need to know, if plugins with several values exist?",
    "output": "Type and dimensions of x are known only when TensorRT asks, and dimensions may stay unknown while it builds.",
    "formats": "List the five tensors in order. What may the type of each one be, and in which layout does the kernel read it?",
    "enqueue": "Which of its values does TensorRT pass to each call, and which are the plugin's own?",
    "given methods": "Names, base classes and given methods can stay as they were. A build calls all of them.",
}


def plugin(work: PluginWork) -> Iterator[Criterion]:
    """Each part of the contract with TensorRT."""
    parts = [case_criterion(part, *work.contract[part], hint=hint) for part, hint in _PARTS.items()]
    hint = next((part.hint for part in parts if not part.met), "")
    yield at_least(
        "parts of the contract that are kept",
        sum(part.met is True for part in parts),
        len(parts) - MOST_BROKEN,
        HALF,
        hint=hint,
    )
    yield from parts


def call_plugin(source: str, cases: Sequence[Case], launcher: Launcher | None) -> list[Any]:
    """The result of each case, or `Failed`.

    Raises:
        BindingsUnavailable: the bindings cannot be fetched on this machine.
        EngineError: the plugin cannot be loaded, took too long, or its process sent an invalid answer.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        calls = json.dumps([case.arguments for case in cases]).encode()
        shared = Path(learner_code.__file__).read_bytes()
        files = {**_bindings(), "learner_code.py": shared, sandboxed.FILE: source.encode(), "calls.json": calls}
        for name, data in files.items():
            archive.writestr(name, data)
    command = [sys.executable, "-I", str(Path(sandboxed.__file__).resolve())]
    answer = run_isolated(command, packed.getvalue(), launcher=launcher, time_limit_s=TIME_LIMIT_S, max_bytes=1 << 20)

    def read(values: Any) -> list[Any]:
        if isinstance(values, dict):
            raise EngineError(f"{sandboxed.FILE}: {plain(values['error'], 240)}")
        if len(values) != len(cases):
            raise ValueError("not one answer for each call")
        return [
            one["answer"] if "answer" in one else Failed(plain(one["error"], 240), one.get("empty") is True) for one in values
        ]

    return read_hostile(answer, read, f"{sandboxed.FILE}: its process sent an invalid answer")


@cache
def _bindings() -> dict[str, bytes]:
    """The wheel, fetched once and kept, and libraries that satisfy the loader."""
    release = bindings.RELEASES[TENSORRT]
    wheel = bindings.download(release)
    with tempfile.TemporaryDirectory() as folder:
        bindings.make_libraries(release.libraries, Path(folder))
        libraries = {name: Path(folder, name).read_bytes() for name in release.libraries}
    return {"bindings.whl": wheel.read_bytes(), **libraries}


def contract_cases(rng: np.random.Generator) -> dict[str, list[Case]]:
    """By part of the contract, calls of `PluginHost` with fresh numbers and what a right plugin answers."""
    first, second = (2 * rng.choice(np.arange(1, 200), 2, replace=False)).tolist()
    both = [first, second]
    fields = [[["rotary", "INT32", [value]]] for value in both]
    same_array = {"both plugins have the second one's value": [fields[1]] * 2}
    of_copies = {
        "the same object came back": [[False, False], fields],
        "both copies have the second plugin's value": [[True, True], [fields[1]] * 2],
        "copies lost the value": [[True, True], [[["rotary", "INT32", [0]]]] * 2],
    }
    x, cos, sin, positions = (part.tolist() for part in np.split(rng.permutation(1 << 16)[:10], (4, 6, 8)))
    return {
        "fields": [
            _case("announced", "fields that the creator announces", [["rotary", "INT32"]]),
            *(
                _case("fields", f"fields of two plugins in the {phase} phase", fields, same_array, rotary=both, phase=phase)
                for phase in ("BUILD", "RUNTIME")
            ),
            _case("fields", "fields of a plugin made without a field", [[["rotary", "INT32", [0]]]], rotary=[None], phase="BUILD"),
        ],
        "copies": [
            _case("copies", call, [[True, True], fields], of_copies, rotary=both, call=call)
            for call in ("clone", "attach_to_context")
        ],
        "output": [
            *(_case("output_types", f"type for x of {name}", [name], types=[name, *_INPUTS]) for name in _TYPES),
            _case("output_shapes", "shape of unknown dimensions", [x], names=[x, cos, sin, positions]),
        ],
        "formats": [_format(rng, legal) for legal in rng.permutation([True] * 40 + [False] * 160).tolist()],
        "enqueue": [_enqueue(rng, [value, other], name) for name in _TYPES for value, other in ((first, None), (second, first))],
        "given methods": [
            _case("given", f"a build for x of {name}", [NAMES, NAMES, 1, True], rotary=[first], types=[name, *_INPUTS])
            for name in _TYPES
        ],
    }  # fmt: skip


def _case(method: str, shown: str, expected: Any, mistakes: Mapping[str, Any] | None = None, **arguments: Any) -> Case:
    return Case((method, arguments), expected, mistakes or {}, shown)


def _format(rng: np.random.Generator, legal: bool) -> Case:
    """A combination that is right up to the position in question, and there either right or not."""
    x = str(rng.choice(list(_TYPES)))
    types, formats, position = [x, *_INPUTS, x], ["LINEAR"] * 5, int(rng.integers(5))
    if not legal:
        right = tuple(_TYPES) if position == 0 else (types[position],)
        if rng.random() < 0.3:
            formats[position] = str(rng.choice(_OTHER_FORMATS))
        else:
            others = [name for name in (*_TYPES, "INT32", *_OTHER_TYPES) if name not in right]
            types[position] = str(rng.choice(others))
    shown = f"supports_format_combination({position}, {' '.join(types)}, {formats[position]} there)"
    return _case("formats", shown, bool(legal), position=position, types=types, formats=formats)


def _enqueue(rng: np.random.Generator, rotary: list[int | None], dtype: str) -> Case:
    """Two plugins in one engine. Without a field, a plugin rotates whole heads."""
    shapes = [[*rng.integers(1, 9, 3).tolist(), 2 * int(rng.integers(200, 300))] for _ in rotary]
    addresses = (256 * rng.integers(1 << 20, 1 << 36, (len(rotary), 5))).tolist()
    streams = (16 * rng.integers(1, 1 << 40, len(rotary))).tolist()

    def calls(shapes: list[Any], rotary: list[Any], streams: list[Any]) -> list[Any]:
        rows = zip(addresses, shapes, rotary, streams, strict=True)
        return [[_TYPES[dtype], *five, shape, value, stream] for five, shape, value, stream in rows]

    right = [value or shape[3] for value, shape in zip(rotary, shapes, strict=True)]
    mistakes = {
        "launch got another stream": calls(shapes, right, [0, 0]),
        "launch got 0 rotated numbers where the field is missing": calls(shapes, [value or 0 for value in rotary], streams),
        "launch got whole heads, without the plugin's own number": calls(shapes, [shape[3] for shape in shapes], streams),
        "both launches rotate as many numbers as the second one": calls(shapes, [right[1]] * 2, streams),
        "both launches got the second plugin's shape": calls([shapes[1]] * 2, right, streams),
    }
    arguments = {"dtype": dtype, "shapes": shapes, "addresses": addresses, "streams": streams}
    return _case("enqueue", f"enqueue of x in {dtype}", calls(shapes, right, streams), mistakes, rotary=rotary, **arguments)
