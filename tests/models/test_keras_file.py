"""The converted Keras file of lecture 2: what the text says about its layout, and right answers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from course_lib.models import digits
from course_lib.models.weights import FOLDER


def test_the_converted_file_reads_channels_last_and_classifies_digits() -> None:
    model = onnx.load(FOLDER / "keras_digits.onnx")
    batch, *image = model.graph.input[0].type.tensor_type.shape.dim
    assert batch.dim_param and [size.dim_value for size in image] == [32, 32, 1]
    assert [node.op_type for node in model.graph.node if node.op_type in ("Reshape", "Transpose")] == [
        "Reshape",  # one channel has the same bytes in both layouts
        "Transpose",
        "Reshape",
    ]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    test = digits("test")
    (scores,) = session.run(None, {"image": np.ascontiguousarray(test.images.transpose(0, 2, 3, 1))})
    assert (scores.argmax(1) == test.labels).mean() > 0.97
