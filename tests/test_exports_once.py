"""An export is taken from a file exactly when nothing that it depends on has changed."""

from collections.abc import Callable

import torch
from torch import nn

from course_lib.models import classifier, encoder
from tests import exports_once


def _weight(network: nn.Module) -> None:
    with torch.no_grad():
        network.stem.weight[0, 0, 0, 0] += 1e-3


def _shared(network: nn.Module) -> None:
    network.block2.norm1.bias = network.block2.norm1.weight


def test_an_equal_network_has_an_equal_digest_and_what_is_changed_another():
    changes: list[Callable[[nn.Module], object]] = [
        _weight,
        _shared,  # two weights that are one
        lambda network: setattr(network.stem, "stride", (2, 2)),
        lambda network: setattr(network, "stem", nn.Identity()),
        lambda network: network.half(),
        lambda network: network.train(),
    ]
    digest = exports_once.digest(classifier("small").eval())
    assert digest == exports_once.digest(classifier("small").eval())
    digests = {digest, exports_once.digest(encoder())}
    for change in changes:
        changed = classifier("small").eval()
        change(changed)
        digests.add(exports_once.digest(changed))
    assert len(digests) == 2 + len(changes) and None not in digests
