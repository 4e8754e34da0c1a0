"""Files that people, browsers and learning platforms renamed, nested or packed are taken, and what was taken is said."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from course_lib.grading.batch.arrangement import arrange
from tests.grading.conftest import LAB

NOTEBOOK = f"{LAB.name}.ipynb"
NAMES = (NOTEBOOK, *LAB.artifacts)


def put(folder: Path, *paths: str) -> Path:
    """Files whose content is their own path."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("Model.ONNX", "model.onnx"),
        ("model (2).onnx", "model.onnx"),
        ("model - Copy.onnx", "model.onnx"),
        ("doejane_LATE_12345_67890_model-1.onnx", "model.onnx"),
        ("recipe.toml.txt", "recipe.toml"),
        (f"{LAB.name}/deeper/recipe.toml", "recipe.toml"),
        (f"{LAB.name} (1).ipynb", NOTEBOOK),
        (f"doejane_12345_67890_{NOTEBOOK}", NOTEBOOK),
        ("Lab01_First_Engine.IPYNB", NOTEBOOK),
        ("final version.ipynb", NOTEBOOK),
    ],
)
def test_one_file_under_another_name_is_taken_and_said(tmp_path, found, wanted):
    put(tmp_path, found, *(name for name in NAMES if name != wanted), ".ipynb_checkpoints/model.onnx", "notes.txt")
    assert arrange(tmp_path, NAMES) == [f"'{found}' was taken as {wanted}"]
    assert (tmp_path / wanted).read_text() == found


def test_files_with_the_right_names_are_not_touched(tmp_path):
    put(tmp_path, *NAMES, "model (1).onnx", f"old/{NOTEBOOK}")
    assert arrange(tmp_path, NAMES) == []
    assert all((tmp_path / name).read_text() == name for name in NAMES)


def test_of_several_files_none_is_taken_unless_they_are_equal(tmp_path):
    put(tmp_path, NOTEBOOK, "recipe.toml", "a/model.onnx", "b/model.onnx")
    (line,) = arrange(tmp_path, NAMES)
    assert line == "2 files could be model.onnx ('a/model.onnx', 'b/model.onnx'), and none was taken: keep one of them"
    (tmp_path / "b/model.onnx").write_text("a/model.onnx")
    assert arrange(tmp_path, NAMES) == ["'a/model.onnx' was taken as model.onnx"]


def test_a_file_of_another_kind_or_lab_is_not_taken(tmp_path):
    put(tmp_path, "recipe.toml", "half.onnx", "lab02_fusion.ipynb")
    assert arrange(tmp_path, NAMES) == []
    assert not (tmp_path / "model.onnx").exists() and not (tmp_path / NOTEBOOK).exists()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_packed_folder_is_unpacked(tmp_path, kind):
    source = put(tmp_path / "source", *NAMES)
    folder = tmp_path / "submitted"
    folder.mkdir()
    if kind == "zip":
        with zipfile.ZipFile(folder / "lab01.zip", "w") as packed:
            for name in NAMES:
                packed.write(source / name, f"{LAB.name}/{name}")
            packed.writestr(f"__MACOSX/{LAB.name}/._model.onnx", "a system's file")
            packed.writestr("../../outside", "not taken")
    else:
        with tarfile.open(folder / "lab01.tar.gz", "w:gz") as packed_tar:
            packed_tar.add(source, LAB.name)
    assert [line.partition(" was taken as ")[2] for line in arrange(folder, NAMES)] == list(NAMES)
    assert all((folder / name).read_text() == name for name in NAMES)
    assert not list(tmp_path.rglob("outside"))


def test_an_archive_that_cannot_be_read_is_said(tmp_path):
    put(tmp_path, "lab01.zip", "recipe.toml")
    (line,) = arrange(tmp_path, NAMES)
    assert line == "'lab01.zip' cannot be unpacked (BadZipFile: File is not a zip file)"
