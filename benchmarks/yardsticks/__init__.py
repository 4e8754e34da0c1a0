"""Networks with random weights, for speed and numerical agreement alone: ResNet-50, BERT-base, ViT-B/16 and U-Net."""

from __future__ import annotations

from typing import Any

from benchmarks.yardsticks.bert import bert_base
from benchmarks.yardsticks.resnet import resnet50
from benchmarks.yardsticks.u_net import unet
from benchmarks.yardsticks.vision_transformer import vit_b16
from course_lib import models

__all__ = ["bert_base", "make", "resnet50", "unet", "vit_b16"]


def make(factory: str, *arguments: Any) -> Any:
    """A network by the name of its function, in this package or in `course_lib.models`."""
    own = {one.__name__: one for one in (bert_base, resnet50, unet, vit_b16)}
    return (own.get(factory) or getattr(models, factory))(*arguments)
