"""Exercises of lecture 3: memory traffic of fused kernels, folding a norm, and what an epilogue can compute."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.exercise import Case, Exercise

# A node is its inputs and its output.
_CONV, _NORM, _RELU = (("x", "w"), "a"), (("a",), "b"), (("b",), "y")
_BYTES = {"x": 100, "w": 10, "a": 100, "b": 100, "y": 100, "c": 100}

_GRAPH = {  # name: operator, inputs, output
    "conv": ("Conv", ("x",), "a"),
    "relu": ("Relu", ("a",), "b"),
    "scale": ("Mul", ("b",), "c"),
    "add": ("Add", ("c", "x"), "d"),
    "pool": ("MaxPool", ("d",), "e"),
    "tanh": ("Tanh", ("e",), "f"),
}
_TWO_READERS = {
    "conv": ("Conv", ("x",), "a"),
    "relu": ("Relu", ("a",), "b"),
    "scale": ("Mul", ("b",), "c"),
    "other": ("Add", ("b", "c"), "d"),
}
_POINTWISE = {"Relu", "Mul", "Add", "Tanh"}

_WEIGHT = np.array([[1.0, 2.0], [3.0, 4.0]])
_BIAS = np.array([10.0, 20.0])
_SCALE = np.array([2.0, 10.0])
_SHIFT = np.array([1.0, -1.0])

EXERCISES = (
    Exercise(
        id="3.1",
        title="Memory traffic of fused kernels",
        minutes=20,
        difficulty=3,
        importance=2,
        call="traffic(kernels, bytes_of, outputs)",
        hint="For each kernel, list the tensors that it reads from memory and the tensors that it writes to memory.",
        cases=(
            Case(
                ([[_CONV], [_NORM], [_RELU]], _BYTES, {"y"}),
                610,
                {
                    "You counted each tensor once. A tensor between two kernels is written by one and read by the other.": 410,
                    "You counted only what is read. Each kernel also writes its result.": 310,
                    "You counted only what is written. Each kernel also reads its inputs, and the weights.": 300,
                    "You left out the weights: they are an input of the convolution.": 600,
                },
                shown="traffic(three kernels: conv, norm, relu)",
            ),
            Case(
                ([[_CONV, _NORM, _RELU]], _BYTES, {"y"}),
                210,
                {
                    "You counted the tensors inside the kernel. They stay in registers.": 610,
                    "You counted the tensors inside the kernel in one direction. They are neither read from memory nor written.": 410,
                },
                shown="traffic(one kernel with conv, norm and relu)",
            ),
            Case(
                ([[_CONV, _NORM], [_RELU, (("a", "y"), "c")]], _BYTES, {"c"}),
                610,
                {
                    "The second kernel also reads `a`, which the first one computes. So the first kernel has to write `a`.": 510,
                    "Only the kernel that computes `y` reads it, so `y` is not written.": 710,
                },
                shown="traffic(two kernels; the second reads a and b of the first)",
            ),
            Case(
                ([[_CONV, _NORM, _RELU]], _BYTES, {"y", "a"}),
                310,
                {"`a` is an output of the network, so the kernel has to write `a`, although it also uses `a` itself.": 210},
                shown="traffic(one kernel; a is also an output of the network)",
            ),
            Case(
                ([[(("x", "x"), "y")]], _BYTES, {"y"}),
                200,
                {"This kernel multiplies `x` by itself. It reads `x` from memory once.": 300},
                shown="traffic(one kernel that computes x * x)",
            ),
        ),
    ),
    Exercise(
        id="3.2",
        title="Fold a norm into the next layer",
        minutes=12,
        difficulty=2,
        importance=3,
        call="fold_before(weight, bias, scale, shift)",
        hint="Write the layer's result for one output as a sum over the inputs, insert the scale and the shift, and collect the terms.",
        cases=(
            Case(
                (_WEIGHT, _BIAS, _SCALE, _SHIFT),
                (np.array([[2.0, 20.0], [6.0, 40.0]]), np.array([9.0, 19.0])),
                {
                    "You scaled the rows. A row belongs to an output, but the norm scales the inputs, which are the columns.": (
                        np.array([[2.0, 4.0], [30.0, 40.0]]),
                        np.array([9.0, 19.0]),
                    ),
                    "You multiplied the shift by the scaled weight. The shift is added after the scale, so it meets the original weight.": (
                        np.array([[2.0, 20.0], [6.0, 40.0]]),
                        np.array([-8.0, -14.0]),
                    ),
                    "The bias does not change, although the shift passes through the weight: each output gets a constant.": (
                        np.array([[2.0, 20.0], [6.0, 40.0]]),
                        _BIAS,
                    ),
                    "You added the shift to the bias. The layer multiplies it by the weight first.": (
                        np.array([[2.0, 20.0], [6.0, 40.0]]),
                        np.array([11.0, 19.0]),
                    ),
                    "You used the transposed weight for the shift. Output i gets the sum of row i times the shift.": (
                        np.array([[2.0, 20.0], [6.0, 40.0]]),
                        np.array([8.0, 18.0]),
                    ),
                },
                shown="fold_before([[1, 2], [3, 4]], [10, 20], [2, 10], [1, -1])",
            ),
        ),
    ),
    Exercise(
        id="3.3",
        title="What an epilogue can compute",
        minutes=20,
        difficulty=3,
        importance=2,
        call="epilogue(graph, start, outputs, pointwise)",
        hint="Follow the output of the convolution from node to node, and stop at the first node that breaks one of the three rules.",
        cases=(
            Case(
                (_GRAPH, "conv", {"f"}, _POINTWISE),
                ["relu", "scale", "add"],
                {
                    "You stopped after one node. The epilogue can continue with the result of that node.": ["relu"],
                    "You skipped the pooling and continued after it. The nodes after one that breaks a rule are in another kernel.": [
                        "relu",
                        "scale",
                        "add",
                        "tanh",
                    ],
                    "You included the pooling, which needs neighbors: check the operator of each node.": [
                        "relu",
                        "scale",
                        "add",
                        "pool",
                    ],
                    "You did not check the operators: neither the pooling nor a node after it is allowed.": [
                        "relu",
                        "scale",
                        "add",
                        "pool",
                        "tanh",
                    ],
                    "You stopped before the sum. Its second input is already in memory, and the epilogue can read it.": [
                        "relu",
                        "scale",
                    ],
                    "Your list begins with the convolution itself. Return the nodes that its epilogue computes.": [
                        "conv",
                        "relu",
                        "scale",
                        "add",
                    ],
                },
                shown="epilogue(conv - relu - scale - add - pool - tanh)",
            ),
            Case(
                (_TWO_READERS, "conv", {"d"}, _POINTWISE),
                ["relu"],
                {
                    "Two nodes read the ReLU's result, so it has to be in memory: the epilogue ends there.": ["relu", "scale"],
                    "You followed both readers of the ReLU's result. With two readers, the epilogue ends.": [
                        "relu",
                        "scale",
                        "other",
                    ],
                    "You left out the ReLU. Its result must be stored, and an epilogue can store its last result.": [],
                },
                shown="epilogue(conv - relu, whose result two nodes read)",
            ),
            Case(
                (_GRAPH, "conv", {"f", "b"}, _POINTWISE),
                ["relu"],
                {
                    "The ReLU's result is an output of the network, so the epilogue ends there.": [
                        "relu",
                        "scale",
                        "add",
                    ]
                },
                shown="epilogue(the first graph; the result of relu is also an output)",
            ),
            Case(
                ({"conv": ("Conv", ("x",), "a")}, "conv", {"a"}, _POINTWISE),
                [],
                shown="epilogue(a convolution alone)",
            ),
        ),
    ),
)
