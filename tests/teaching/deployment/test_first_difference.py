"""A fault of known place in a real export is found there, and nowhere in the export itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from course_lib import style
from course_lib.errors import CourseError
from course_lib.models import digits
from course_lib.teaching.deployment.first_difference import Place, Places, against_torch, module_outputs, tensors
from tests.exported import exported, network


@pytest.fixture(scope="module")
def pair():
    model = network("small")
    images = digits("test").images[:4]
    return exported("small"), model, images, module_outputs(model, torch.from_numpy(images))


def with_zero(model, name):
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    weight = next(weight for weight in changed.graph.initializer if weight.name == name)
    weight.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(weight)), name))
    return changed


def test_an_export_agrees_everywhere(pair):
    model, _, images, reference = pair
    found = against_torch(tensors(model, {"image": images}), reference)
    assert found.first_beyond(1e-5) is None
    assert {"norm", "block1.norm2", "block2.shortcut.1", "block3", "head"} <= {row.module for row in found.rows}


@pytest.mark.parametrize(
    ("weight", "place"),
    [("block2.conv2.weight_bias", "block2.norm2"), ("block3.conv1.weight_bias", "block3.norm1"), ("head.bias", "head")],
)
def test_a_fault_is_found_where_it_was_made(pair, weight, place):
    model, _, images, reference = pair
    found = against_torch(tensors(with_zero(model, weight), {"image": images}), reference)
    assert found.first_beyond(1e-4).module == place


def test_another_networks_graph_is_rejected():
    with pytest.raises(CourseError, match="no node of the graph is named after"):
        against_torch({"MatMul_3": np.ones(2)}, {"head": np.ones(2)})


def test_a_nan_is_a_difference_and_the_figure_holds_every_place():
    places = Places((Place("/a/Conv", "a", 0.0), Place("/b/Conv", "b", float("nan"))))
    assert places.first_beyond(1.0).module == "b"
    shown = Places((Place("/a/Conv", "a", 0.0), Place("/b/Conv", "b", 0.3))).plot(1e-4, "b is off")
    assert [text.get_text() for text in shown.axes[0].get_yticklabels()] == ["/a/Conv", "/b/Conv"]
    assert style.png(shown).startswith(b"\x89PNG")
