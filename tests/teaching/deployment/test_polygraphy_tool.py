"""Polygraphy itself, on the CPU: its commands for files, the comparison of two models, and the search for one faulty node."""

from __future__ import annotations

import onnx
import pytest

from course_lib.models import digits
from course_lib.teaching.deployment.polygraphy_tool import WIDTH, Polygraphy
from tests.exported import exported
from tests.teaching.deployment.test_first_difference import with_zero

FAULTY = "/block2/conv2+norm2/Conv"
RIGHT = "--load-outputs right.json --atol 1e-3 --rtol 1e-3"
CHECK = f"--check polygraphy run polygraphy_debug.onnx --onnxrt --load-inputs feed.json {RIGHT}"


@pytest.fixture(scope="module")
def polygraphy(tmp_path_factory: pytest.TempPathFactory) -> Polygraphy:
    """In a folder with the small classifier, the same with one bias lost, and the right tensors of one digit."""
    from polygraphy.json import save_json

    folder = tmp_path_factory.mktemp("models")
    onnx.save(exported("small"), folder / "exported.onnx")
    onnx.save(with_zero(exported("small"), "block2.conv2.weight_bias"), folder / "broken.onnx")
    save_json([{"image": digits("test").images[:1]}], str(folder / "input.json"))
    tool = Polygraphy(folder)
    assert tool.run("run exported.onnx --onnxrt --load-inputs input.json --onnx-outputs '*' --save-outputs right.json")[0] == 0
    assert tool.run("data merge input.json right.json -o feed.json")[0] == 0
    return tool


def nodes(tool: Polygraphy, name: str) -> list[str]:
    return [node.name for node in onnx.load(tool.folder / name).graph.node]


def test_a_block_is_extracted_and_listed(polygraphy: Polygraphy, capsys: pytest.CaptureFixture[str]) -> None:
    ends = "--inputs /block1/Relu_1_output_0:auto:auto --outputs /block2/Relu_1_output_0:auto"
    assert polygraphy(f"surgeon extract exported.onnx {ends} -o block2.onnx", show="dtype") == 0
    assert polygraphy("inspect model block2.onnx --show layers", show=r"Node \d") == 0
    said = capsys.readouterr().out.splitlines()
    assert max(map(len, said)) <= WIDTH and said[0].endswith("\\")
    assert [line.split()[3] for line in said if "Node " in line] == nodes(polygraphy, "block2.onnx")
    assert len(nodes(polygraphy, "block2.onnx")) == 6


def test_the_faulty_node_is_found_in_two_steps(polygraphy: Polygraphy) -> None:
    """As lecture 17 says: bisection keeps two nodes and never tries the convolution alone; `linear` finds it."""
    shapes = "--model-input-shapes image:[1,1,32,32]"
    _, said = polygraphy.run(
        f"debug reduce broken.onnx -o bisected.onnx --mode bisect {shapes} --load-inputs feed.json {CHECK}"
    )
    assert nodes(polygraphy, "bisected.onnx") == [FAULTY, "/block2/Add"]
    first = said.partition("PASSED | Iteration 1")[0]
    assert "Marking model outputs: [Variable (/block2/shortcut/" in first and "FAILED | Iter" not in first
    polygraphy.run(f"debug reduce bisected.onnx -o reduced.onnx --mode linear --load-inputs feed.json {CHECK}")
    assert nodes(polygraphy, "reduced.onnx") == [FAULTY]
    order = nodes(polygraphy, "broken.onnx")
    assert order.index(FAULTY) < order.index("/block2/shortcut/0+1/Conv")
