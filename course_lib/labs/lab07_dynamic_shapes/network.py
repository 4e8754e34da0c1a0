"""Lab 07's network: the course's encoder with a mask, so that a padded batch gets the answers of an unpadded one."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from course_lib.models import weights
from course_lib.models.signature import Signature
from course_lib.models.transformer import Encoder

HIDDEN = -1e4  # added to the score of a padded token: exp of it is 0, and FP16 still holds it


class MaskedEncoder(nn.Module):
    """``tokens`` ``(N, S, 32)`` and ``mask`` ``(N, S)``, 1 for a token and 0 for padding, to ``logits`` ``(N, 10)``."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """``(N, S, 32)`` and ``(N, S)`` to ``(N, 10)``."""
        part = self.encoder
        bias = ((1 - mask) * HIDDEN)[:, None, None, :]
        x = part.embed(tokens) + part.positions[: tokens.shape[1]]
        for block in part.blocks:
            x = block(x, bias)
        return part.head((part.norm(x) * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))

    def signature(self) -> Signature:
        """Names and shapes of the inputs and the output; the batch and the sequence length are dynamic."""
        inputs = {"tokens": ("batch", "sequence", 32), "mask": ("batch", "sequence")}
        return Signature(inputs=inputs, outputs=("logits",), sizes={"sequence": 32})


def masked_encoder() -> MaskedEncoder:
    """The masked encoder with the shipped weights, in eval mode."""
    model = MaskedEncoder()
    weights.load(model.encoder, "encoder")
    return model.eval().requires_grad_(False)


@cache
def exported(opset: int | None = None) -> bytes:
    """The network as a serialized ONNX model."""
    from course_lib.models.export import export_onnx

    with torch.no_grad():
        return export_onnx(masked_encoder(), opset=opset).SerializeToString()
