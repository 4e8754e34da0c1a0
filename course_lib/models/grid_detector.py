"""The course's object detector: small, anchor-free, one grid of stride 8, with an output laid out as YOLO lays it out.

Sources: Tian, Shen, Chen and He, FCOS: Fully Convolutional One-Stage Object Detection (2019), for detection without anchors;
the output layout is that of Ultralytics' YOLOv8 exports.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course_lib.models import weights
from course_lib.models.residual_cnn import ResidualBlock
from course_lib.models.signature import Signature

STRIDE = 8  # pixels per cell
CLASSES = 10
UNIT = 24.0  # pixels that a width or height of exp(0) means
MEAN, STD = 0.37, 0.2  # of the video's pixels, in [0, 1]


class Detector(nn.Module):
    """``frames`` ``(N, 1, side, side)`` in [0, 1] to ``detections`` ``(N, 4 + 10, cells)``.

    The first four rows are center x, center y, width and height in pixels of the input. Each of the others is the score of one
    class, in [0, 1]. Each cell has one column, ``(side / 8) ** 2`` in all, row by row from the upper left. Overlapping boxes are
    not suppressed.
    """

    centers: Tensor  # of the cells, (2, cells), in pixels

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side
        self.stem = nn.Conv2d(1, 32, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.block1 = ResidualBlock(32, 48, stride=2)
        self.block2 = ResidualBlock(48, 96, stride=2)
        self.block3 = ResidualBlock(96, 96, stride=1)
        self.head = nn.Conv2d(96, 5 + CLASSES, 1)
        cells = (torch.arange(side // STRIDE) + 0.5) * STRIDE
        y, x = torch.meshgrid(cells, cells, indexing="ij")
        self.register_buffer("centers", torch.stack([x, y]).flatten(1), persistent=False)  # the weights fit every side

    def raw(self, frames: Tensor) -> Tensor:
        """The input of the loss, ``(N, 15, cells)``: offset x and y in cells, log width and height, objectness, class logits."""
        x = torch.relu(self.norm(self.stem((frames - MEAN) / STD)))
        return self.head(self.block3(self.block2(self.block1(x)))).flatten(2)

    def boxes(self, raw: Tensor) -> Tensor:
        """``(N, 4, cells)``: center x, center y, width and height in pixels."""
        center = self.centers + STRIDE * raw[:, :2]
        return torch.cat([center, UNIT * torch.exp(raw[:, 2:4])], dim=1)

    def forward(self, frames: Tensor) -> Tensor:
        """``(N, 1, side, side)`` to ``(N, 14, cells)``: four rows of boxes, then a row of scores for each class."""
        raw = self.raw(frames)
        scores = torch.sigmoid(raw[:, 4:5]) * torch.softmax(raw[:, 5:], dim=1)
        return torch.cat([self.boxes(raw), scores], dim=1)

    def signature(self) -> Signature:
        """Name and shape of the input and the output; the batch is dynamic."""
        return Signature(inputs={"frames": ("batch", 1, self.side, self.side)}, outputs=("detections",))


def detector(side: int = 128, *, pretrained: bool = True) -> Detector:
    """The digit detector in eval mode, for square gray frames.

    Args:
        side: side of its input in pixels, a multiple of 8. All sizes use the same weights, which were trained at 96 to 128.
        pretrained: load the shipped weights. Otherwise torch's global random generator initializes them.

    Raises:
        ValueError: `side` is not a positive multiple of 8.
    """
    if side < STRIDE or side % STRIDE:
        raise ValueError(f"side must be a positive multiple of {STRIDE}, got {side}")
    model = Detector(side)
    if pretrained:
        weights.load(model, "detector")
    return model.eval()
