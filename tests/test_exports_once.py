"""An export is taken from a file exactly when nothing that it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from course_lib.models import Signature, classifier, encoder, export_onnx
from tests import exports_once, unchanged


def _weight(network: nn.Module) -> None:
    with torch.no_grad():
        network.stem.weight[0, 0, 0, 0] += 1e-3


def _shared(network: nn.Module) -> None:
    network.block2.norm1.bias = network.block2.norm1.weight


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "one number of a weight": _weight,
    "a setting": lambda network: setattr(network.stem, "stride", (2, 2)),
    "a layer of another kind": lambda network: setattr(network, "stem", nn.Identity()),
    "half precision": lambda network: network.half(),
    "training": lambda network: network.train(),
    "two weights that are one": _shared,
}


@pytest.fixture
def network() -> nn.Module:
    return classifier("small").eval()


def test_an_equal_network_has_an_equal_digest(network):
    assert exports_once.digest(network) == exports_once.digest(classifier("small").eval()) is not None
    assert exports_once.digest(encoder()) not in (None, exports_once.digest(network))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_changed_has_another_digest(network, change):
    before = exports_once.digest(network)
    change(network)
    assert exports_once.digest(network) not in (before, None)


def test_it_is_what_torch_would_make_and_each_argument_counts(network, tmp_path, monkeypatch):
    monkeypatch.setattr(unchanged, "FOLDER", tmp_path)
    exports_once.uninstall()
    small = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    signature = Signature(inputs={"x": ("batch", 3)}, outputs=("y",))
    real = export_onnx(small, signature=signature)
    exports_once.install()
    assert export_onnx(small, signature=signature) == export_onnx(small, signature=signature) == real
    assert len(list(tmp_path.glob("*.bytes"))) == 1
    export_onnx(small, signature=signature, dynamic_batch=False, batch=4)
    assert len(list(tmp_path.glob("*.bytes"))) == 2
