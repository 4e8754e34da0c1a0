"""`course layers` on PyTorch modules."""

from __future__ import annotations

import json
import re
import warnings

import onnx
import pytest
from typer.testing import CliRunner

from course_lib.cli import module_layers
from course_lib.cli.app import app
from course_lib.cli.shape_option import shapes_of
from course_lib.engines.backends.torch_tensorrt import blocks
from course_lib.errors import CourseError
from course_lib.models import classifier, export_onnx

NET = """
import torch
from course_lib.models import Signature

class Halves(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.cumprod(torch.relu(x), 1))

def factory():
    return Halves(), {"x": (2, 8)}

def module_alone():
    return Halves()

class Named(Halves):
    def signature(self):
        return Signature(inputs={"image": (2, 8)}, outputs=("y",))

def pair():
    return Halves(), {"image": (2, 8)}

class Weighted(torch.nn.Module):
    def forward(self, values, weights):
        return torch.relu(values) * weights.sum()

def number():
    return 3

class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(9, 4)

    def forward(self, tokens):
        return torch.relu(self.rows(tokens))

    def signature(self):
        return Signature(inputs={"tokens": ("batch", 5)}, outputs=("rows",), integers={"tokens": 9})

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
    assert "3 operators in 3 blocks, 2 engines; in PyTorch: aten.cumprod.default" in text and "block 2: 1 kernel " in text


def test_the_export_prints_no_advice_on_the_module():
    """PyTorch's remark on an LSTM's own attributes stood above the table."""
    import torch

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        blocks._exported(torch.nn.LSTM(2, 2), {"input": (1, 1, 2)})
    assert not told


def test_a_network_with_a_signature_needs_no_inputs():
    example = module_layers._examples(module_layers._factory("halves.py:Tokens")())["tokens"]
    assert example.shape == (2, 5) and not example.is_floating_point()


def test_an_onnx_file_with_a_dynamic_batch_takes_its_profile_from_the_command():
    export_onnx(classifier("small"), "small.onnx")
    asked = CliRunner().invoke(app, ["layers", "small.onnx", "--backend", "tensorrt_rtx"])
    assert "or pass --shape image=1x1x32x32, or ranges" in str(asked.exception)
    for shapes in ("image=4x1x32x32", "image=1x1x32x32:4x1x32x32:8x1x32x32"):
        shown = CliRunner().invoke(app, ["layers", "small.onnx", "--backend", "tensorrt_rtx", "--shape", shapes, "--json"])
        assert json.loads(shown.stdout)["kernels"], shown.exception
    for shape in ("image=4x1", "image=4x1x16x16", "image=1x1x32x32:4x2x32x32:8x2x32x32"):  # an error of the option
        shown = CliRunner().invoke(app, ["layers", "small.onnx", "--backend", "tensorrt_rtx", "--shape", shape])
        assert re.search("--shape: .*input 'image'", str(shown.exception)) and "profile" not in str(shown.exception)


def test_names_stay_as_they_are_in_an_error_of_an_option(one_node):
    for name in ("profile_id", "the profile 0"):
        model = one_node("Relu", [["n", 4]], output=["n", 4])
        model.graph.input[0].name = model.graph.node[0].input[0] = name
        onnx.save(model, f"{name}.onnx")
        shown = CliRunner().invoke(app, ["layers", f"{name}.onnx", "-b", "tensorrt_rtx", "--shape", f"{name}=4x4x4"])
        assert str(shown.exception) == f"{name}.onnx: --shape: input {name!r} has 2 dimensions, the shape gives 3"
    options = ("-b", "tensorrt_rtx", "--shape", "profile_id=4x4", "--against", "the profile 0.onnx")
    shown = CliRunner().invoke(app, ["layers", "profile_id.onnx", *options])
    assert str(shown.exception).startswith("the profile 0.onnx: --shape names the input 'profile_id', but")


@pytest.mark.parametrize("convertible, options, advised", [(True, (), 1), (False, (), 0), (True, ("min_block_size=2",), 0)])
def test_smaller_blocks_are_advised_where_they_can_help(convertible, options, advised, capsys):
    module_layers.show(blocks.Blocks((blocks.Block(False, ("aten.relu.default",)),), convertible=convertible), options)
    out, err = capsys.readouterr()
    assert (out + err).count("add --option min_block_size=1") == advised


@pytest.mark.parametrize(
    ("target", "inputs", "words"),
    [
        ("halves.py:number", (), "returned int: a factory returns a torch.nn.Module"),
        ("halves.py:failing", (), "failed: ValueError no weights"),
        ("halves.py:absent", (), "has no function absent"),
        ("halves:module_alone", (), "pass --shape NAME="),
        ("halves:module_alone", ("x=2xtwo",), "expected NAME=4x1x32x32"),
        ("halves.py", ("X=2x8",), "--shape names 'X', but the inputs are x: use one of these names"),
        ("halves:Weighted", ("values=2x8", "bias=8"), "names 'bias', but the inputs are values, weights"),
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


def test_shapes_are_given_in_any_order(monkeypatch):
    """They went to forward's arguments in the order of the options."""
    monkeypatch.setattr(blocks, "module_blocks", lambda module, shapes, **options: shapes)
    shapes = module_layers.blocks("halves:Weighted", ("weights=3", "values=2x8"), (), time_limit_s=60)
    assert list(shapes.items()) == [("values", (2, 8)), ("weights", (3,))]


@pytest.mark.parametrize("target", ["halves:Named", "halves:pair"])
def test_inputs_have_the_names_of_the_signature_or_the_examples(target, monkeypatch):
    monkeypatch.setattr(blocks, "module_blocks", lambda module, shapes, **options: shapes)
    assert module_layers.blocks(target, ("image=2x3",), (), time_limit_s=60) == {"image": (2, 3)}
    with pytest.raises(CourseError, match="names 'x', but the inputs are image:"):
        module_layers.blocks(target, ("x=2x3",), (), time_limit_s=60)


def test_a_range_of_shapes():
    assert shapes_of(["x=1x8:2x8:4x8"]) == {"x": {"min": (1, 8), "opt": (2, 8), "max": (4, 8)}}
