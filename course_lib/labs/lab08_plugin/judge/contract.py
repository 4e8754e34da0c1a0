"""The calls that TensorRT makes to a plugin, applied to a learner's rope_plugin.py over the real bindings, with the correct answers.

The bindings are NVIDIA's Python wheel of TensorRT 10.16; the libraries behind them are empty, so nothing here needs a GPU, and
no engine is built. The plugin runs in its own process and never sees the correct answers.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.isolation import read_hostile, run_isolated
from course_lib.labs.lab08_plugin.sandboxed import examine_plugin
from course_lib.migration.tables import bindings
from course_lib.plugins.launchers import DTYPES

TENSORRT = "10.16"
NAMES = ["LabRope", "1", "lab08"]  # name, version, namespace
TIME_LIMIT_S = 30.0
_TYPES = dict(zip(("FLOAT", "HALF", "BF16"), DTYPES, strict=True))  # by their names in TensorRT
_OTHER_TYPES = ("INT8", "INT32", "BOOL", "INT64", "FP8")
_OTHER_FORMATS = ("CHW4", "HWC8", "CHW32")
_STEPS = 8  # of a question, whose sequence is drawn; no question has more
_BOTH = (False, True)  # values of `interleaved`


_NOT_THE_PLUGINS = "the right answers did not come from the methods of your plugin"
_CALLED = "TensorRT calls the methods of the object that create_plugin returns. Which code of your file answers in their place?"


@dataclass(frozen=True)
class Check:
    """One part of the contract.

    Attributes:
        title: its subject.
        wrong: the first wrong answer, in words; empty if all are correct.
        hint: where to look.
    """

    title: str
    wrong: str
    hint: str


@dataclass(frozen=True)
class _Question:
    """A question, its right answer, and the wording of the question in a message.

    The questions of a part come in pairs. Two plugins with different values of `interleaved` answer the two questions of a pair at the
    same time, in steps.

    Attributes:
        swapped: for each step, whether the second question of the pair takes it before the first one.
    """

    arguments: dict[str, Any]
    expected: Any
    told: str
    swapped: tuple[bool, ...] = ()

    def wrong(self, found: Any) -> str:
        """Why `found` is not right; empty if it is."""
        if not isinstance(found, dict):
            return f"{self.told}: no answer"
        if "error" in found:
            return f"{self.told}: {_line(found['error'])}"
        answer = found.get("answer")
        right = answer == self.expected and type(answer) is type(self.expected)
        return "" if right else f"{self.told}: expected {json.dumps(self.expected)}, found {_line(json.dumps(answer))}"


def check_contract(source: str, rng: np.random.Generator, launcher: Launcher | None) -> list[Check]:
    """Ask all questions, with fresh numbers. What was right is asked again, when secret changes pass through the plugin's methods.

    The plugin's file runs in the process that asks. Answers without the changes show that something else than the plugin gave them.

    Raises:
        BindingsUnavailable: the bindings cannot be fetched on this machine.
        EngineError: the plugin cannot be loaded, took too long, or its process sent an invalid answer.
    """
    asked = _questions(rng)
    checks = _answered(source, asked, None, rng, launcher)
    if all(check.wrong for check in checks):
        return checks
    secret = _secret(asked, rng)
    again = _answered(source, _changed(asked, secret), secret, rng, launcher)
    return [
        replace(one, wrong=_NOT_THE_PLUGINS, hint=_CALLED) if other.wrong and not one.wrong else one
        for one, other in zip(checks, again, strict=True)
    ]


def _answered(
    source: str,
    asked: dict[str, list[_Question]],
    secret: dict[str, Any] | None,
    rng: np.random.Generator,
    launcher: Launcher | None,
) -> list[Check]:
    nonce = int(rng.integers(1 << 62))
    command = [sys.executable, "-I", str(Path(examine_plugin.__file__).resolve())]
    message = _archive(
        source,
        {"nonce": nonce, "decoy": secret, "questions": {name: _sent(several) for name, several in asked.items()}},
    )
    answer = run_isolated(command, message, launcher=launcher, time_limit_s=TIME_LIMIT_S, max_bytes=1 << 20)

    def read(found: Any) -> list[Check]:
        if "error" in found:
            raise EngineError(_line(found["error"]))
        if found["nonce"] != nonce:
            raise ValueError("an answer to another question")
        return [_check(title, hint, names, asked, found) for title, hint, names in _CHECKS]

    return read_hostile(answer, read, "rope_plugin.py's process sent an invalid answer")


def _sent(several: Sequence[_Question]) -> list[dict[str, Any]]:
    pairs = zip(several[::2], several[1::2], strict=True)
    return [{"both": [one.arguments, other.arguments], "swapped": one.swapped} for one, other in pairs]


def _check(title: str, hint: str, names: Sequence[str], asked: dict[str, list[_Question]], found: dict[str, Any]) -> Check:
    for name in names:
        for question, answer in zip(asked[name], found[name], strict=True):
            if wrong := question.wrong(answer):
                empty = isinstance(answer, dict) and answer.get("empty")
                return Check(
                    title, wrong, "This method is still empty: write its body in task 3 and run the cell." if empty else hint
                )
    return Check(title, "", "")


_CHECKS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "names and interfaces",
        "An engine finds its plugin by name, version and namespace; call the __init__ of each of the four bases. A build calls all "
        "methods; those that were given can stay as they were.",
        ("names_and_outputs", "interface", "build"),
    ),
    (
        "fields",
        "A PluginFieldCollection does not keep arrays alive. What keeps yours alive after get_fields_to_serialize has returned? "
        "Each plugin has its own value and its own array.",
        ("creator_fields", "fields", "default_fields"),
    ),
    (
        "copies",
        "TensorRT works on clones. Which value of `interleaved` does your clone have, if plugins with both values exist?",
        ("copies",),
    ),
    ("output types", "The output must have the type of x, for every type of x.", ("output_types",)),
    (
        "output shapes",
        "Dimensions may be unknown while the engine is built: pass on the expressions of x instead of your own numbers.",
        ("output_shapes",),
    ),
    (
        "formats",
        "Position 0 decides the type, 1 and 2 are the tables, 3 follows position 0, and the kernel reads only LINEAR.",
        ("format",),
    ),
    (
        "enqueue",
        "Type and shape come from input_desc at each call, addresses from inputs and outputs, and the stream is TensorRT's. "
        "`interleaved` is this plugin's own.",
        ("enqueue",),
    ),
)


def _questions(rng: np.random.Generator) -> dict[str, list[_Question]]:
    """The questions of each part, in pairs with different values of `interleaved`."""
    asked = {
        "names_and_outputs": [
            _Question({"interleaved": flag}, [NAMES, NAMES, 1], "names of plugin and creator, number of outputs")
            for flag in _BOTH
        ],
        "interface": [
            _Question({"interleaved": flag, "capability": name}, True, f"get_capability_interface({name})")
            for name in ("CORE", "BUILD", "RUNTIME")
            for flag in _BOTH
        ],
        "build": [
            _Question({"interleaved": flag, "types": [name, "FLOAT", "FLOAT"]}, [True, True],
                      f"a build for x of {name} (legal tactics, at most {examine_plugin.MOST_WORKSPACE} bytes of workspace)")
            for flag, name in _each_type(rng)
        ],
        "creator_fields": 2 * [_Question({}, [["interleaved", "INT32"]], "field_names of the creator")],
        "fields": [
            _Question({"interleaved": flag, "phase": phase}, _field(flag),
                      f"get_fields_to_serialize with interleaved {int(flag)}, while another plugin has {int(not flag)}")
            for phase in 2 * ("BUILD", "RUNTIME")
            for flag in _BOTH
        ],
        "default_fields": 2 * [
            _Question({"interleaved": None, "phase": "BUILD"}, _field(False),
                      "create_plugin without fields, then get_fields_to_serialize, while another plugin has interleaved 1"),
            _Question({"interleaved": True, "phase": "BUILD"}, _field(True),
                      "get_fields_to_serialize with interleaved 1, while another plugin was created without fields"),
        ],
        "copies": 2 * [
            _Question({"interleaved": flag}, [[True, NAMES[0], 1, _field(flag)]] * 2,
                      f"clone and attach_to_context with interleaved {int(flag)}, while another plugin has {int(not flag)} "
                      "(own object, name, outputs, fields)")
            for flag in _BOTH
        ],
        "output_types": [
            _Question({"interleaved": flag, "types": [name, "FLOAT", "FLOAT"]}, [name], f"get_output_data_types for x of {name}")
            for flag, name in _each_type(rng)
        ],
        "output_shapes": [_shapes(rng, flag) for flag in _BOTH],
        "format": [
            _format(rng, legal, _BOTH[place % 2])
            for place, legal in enumerate(rng.permutation([True] * 40 + [False] * 160).tolist())
        ],
        "enqueue": [_enqueue(rng, flag, name) for flag, name in _each_type(rng)],
    }  # fmt: skip
    return {name: _in_pairs(several, rng) for name, several in asked.items()}


def _each_type(rng: np.random.Generator) -> list[tuple[bool, str]]:
    """All combinations of a value of `interleaved` and a type of x. The two of a pair differ in both."""
    names = rng.permutation(list(_TYPES)).tolist()
    return [(flag, names[place - flag]) for place in range(len(names)) for flag in _BOTH]


def _in_pairs(several: Sequence[_Question], rng: np.random.Generator) -> list[_Question]:
    """The questions with a drawn sequence for each step. Of several pairs, some take a step in one sequence and some in the other."""
    swapped = np.array([(rng.permutation(len(several) // 2) + rng.integers(2)) % 2 == 0 for _ in range(_STEPS)]).T
    return [replace(one, swapped=tuple(swapped[place // 2].tolist())) for place, one in enumerate(several)]


def _at_step(several: Sequence[Any], asked: Sequence[_Question], step: int) -> list[Any]:
    """For each question its value, from the values in the sequence in which the questions take a step."""
    return [several[place ^ int(one.swapped[step])] for place, one in enumerate(asked)]


def _secret(asked: dict[str, list[_Question]], rng: np.random.Generator) -> dict[str, Any]:
    """See `examine_plugin.Decoy`. Each question but those about the creator's fields makes one plugin, and about half are changed.

    Flags are in the sequence of the calls.
    """
    names, step = list(_TYPES), int(rng.integers(1, 3))

    def half(questions: list[_Question]) -> list[bool]:
        """At least one of each part: the unchanged answers would be right for a part without."""
        return (rng.permutation(len(questions)) % 2 == 0).tolist()

    return {
        "created": [flag for name, several in asked.items() if name != "creator_fields" for flag in half(several)],
        "formats": half(asked["format"]),
        "types": {name: names[(index + step) % 3] for index, name in enumerate(names)},
        "address": 256 * int(rng.integers(1, 1 << 30)),
        "stream": 16 * int(rng.integers(1, 1 << 30)),
    }


def _changed(asked: dict[str, list[_Question]], secret: dict[str, Any]) -> dict[str, list[_Question]]:
    """The same questions, and the answers of a right plugin when the changes of `secret` pass through it."""
    created = iter(secret["created"])

    def flipped(flag: int | None, other: bool) -> list[list[str | list[int]]]:
        return _field(bool(flag) != other)

    def expected(name: str, question: _Question, other: bool, turned: bool) -> Any:
        right, given = question.expected, question.arguments
        match name:
            case "fields" | "default_fields":
                return flipped(given["interleaved"], other)
            case "copies":
                return [[*one[:3], flipped(given["interleaved"], other)] for one in right]
            case "output_types":
                return [secret["types"][right[0]]]
            case "output_shapes":
                return [2 * right[0], right[1]]
            case "format":
                return right != turned
            case "enqueue":
                moved = secret["address"], secret["stream"]
                return [
                    [d, *(n + moved[0] for n in four), shape, flag != other, stream + moved[1]]
                    for d, *four, shape, flag, stream in right
                ]
        return right

    def changed(name: str, several: list[_Question]) -> list[_Question]:
        none = [False] * len(several)
        others = none if name == "creator_fields" else _at_step([next(created) for _ in several], several, 0)
        turned = _at_step(secret["formats"], several, 1) if name == "format" else none
        return [
            replace(one, expected=expected(name, one, other, turn))
            for one, other, turn in zip(several, others, turned, strict=True)
        ]

    return {name: changed(name, several) for name, several in asked.items()}


def _field(interleaved: bool) -> list[list[str | list[int]]]:
    return [["interleaved", "INT32", [int(interleaved)]]]


def _format(rng: np.random.Generator, legal: bool, interleaved: bool) -> _Question:
    """A combination that is right up to the position in question, and there either right or not."""
    x = str(rng.choice(list(_TYPES)))
    types, formats, position = [x, "FLOAT", "FLOAT", x], ["LINEAR"] * 4, int(rng.integers(4))
    if not legal:
        right = tuple(_TYPES) if position == 0 else (types[position],)
        if rng.random() < 0.3:
            formats[position] = str(rng.choice(_OTHER_FORMATS))
        else:
            types[position] = str(rng.choice([name for name in (*_TYPES, *_OTHER_TYPES) if name not in right]))
    told = f"supports_format_combination({position}, {' '.join(types)}, {formats[position]} there)"
    return _Question({"interleaved": interleaved, "position": position, "types": types, "formats": formats}, bool(legal), told)


def _shapes(rng: np.random.Generator, interleaved: bool) -> _Question:
    """Each dimension of each input is an expression with a secret name."""
    names = np.split(rng.permutation(1 << 16)[:8], (4, 6))
    x, cos, sin = (several.tolist() for several in names)
    told = "get_output_shapes (expressions by number, constants asked for)"
    return _Question({"interleaved": interleaved, "names": [x, cos, sin]}, [[x], []], told)


def _enqueue(rng: np.random.Generator, interleaved: bool, dtype: str) -> _Question:
    shapes = [[int(n) for n in (*rng.integers(1, 9, 3), 2 * rng.integers(1, 129))] for _ in range(3)]
    addresses = [(256 * rng.integers(1 << 20, 1 << 36, 4)).tolist() for _ in shapes]
    streams = (16 * rng.integers(1, 1 << 40, len(shapes))).tolist()
    expected = [
        [_TYPES[dtype], *four, shape, interleaved, stream]
        for shape, four, stream in zip(shapes, addresses, streams, strict=True)
    ]
    arguments = {"interleaved": interleaved, "dtype": dtype, "shapes": shapes, "addresses": addresses, "streams": streams}
    return _Question(arguments, expected, f"enqueue of x in {dtype} with interleaved {int(interleaved)}, what reached launch")


def _archive(source: str, questions: dict[str, Any]) -> bytes:
    members = {**_bindings(), "rope_plugin.py": source.encode(), "questions.json": json.dumps(questions).encode()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


@cache
def _bindings() -> dict[str, bytes]:
    """The wheel, fetched once and kept, and libraries that satisfy the loader."""
    release = bindings.RELEASES[TENSORRT]
    wheel = bindings.download(release)
    with tempfile.TemporaryDirectory() as folder:
        bindings.make_libraries(release.libraries, Path(folder))
        libraries = {name: Path(folder, name).read_bytes() for name in release.libraries}
    return {"bindings.whl": wheel.read_bytes(), **libraries}


def _line(text: object) -> str:
    return " ".join(str(text).split())[:240]
