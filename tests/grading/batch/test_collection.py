"""What lies under ``submitted/``: every folder and file is a submission, another lab's, or a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.grading.batch.collection import collected, submission_folder
from tests.grading.conftest import LAB


def made(root: Path, *paths: str) -> Path:
    """Empty files; a path that ends in "/" is a folder."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).mkdir(exist_ok=True) if path.endswith("/") else (root / path).touch()
    return root


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        (f"{LAB.name}/model.onnx", LAB.name),
        ("lab01/model.onnx", "lab01"),
        (f"{LAB.name} (1)/model.onnx", f"{LAB.name} (1)"),
        ("Lab 1 - final/model.onnx", "Lab 1 - final"),
        ("LAB-01/model.onnx", "LAB-01"),
        (f"{LAB.name}.ipynb", "."),
        (f"doejane_12345_67890_{LAB.name}-1.ipynb", "."),
        ("lab01.zip", "."),
    ],
)
def test_a_submission_is_found_by_any_name_that_means_the_lab(tmp_path, path, folder):
    made(tmp_path, f"ada/{path}", "ada/lab02_fusion/model.onnx", "ada/lab11/model.py", "ada/.DS_Store")
    found = collected(tmp_path, LAB.name)
    assert (found.students, found.rejected) == (("ada",), ())
    assert submission_folder(tmp_path / "ada", LAB.name) == tmp_path / "ada" / folder


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("loose.ipynb", "'loose.ipynb': not in a folder of a student: if it is a submission, move it to STUDENT/LAB/"),
        (
            "ada_lab02.zip",
            "'ada_lab02.zip': not in a folder of a student: if it is a submission, unpack it to STUDENT/lab02_fusion/",
        ),
        ("ada/", "'ada': the folder is empty"),
        (
            "ada/homework/x.py",
            f"'ada/homework': not in the folder of a lab: if it belongs to {LAB.name}, move it to STUDENT/{LAB.name}/",
        ),
        (
            "ada/model.onnx",
            f"'ada/model.onnx': not in the folder of a lab: if it belongs to {LAB.name}, move it to STUDENT/{LAB.name}/",
        ),
        (f"ada/{LAB.name}", f"'ada': {LAB.name} is not a folder"),
        ("lab01/ada.ipynb", f"'lab01': expected STUDENT/{LAB.name}/, found the name of a lab in place of a student's id"),
        (
            "\tada/lab01/",
            "'\\tada': the name contains U+0009 (a control character): rename the folder with letters, digits and ._-@+",
        ),
    ],
)
def test_everything_else_is_a_line_with_a_guess(tmp_path, path, line):
    found = collected(made(tmp_path, path), LAB.name)
    assert found.students == ()
    assert [str(rejected) for rejected in found.rejected] == [line]


def test_a_second_folder_of_the_lab_is_named(tmp_path):
    found = collected(made(tmp_path, f"ada/{LAB.name}/", f"ada/{LAB.name} (1)/", "bob/lab01/", "bob/Lab 1/"), LAB.name)
    assert found.students == ("ada",)
    assert [str(line) for line in found.rejected] == [
        f"'ada/{LAB.name} (1)': not graded, because {LAB.name} is: move what belongs to it there",
        f"'bob': 2 folders could be {LAB.name} ('Lab 1', 'lab01'): keep one",
    ]


def test_a_link_is_a_line(tmp_path):
    made(tmp_path, f"ada/{LAB.name}/model.onnx", "bob/")
    (tmp_path / "bob" / LAB.name).symlink_to(tmp_path / "ada" / LAB.name)
    (tmp_path / "cleo").symlink_to("ada")
    (tmp_path / "dora").symlink_to("dora")
    found = collected(tmp_path, LAB.name)
    assert found.students == ("ada",)
    assert [str(line) for line in found.rejected] == [
        f"'bob': {LAB.name} is a link: put a copy of the files in its place",
        "'cleo': the folder is a link: put a copy of the files in its place",
        "'dora': the folder cannot be read (Too many levels of symbolic links)",
    ]
    assert collected(tmp_path / "absent", LAB.name).students == ()
