"""Wrong answers to the exercises of lecture 5."""

from __future__ import annotations

import math

import numpy as np


def _round(value, bits, extra=1, rule=round):
    fraction, exponent = math.frexp(value)
    steps = 2 ** (bits + extra)
    return math.ldexp(rule(fraction * steps) / steps, exponent)


def _rms(values, divisor, root=np.sqrt):
    small = values / divisor
    return divisor * root((small * small).mean())


def _kept(nodes, largest, tensors=lambda inputs, output: (*inputs, output), limit=65504, smallest=6e-8):
    wrong = {name for name, size in largest.items() if size > limit or 0 < size < smallest}
    return [name for name, inputs, output in nodes if wrong & set(tensors(inputs, output))]


def _missed(nodes, calibrated, production, data_max=512, seen=lambda inputs, output: (*inputs, output), limit=65504, kept=True):
    cast = [each for each in nodes if not kept or max(calibrated[name] for name in (*each[1], each[2])) <= data_max]
    return [name for name, inputs, output in cast if max(production[each] for each in seen(inputs, output)) > limit]


MISTAKES = {
    "5.1": {
        "cut off": lambda value, bits: _round(value, bits, rule=int),
        "one bit too few": lambda value, bits: _round(value, bits, extra=0),
        "one bit too many": lambda value, bits: _round(value, bits, extra=2),
        "ties up": lambda value, bits: _round(value, bits, rule=lambda x: math.floor(x + 0.5)),
    },
    "5.2": {
        "squares": lambda values: np.sqrt((values * values).mean()),
        "root of the sum": lambda values: np.sqrt((values * values).sum()),
        "fixed divisor": lambda values: _rms(values, np.float16(1024)),
        "no magnitude": lambda values: _rms(values, values.max()),
        "zero": lambda values: _rms(values, np.abs(values).max()),
        "float32": lambda values: np.sqrt((values.astype(np.float32) ** 2).mean()),
        "not scaled back": lambda values: np.sqrt(((values / np.abs(values).max()) ** 2).mean()),
    },
    "5.3": {
        "outputs": lambda nodes, largest: _kept(nodes, largest, lambda inputs, output: (output,)),
        "inputs": lambda nodes, largest: _kept(nodes, largest, lambda inputs, output: inputs),
        "2048": lambda nodes, largest: _kept(nodes, largest, limit=2048),
        "no underflow": lambda nodes, largest: _kept(nodes, largest, smallest=0),
        "the largest number": lambda nodes, largest: _kept(nodes, largest, limit=65503),
    },
    "5.4": {
        "outputs": lambda *given: _missed(*given, seen=lambda inputs, output: (output,)),
        "inputs": lambda *given: _missed(*given, seen=lambda inputs, output: inputs),
        "data_max in production": lambda *given: _missed(*given, limit=512),
        "kept nodes, too": lambda *given: _missed(*given, kept=False),
        "always 512": lambda nodes, calibrated, production, data_max=512: _missed(nodes, calibrated, production),
        "swapped": lambda nodes, calibrated, production, data_max=512: _missed(nodes, production, calibrated, data_max),
    },
}
