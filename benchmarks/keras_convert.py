"""The Keras classifier that lecture 2 reads: trained on the course's digits in TensorFlow, saved, and converted by tf2onnx.

    PYTHON benchmarks/keras_convert.py course_lib/models/checkpoints/keras_digits.onnx

PYTHON is an interpreter of an environment for TensorFlow, which the course does not install::

    python -m venv build/keras
    build/keras/bin/pip install tensorflow-cpu==2.21.0 tf2onnx==1.17.0 scikit-learn
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from course_lib.models.digit_dataset import digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    options = parser.parse_args()

    keras = import_module("keras")  # no types are installed with the course
    layers = keras.layers
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((32, 32, 1), name="image")])
    for features in (8, 16, 32):
        model.add(layers.Conv2D(features, 3, strides=2, padding="same", use_bias=False))
        model.add(layers.BatchNormalization(momentum=0.9))
        model.add(layers.ReLU())
    model.add(layers.Flatten())
    model.add(layers.Dense(10, name="logits"))
    model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    train, test = digits("train"), digits("test")
    # channels last, as in Keras: (n, 1, 32, 32) becomes (n, 32, 32, 1)
    model.fit(train.images.transpose(0, 2, 3, 1), train.labels.astype("int32"), batch_size=64, epochs=20, verbose=0)
    right = model.predict(test.images.transpose(0, 2, 3, 1), verbose=0).argmax(1) == test.labels
    print(f"{right.mean():.1%} of the held-out digits are right")
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)  # a SavedModel
        command = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", folder, "--opset", "17", "--output"]
        subprocess.run([*command, options.output], check=True)


if __name__ == "__main__":
    main()
