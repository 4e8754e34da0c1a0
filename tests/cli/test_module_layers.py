"""`course layers` on PyTorch modules."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from course_lib.cli import module_layers
from course_lib.cli.app import app
from course_lib.errors import CourseError

NET = """
import torch

class Halves(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.cumprod(torch.relu(x), 1))

def factory():
    return Halves(), {"x": (2, 8)}

def module_alone():
    return Halves()

def number():
    return 3

def failing():
    raise ValueError("no weights")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "halves.py").write_text(NET)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("target", ["halves.py", "halves.py:factory", "halves:factory"])
def test_a_target_is_found(target):
    assert callable(module_layers._factory(target)) and module_layers.names_module(target)


def test_blocks_and_tables_in_one_view():
    shown = CliRunner().invoke(app, ["layers", "halves.py", "--option", "min_block_size=1"])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "3 operators in 3 blocks, 2 engines; in PyTorch: aten.cumprod.default" in text and "block 2: 1 kernels" in text


@pytest.mark.parametrize(
    ("target", "inputs", "words"),
    [
        ("halves.py:number", (), "returned int: a factory returns a torch.nn.Module"),
        ("halves.py:failing", (), "failed: ValueError no weights"),
        ("halves.py:absent", (), "has no function absent"),
        ("halves:module_alone", (), "pass --input NAME="),
        ("halves:module_alone", ("x=2xtwo",), "expected NAME=4x1x32x32"),
        ("absent.py", (), "no such file"),
        ("absent:factory", (), "no module 'absent'"),
    ],
)
def test_what_is_wrong_is_named(target, inputs, words):
    with pytest.raises(CourseError, match=words):
        module_layers.blocks(target, inputs, (), time_limit_s=60)


def test_a_file_is_not_a_module(tmp_path):
    (tmp_path / "net.onnx").write_text("")
    assert not module_layers.names_module("net.onnx") and not module_layers.names_module("absent.onnx")
    assert not module_layers.names_module("C:\\nets\\net.onnx")


def test_a_range_of_shapes():
    assert module_layers._input("x=1x8:2x8:4x8") == ("x", {"min": (1, 8), "opt": (2, 8), "max": (4, 8)})
