"""What the child of `raw_calls.py` gets: learners' code, the ONNX files of its engines, and what ONNX Runtime answers."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.recording import Row
from course_lib import labs
from course_lib.exercises import lecture_numbers, of_lecture
from course_lib.labs.lab06_qat import given as lab06
from course_lib.labs.lab09_runtime import given
from course_lib.labs.lab09_runtime.given import fits, scenes
from course_lib.models import classifier, digits, export_onnx
from course_lib.recipe import Profile, Recipe
from course_lib.standin.onnx_model import OnnxModel
from docs import conformance

ROOT = Path(__file__).resolve().parents[2]
NEEDED = conformance.EVERY[0]  # the table of TensorRT 8.6
GRAPHS = {  # of the exercises
    "square": "g (float[N, 4] x) => (float[N, 4] y) { y = Mul(x, x) }",
    "extremes": "g (float[N, 4] image) => (float[N, 2] answer) { a = ReduceMin<axes=[1]>(image)  b = ReduceMax<axes=[1]>(image)"
    "  answer = Concat<axis=1>(a, b) }",
    "rejected": "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x)  b = of.nobody.Whirl(a)  y = Relu(b) }",
}
SIZES: dict[str, dict[str, Any]] = {  # small ones see in a minute on a CPU whether all of it works
    "full": {"network": "wide", "batch": 64, "rounds": 15, "requests": 1000, "runs": 50},
    "small": {"network": "small", "batch": 2, "rounds": 10, "requests": 20, "runs": 3},
}
_IMAGES = {bound: (batch, 1, 32, 32) for bound, batch in (("min", 1), ("opt", 8), ("max", 64))}


def write(folder: Path, sections: Sequence[str], loops: Sequence[Path], size: str) -> dict[str, str]:
    """All files that these sections need.

    Args:
        loops: more serving loops for lab 09, besides the reference.
        size: of `SIZES`.

    Returns:
        the learners' code by name: a file of a lab, the notebook of lab 09, or an exercise.
    """
    settings, code = SIZES[size], dict[str, str]()
    if {"exercises", "lab06"} & set(sections):  # an exercise's answer calls the engine of lab 06
        code |= answers()
    for section in sections:
        if section == "exercises":
            _exercises(folder)
            continue
        lab = labs.find(section)
        (folder / section).mkdir(parents=True, exist_ok=True)
        lab.write_reference(folder / section, opset=17)
        code |= {
            f"{section}: {path.name}": path.read_text(encoding="utf-8") for path in sorted((folder / section).glob("*.py"))
        }
    if "lab09" in sections:
        code |= {f"lab09: {path.name}": path.read_text(encoding="utf-8") for path in loops}
        code["lab09: cells of the notebook"] = cells_before_task_1(ROOT / "labs" / "lab09_runtime" / "lab09_runtime.ipynb")
        _scorer(folder)
    if "lab03" in sections:
        recipe = Recipe.load(folder / "lab03" / "recipe.toml").model_copy(update={"profiles": (Profile(image=_IMAGES),)})
        _engine(folder, "lab03", export_onnx(classifier(settings["network"]), opset=17), recipe)
    if "lab06" in sections:
        images = digits("test").images[: settings["batch"]]
        model = lab06.graph(lab06.read_trained(folder / "lab06" / lab06.TRAINED))
        expected = OnnxModel(model.SerializeToString()).run({"image": images})["logits"]
        np.savez(folder / "lab06.npz", images=images, logits=expected)
        _engine(folder, "lab06", model, Recipe(precision="int8", profiles=(Profile(image=_IMAGES),)))
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "code.json").write_text(json.dumps(code))
    return code


def calls(text: str) -> Row:
    """TensorRT's names in a text as the conformance table knows them, and those that TensorRT 8.6 lacks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "code.py")
        path.write_text(f"# trt\n{text}", encoding="utf-8")
        rows, _ = conformance.check([path], Path(folder))
    return {"calls": [row.name for row in rows], "missing": [row.name for row in rows if NEEDED not in row.versions]}


def _engine(folder: Path, name: str, model: onnx.ModelProto, recipe: Recipe) -> None:
    """The two files from which the child builds an engine."""
    onnx.save(model, folder / f"{name}.onnx")
    (folder / f"{name}.json").write_text(json.dumps(recipe.wire()))


def _exercises(folder: Path) -> None:
    """The engines that the answers build or run."""
    for name, text in GRAPHS.items():
        graph = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "of.nobody": 1]> {text}')
        for place, node in enumerate(graph.graph.node):
            node.name = f"/{node.op_type}_{place}"
        rows = {bound: (batch, 4) for bound, batch in (("min", 1), ("opt", 4), ("max", 8))}
        _engine(folder, name, graph, Recipe(profiles=(Profile({graph.graph.input[0].name: rows}),)))


def answers() -> dict[str, str]:
    """The answers to all exercises, by ``exercise ID``."""
    code: dict[str, str] = {}
    for number in lecture_numbers():
        text = (ROOT / "solutions" / f"lecture{number:02}.py").read_text(encoding="utf-8")
        functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        code |= {f"exercise {one.id}": ast.get_source_segment(text, functions[one.name]) or "" for one in of_lecture(number)}
    return code


def cells_before_task_1(notebook: Path) -> str:
    """The given cells of lab 09 that make raw calls: those before its first task, without the imports."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    end = next(place for place, text in enumerate(texts) if text.startswith("## Task 1"))
    code = [text for cell, text in zip(cells[:end], texts, strict=False) if cell["cell_type"] == "code"]
    imports = next(place for place, text in enumerate(code) if text.startswith("from importlib"))  # after the installing cell
    return "\n\n".join(code[imports + 1 :])


def _scorer(folder: Path) -> None:
    """The engine's graph, the requests of three scenes, and the scores of those that a profile contains."""
    (folder / "scorer.onnx").write_bytes(given.model())
    arrays: dict[str, Any] = {}
    for scene in scenes(np.random.default_rng(9)):
        for number, request in enumerate(scene.requests):
            arrays[f"{scene.name}/{number}"] = request
            if fits(request):
                arrays[f"{scene.name}/{number}/scores"] = given.scores(request)
    features = np.random.default_rng(0).standard_normal((3, given.COLUMNS)).astype(np.float32)  # as in the notebook
    np.savez(folder / "scenes.npz", **arrays | {"cells": given.scores(features)})
