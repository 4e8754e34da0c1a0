"""Copies are found under other names, comments and order; what is independent, given or usual is not."""

from __future__ import annotations

import ast
import json
import re
from itertools import permutations
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from course_lib import labs
from course_lib._util import toml_text
from course_lib.grading.integrity import copies, documents, matches
from course_lib.grading.integrity.documents import Document
from course_lib.grading.integrity.matches import Match, similar
from course_lib.grading.isolation import withheld
from course_lib.grading.reports import attention, class_page
from course_lib.grading.reports.class_report import read
from course_lib.labs.framework import submission
from tests.grading.classes import new_room, put, verdict
from tests.grading.conftest import LAB, ROOT

PACKAGE = ROOT / "course_lib"
REFERENCES = [
    path
    for path in withheld.references(PACKAGE)
    if path.suffix in copies.CODE_OF_REFERENCES and len(documents.code(path.read_text(), path.name).tokens) > 100
]
KERNEL = PACKAGE / "plugins/rope/rope.cu"
FUNCTIONS, ANOTHER = toml_text.loads((ROOT / "tests/data/answers_to_compare.toml").read_text(encoding="utf-8")).values()


class Renamed(ast.NodeTransformer):
    """Gives each name that a file defines another one, and each function another docstring."""

    def __init__(self, source: str) -> None:
        own = sorted((documents._defined(source) or set()) - {"__init__"})
        self.names = {name: f"other_{index}" for index, name in enumerate(own)}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "attr", "arg", "name", "asname"):
            if isinstance(getattr(node, field, None), str):
                setattr(node, field, self.names.get(getattr(node, field), getattr(node, field)))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[0] = ast.Expr(ast.Constant("Another text."))
        return super().generic_visit(node)


def disguised(source: str) -> str:
    """The source with other names, other comments, and its functions and classes in the opposite order."""
    body = Renamed(source).visit(ast.parse(source)).body
    moved = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return "\n\n# mine\n".join(map(ast.unparse, [*(node for node in body if node not in moved), *reversed(moved)]))


def disguised_kernel(source: str) -> str:
    """CUDA with other names, without its comments, and with its functions in the opposite order."""
    source = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S)
    own = sorted(set(documents._DECLARES.findall(source)) - documents._C_KEYWORDS)
    for index, name in enumerate(own):
        source = re.sub(rf"\b{name}\b", f"other{index}", source)
    return "\n\n".join(reversed(source.split("\n\n")))


def of(*texts: str, name: str = "answer.py") -> dict[str, list[Document]]:
    return {student: [documents.code(text, name)] for student, text in zip(("ada", "ben", "cleo", "dora"), texts, strict=False)}


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_disguised_copy_of_each_reference_is_found(path: Path) -> None:
    disguise = disguised_kernel if path.suffix == ".cu" else disguised
    (match,) = similar(of(path.read_text(), disguise(path.read_text()), name=path.name))
    assert match.share > 0.75, match.reading


def test_a_disguised_kernel_is_found() -> None:
    (match,) = similar(of(KERNEL.read_text(), disguised_kernel(KERNEL.read_text()), name="rope.cu"))
    assert match.share > 0.75, match.reading


def test_code_that_moved_to_another_file_or_that_cannot_be_parsed_is_found() -> None:
    parts = FUNCTIONS.split("\n\n\n")
    moved = [documents.code(part, f"{index}.py") for index, part in enumerate(parts)]
    assert len(similar({**of(FUNCTIONS), "ben": moved})) == 1
    unfinished = FUNCTIONS + "\nfor each in\n"
    assert len(similar(of(unfinished, unfinished.replace("widths", "sizes").replace("table", "rows")))) == 1


def submitted_texts() -> dict[str, list[Document]]:
    """Learners' files in the tests of the labs: second right answers and others that were written independently."""
    found = {}

    def add(name: str, text: object) -> None:
        if isinstance(text, str) and re.search("def |__global__", text):
            found[name] = [documents.code(text, "answer.cu" if "__global__" in text else "answer.py")]

    for path in ROOT.glob("tests/labs/submissions/lab*.toml"):
        for name, row in toml_text.loads(path.read_text()).items():
            for file, text in row.items() if isinstance(row, dict) else [("", row)]:
                add(f"{path.name}: {name} {file}", text)
    for path in [*ROOT.glob("tests/labs/test_lab*.py"), *ROOT.glob("tests/labs/submissions/lab*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                add(f"{path.name}:{node.lineno}", node.value)
    return found


def test_second_right_answers_are_not_copies_of_the_references() -> None:
    references = {"/".join(path.parts[-2:]): [documents.code(path.read_text(), path.name)] for path in REFERENCES}
    texts = submitted_texts()
    assert len(texts) > 10
    assert [match.reading for match in similar(texts, references) if match.students[1] in references] == []
    assert similar(of(FUNCTIONS, ANOTHER)) == ()


def test_what_was_given_and_what_is_usual_does_not_count() -> None:
    assert similar(of(FUNCTIONS, FUNCTIONS), given=[documents.code(FUNCTIONS, "given.py")]) == ()
    everybody = {f"s{index}": [documents.code(FUNCTIONS, "answer.py")] for index in range(9)}
    assert similar(everybody) == ()
    pair = {name: [documents.code(FUNCTIONS + ANOTHER, "answer.py")] for name in ("s0", "s1")}
    assert [match.students for match in similar({**everybody, **pair})] == [("s0", "s1")], "of what is not usual, all is common"


def test_written_answers_that_are_nearly_equal_are_found() -> None:
    text = (
        "The second engine is slower for small batches, because its tactics were timed at 32 images, where the larger tile pays off. "
        "At one image most of the tile is empty."
    )
    copied = text.replace("slower", "less fast").replace("because its", "since the").upper()
    other = "A tactic is chosen for the optimum shape of the profile. Timed at batch 32, tiles are large, and one image cannot fill them."
    answers = {name: [documents.answer(one, "answer")] for name, one in (("ada", text), ("ben", copied), ("cleo", other))}
    (match,) = similar(answers)
    assert match.students == ("ada", "ben") and match.share > 0.6
    assert similar({name: [documents.answer("See above.", "answer")] for name in ("ada", "ben")}) == ()


def network(path: Path, seed: int, names: str = "x") -> Path:
    rng = np.random.default_rng(seed)
    nodes, weights = [], []
    for layer in range(12):
        weights.append(numpy_helper.from_array(rng.standard_normal((8, 8), np.float32), f"{names}_w{layer}"))
        source = "image" if layer == 0 else f"{names}{layer - 1}"
        nodes.append(helper.make_node("MatMul", [source, f"{names}_w{layer}"], [f"{names}{layer}"], name=f"{names}n{layer}"))
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 8]) for name in ("image", f"{names}11")]
    onnx.save(helper.make_model(helper.make_graph(nodes, names, values[:1], values[1:], weights)), path)
    return path


def test_a_graph_under_other_names_is_found_and_the_usual_export_is_not(tmp_path: Path) -> None:
    own = {f"s{seed}": [documents.graph(network(tmp_path / "own.onnx", seed))] for seed in range(4)}
    copied = {"copy": [documents.graph(network(tmp_path / "copy.onnx", 2, names="y"))]}
    assert [match.students for match in similar({**own, **copied})] == [("copy", "s2")]
    assert similar({f"s{index}": [documents.graph(network(tmp_path / "same.onnx", 1))] for index in range(5)}) == ()


def test_equal_weights_are_found_and_the_usual_ones_are_not(tmp_path: Path) -> None:
    def trained(student: str, seed: int) -> list[Document]:
        folder = tmp_path / student
        folder.mkdir()
        np.savez(folder / "trained.npz", weight=np.random.default_rng(seed).standard_normal(8))
        return list(documents.read(folder))

    seeds = {"ada": 1, "ben": 1, "cleo": 2, "dora": 3, "emil": 4}
    (match,) = similar({student: trained(student, seed) for student, seed in seeds.items()})
    assert match.students == ("ada", "ben") and match.reading == "trained.npz: 100% in common, 1 file"
    assert similar({f"s{number}": trained(f"s{number}", 0) for number in range(4)}) == ()


# ---- a class


def handed_in(folder: Path, text: str, answer: str = "") -> None:
    folder.mkdir(parents=True)
    cells = [
        {"cell_type": "code", "metadata": {}, "source": text},
        {"cell_type": "markdown", "metadata": {"nbgrader": {"grade_id": "why", "solution": True}}, "source": answer},
    ]
    (folder / f"{LAB.name}.ipynb").write_text(json.dumps({"cells": cells}))


@pytest.fixture
def room(tmp_path: Path):
    made = new_room(tmp_path)
    for student, text in (("ada", FUNCTIONS), ("ben", disguised(FUNCTIONS)), ("cleo", ANOTHER)):
        put(made, student, verdict())
        handed_in(made.folder / "submitted" / student / LAB.name, text)
    return made


def test_the_class_page_shows_both_sides_and_points_stay(room) -> None:
    report = read(LAB, room)
    assert [match.students for match in report.similar] == [("ada", "ben")]
    assert {one.student: one.score for one in report.submissions} == {"ada": 11, "ben": 11, "cleo": 11}
    page = class_page.page(report)
    assert page.count('<div class="sides">') == 1 and page.count("<mark>") >= 2
    assert "<b>ada</b>" in page and "<b>ben</b>" in page and "<b>cleo</b>" not in page
    (need,) = attention.to_review(report)
    assert need.who == ("ada", "ben") and "compare both sides" in need.why and need.open == 0
    assert report.to_json()["similar"][0]["students"] == ["ada", "ben"]


def test_earlier_classes_and_the_reference_are_compared(room) -> None:
    handed_in(room.folder / "earlier/2025/submitted/zoe" / LAB.name, disguised(ANOTHER))
    handed_in(room.folder / "earlier/2025/autograded/zoe" / LAB.name, ANOTHER)
    reference = next(path for path in REFERENCES if LAB.name in path.parts)
    (room.folder / "submitted/ada" / LAB.name / "mine.py").write_text(disguised(reference.read_text()))
    found = {match.students for match in copies.find(LAB, room, ["ada", "ben", "cleo"])}
    assert found == {("ada", "ben"), ("cleo", "earlier/2025/submitted/zoe"), ("ada", copies.REFERENCE)}


def test_files_under_the_id_of_a_friend_are_shown(tmp_path: Path) -> None:
    made, lab = new_room(tmp_path), labs.find("lab02")
    for student, learner in (
        ("ada", "ada"),
        ("ben", "Ada"),
        ("cleo", "dora"),
        ("dora", "dora2"),
        ("emil", "machine-1"),
        ("fay", ""),
    ):
        folder = made.folder / "submitted" / student / lab.name
        folder.mkdir(parents=True)
        submission.write(folder / "causes.json", learner, costs={})
    students = ("ada", "ben", "cleo", "dora", "emil", "fay")
    assert copies.shared_instances(lab, made, students) == {"ada": ("ada", "ben"), "dora": ("cleo",)}
    submission.write(made.folder / "submitted/fay" / lab.name / "causes.json", "machine-1", costs={})
    assert copies.shared_instances(lab, made, students)["machine-1"] == ("emil", "fay")


def test_whatever_is_submitted_is_compared_or_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "broken.ipynb").write_text('{"cells": [')
    (folder / "types.ipynb").write_text('{"cells": [1, null]}')
    (folder / "model.onnx").write_bytes(b"\xff" * 100)
    (folder / "text.py").write_bytes(b"\xff\xfe'''" + b"(" * 5000)
    (folder / "link.py").symlink_to(KERNEL)
    (folder / "many.py").write_text('"' * 100_000 + "@" + "a." * 40_000)
    assert {one.name for one in documents.read(folder)} <= {"text.py", "many.py"}


def test_groups_join_pairs_and_name_the_class_first() -> None:
    nothing = documents.answer("", "")
    pairs = [
        Match(pair, (nothing, nothing), 1.0, 50, ((), ())) for pair in (("b", "a"), ("c", "earlier/x"), ("b", "c"), ("d", "e"))
    ]
    for order in permutations(pairs):
        assert matches.groups(order, "abcde") == (("a", "b", "c", "earlier/x"), ("d", "e"))


def test_unchanged_pieces_are_cut_and_the_common_ones_are_whole() -> None:
    text = "\n".join(f"line {number}" for number in range(40))
    start = text.index("line 20")
    pieces = class_page.marked(Document("a.py", documents.CODE, text, ()), ((start, start + 7),))
    assert (True, "line 20") in pieces and sum("[...]" in piece for _, piece in pieces) == 2
