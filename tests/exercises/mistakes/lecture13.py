"""Wrong answers to the exercises of lecture 13."""

from __future__ import annotations

import difflib
import inspect
from itertools import groupby

import numpy as np


def _runs(flags):
    return [(flag, len(list(run))) for flag, run in groupby(flags)]


def _blocks(stays=lambda flag, size, least: flag and size >= least, joined=True, dropped=False):
    def blocks(supported, least):
        runs = [(stays(flag, size, least), size) for flag, size in _runs(supported) if not (dropped and flag and size < least)]
        if joined:
            runs = _runs([flag for flag, size in runs for _ in range(size)])
        return [("TensorRT" if flag else "PyTorch", size) for flag, size in runs]

    return blocks


def _compiled(places=(0, 1, 2), result=None, shape=False, bare=False, **keywords):
    def compile_whole(torch_tensorrt, module, *shapes):
        smallest, best, largest = (shapes[place] for place in places)
        image = torch_tensorrt.Input(min_shape=smallest, opt_shape=best, max_shape=largest)
        if shape:
            image = torch_tensorrt.Input(shapes[1])
        given = {"ir": "dynamo", "require_full_compilation": True, "arg_inputs": [shapes[1]] if bare else [image], **keywords}
        if given["arg_inputs"] is None:
            given["arg_inputs"] = image
        compiled = torch_tensorrt.compile(module, **{name: value for name, value in given.items() if value is not False})
        return result or compiled

    return compile_whole


def _wrong(error=None, limit=None, nan=True):
    def wrong_outputs(exact, eager, engine, factor):
        found = []
        for name in exact:
            off = error(engine[name], eager[name]) if error else np.abs(engine[name] - exact[name]).max()
            bound = limit(exact[name]) if limit else factor * np.abs(eager[name] - exact[name]).max()
            if off > bound or (nan and np.isnan(off)):
                found.append(name)
        return found

    return wrong_outputs


def _between(engine, eager):
    return np.abs(engine - eager).max()


def _strictly(exact, eager, engine, factor):
    return [
        name
        for name in exact
        if not np.abs(engine[name] - exact[name]).max() < factor * np.abs(eager[name] - exact[name]).max()
    ]


def _unread(skip=lambda parameter: parameter.kind == parameter.VAR_KEYWORD, suggest=None, every=False, only_close=False):
    def unread_keywords(function, keywords):
        read = [name for name, parameter in inspect.signature(function).parameters.items() if not skip(parameter)]
        found = {name: difflib.get_close_matches(name, read, 1) for name in keywords if every or name not in read}
        if only_close:
            found = {name: matches for name, matches in found.items() if matches}
        return {name: (suggest(matches) if suggest else (*matches, "")[0]) for name, matches in found.items()}

    return unread_keywords


MISTAKES = {
    "13.1": {
        "no minimum": _blocks(stays=lambda flag, size, least: flag),
        "not joined": _blocks(joined=False),
        "dropped": _blocks(dropped=True),
        "more than the minimum": _blocks(stays=lambda flag, size, least: flag and size > least),
        "always 5": _blocks(stays=lambda flag, size, least: flag and size >= 5),
    },
    "13.2": {
        "the default frontend": _compiled(ir=False),
        "not a list": _compiled(arg_inputs=None),
        "a shape": _compiled(bare=True),
        "one shape": _compiled(shape=True),
        "wrong places": _compiled(places=(0, 2, 1)),
        "not whole": _compiled(require_full_compilation=False),
        "precisions": _compiled(enabled_precisions={"half"}),
        "the module": _compiled(result="the module"),
    },
    "13.3": {
        "against eager": _wrong(error=_between),
        "NaN": _wrong(nan=False),
        "both": _wrong(error=_between, nan=False),
        "fixed": _wrong(limit=lambda right: 1e-3),
        "relative": _wrong(limit=lambda right: 1e-2 * np.abs(right).max()),
        "strictly": _strictly,
    },
    "13.4": {
        "every keyword": _unread(every=True),
        "only close ones": _unread(only_close=True),
        "no suggestion": _unread(suggest=lambda matches: ""),
        "lists": _unread(suggest=lambda matches: matches),
        "the catch-all is read": _unread(skip=lambda parameter: False),
        "the name kwargs": _unread(skip=lambda parameter: parameter.name == "kwargs"),
        "accepted": lambda function, keywords: {},
    },
}
