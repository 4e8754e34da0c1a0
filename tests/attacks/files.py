"""Makers of submissions whose files attack: what lies in the folder in place of a notebook, a model and a recipe, and beside them."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import zlib
from pathlib import Path

from tests.attacks.notebooks import path
from tests.attacks.scene import HONEST, Scene
from tests.grading.conftest import LAB

# ---- files that are none


def submitted_hard_link(folder: Path, scene: Scene) -> None:
    for name in LAB.artifacts:
        os.link(scene.secret, folder / name)


def linked_folder(folder: Path, scene: Scene) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(scene.folder(HONEST))


def folder_as_notebook(folder: Path, scene: Scene) -> None:
    path(folder).unlink()
    path(folder).mkdir()


# ---- notebooks that are none


def no_json(folder: Path, scene: Scene) -> None:
    path(folder).write_bytes(base64.b64decode(b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"))


def nested_json(folder: Path, scene: Scene) -> None:
    path(folder).write_text('{"cells": ' + "[" * 100_000)


def half_a_character(folder: Path, scene: Scene) -> None:
    notebook = json.loads(path(folder).read_text())
    notebook["cells"][0]["source"] = "print('\ud800')"
    notebook["cells"][-1]["source"] = "half: \udfff"
    path(folder).write_text(json.dumps(notebook))


def giant_notebook(folder: Path, scene: Scene) -> None:
    notebook = json.loads(path(folder).read_text())
    notebook["cells"][-1]["source"] = "word " * 10_000_000
    path(folder).write_text(json.dumps(notebook))


def old_format(folder: Path, scene: Scene) -> None:
    cell = {"cell_type": "code", "input": "10", "language": "python", "metadata": {}, "outputs": [], "collapsed": False}
    notebook = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": [cell], "metadata": {}}]}
    path(folder).write_text(json.dumps(notebook))


def wrong_types(folder: Path, scene: Scene) -> None:
    path(folder).write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": [], "cells": [1, None, {"source": 3}]}))


# ---- files beside the notebook


def notebook_in_utf16(folder: Path, scene: Scene) -> None:
    path = folder / f"{LAB.name}.ipynb"
    document = json.loads(path.read_bytes())
    document["metadata"] |= {"quote": '"', "many": [0] * 300_000}
    path.write_bytes(json.dumps(document).encode("utf-16"))


def longer_time(folder: Path, scene: Scene) -> None:
    """The first hundred characters are a time. A parser that reads them is content, and one that reads all of them fails."""
    (folder / "timestamp.txt").write_text("2026-05-02 18:00:00 UTC" + " " * 100 + "x")


def folders_as_files(folder: Path, scene: Scene) -> None:
    """What is copied as files has folders in it, with files."""
    path(folder).unlink()
    for name in ("timestamp.txt", path(folder).name, ".partial"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("2026-05-02 18:00:00 UTC")


def sparse_file(folder: Path, scene: Scene) -> None:
    with open(folder / "holes.bin", "wb") as file:
        file.truncate(60_000_000)


def other_notebooks(folder: Path, scene: Scene) -> None:
    for name in ("other.ipynb", "lab02_fusion.ipynb", "-.ipynb", "*.ipynb"):
        shutil.copyfile(path(folder), folder / name)
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / path(folder).name).symlink_to(scene.secret)


def deep_folders(folder: Path, scene: Scene) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)


def odd_names(folder: Path, scene: Scene) -> None:
    for name in (b"no text \xff\xfe", b"two\nlines", b"--force", b"[glob]*?", b"\x1b[2Jescape", b"n" * 250, b"%s{}"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")


def own_modules(folder: Path, scene: Scene) -> None:
    """Each would leave a trace in the course's folder if a process outside of the sandbox imported it."""
    text = f"open({str(scene.root / 'labs/planted')!r}, 'w').write(__name__)\n"
    (folder / "course_lib").mkdir()
    for name in (
        "sitecustomize",
        "usercustomize",
        "numpy",
        "onnx",
        "json",
        "nbgrader_config",
        "course_lib/__init__",
        "conftest",
    ):
        (folder / f"{name}.py").write_text(text)


# ---- models and recipes that are none


def oversized_model(folder: Path, scene: Scene) -> None:
    with open(folder / "model.onnx", "wb") as file:
        file.truncate(100 << 20)


def compiled_model(folder: Path, scene: Scene) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "compiled.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    (folder / "compiled.ort").replace(folder / "model.onnx")


def zip_bomb(folder: Path, scene: Scene) -> None:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(1024)) + squeeze.flush()
    (folder / "model.onnx").write_bytes(data)


class _Planted:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.target),)


def pickled_program(folder: Path, scene: Scene) -> None:
    (folder / "model.onnx").write_bytes(pickle.dumps(_Planted(scene.root / "labs/planted")))


def binary_recipe(folder: Path, scene: Scene) -> None:
    (folder / "recipe.toml").write_bytes(b"\xff\xfe\x00precision")


def absurd_recipe(folder: Path, scene: Scene) -> None:
    _recipe(
        folder, "[[profile]]\nimage = { min = [1, 1, 32, 32], opt = [1, 1, 32, 32], max = [9223372036854775808, 1, 32, 32] }\n"
    )


def _recipe(folder: Path, text: str) -> None:
    (folder / "recipe.toml").write_text(text)
