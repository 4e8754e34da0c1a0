"""ONNX and a recipe to a plan, for TensorRT 8.6, 10 and 11 and for TensorRT for RTX: one implementation over the imported module.

The builder reports failure with return values (False, -1, None) and log lines, and some failures end the process. Call it in a
worker.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib._util.host_load import others_share
from course_lib._util.plain_text import reason
from course_lib.engines.backends.tensorrt import timing_cache
from course_lib.engines.backends.tensorrt.config import DEFAULT_TARGET, configure, network_flags
from course_lib.engines.backends.tensorrt.layer_sources import parse_build_log, parse_inspector
from course_lib.engines.backends.tensorrt.log import keep_log
from course_lib.engines.backends.tensorrt.progress import monitor
from course_lib.engines.cuda import driver
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Plan
from course_lib.engines.progress import Report
from course_lib.errors import ZERO_POINT, BuildError

# With 16 busy loops on 16 cores an engine took up to 1.25 times as long as one that was built alone, with 8 no longer (on an H100).
_BUSY = 0.6
# A name with these parts could be read as a row of the layer table, and a layer table decides grades.
_FORGED_NAME = re.compile(r"[\[\]{},]|Datatype|LayerType")
_BUILDERS_OWN_NAME = re.compile(r"\(Unnamed Layer\* \d+\) \[[\w ]+\](_output(_\d+)?)?")

Advice = tuple[tuple[str, str], ...]  # patterns of messages, and what to do

_ADVICE: Advice = (  # what the compiler's messages mean, and what to do
    # "Error Code 2: OutOfMemory" from the buffer that tactics are timed in; a small workspace is named as such
    (r"OutOfMemory|out of memory", "the GPU ran out of memory: lower the profile's `max` or `workspace_mib`, or free the GPU"),
    (r"workspace", "the workspace is too small for any tactic of this network: raise `workspace_mib` in the recipe"),
    (r"Could not find any implementation", "no tactic implements a part of this network here: raise `workspace_mib` or rewrite it"),
    (r"must have same input types|strongly typed", "the graph mixes number types: cast both inputs of the node to one type"),
)  # fmt: skip

_PARSER_ADVICE: Advice = (  # what to do about the parser's reasons; the last one fits all others
    ("Failed to open file", "copy this file there, or save the model with its weights inside"),
    ("zero[ -_]?point", "quantize symmetrically, with zero points of 0"),
    ("constant|initializer", "store this input in the file as a constant"),
    ("more? than 1 outputs|mode than 1 outputs", "remove the outputs of this node that nothing reads"),
    ("data? type|date type", "cast it to float32 or int32"),
    ("", "change this node in the ONNX file"),
)


def compile_plan(
    trt: Any,
    backend: str,
    model: Path,
    recipe: Mapping[str, Any],
    operators: Mapping[str, str],
    report: Report | None = None,
) -> Plan:
    """Build a plan with the TensorRT module `trt`.

    Args:
        model: the ONNX file.
        recipe: plain JSON values of a `Recipe`.
        operators: operator type by ONNX node name, for the layer table.
        report: called with the progress of the build, if this version reports it.

    Raises:
        BuildError: the parser, a profile, the recipe or the compiler rejects the build. One line says what to change.
        PrecisionError: the layers do not have the recipe's precision.
    """
    log = keep_log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(network_flags(trt))
    _parse(trt, network, log, model, f"{backend} {trt.__version__}")
    _reject_forged_names(network)
    config, targets = configure(trt, builder, network, recipe, backend)

    timing_file = timing_cache.file_for(trt, backend, version_compatible="version_compatible" in recipe["flags"])
    timings = timing_cache.use(config, timing_file) if timing_file else None

    watch = monitor(trt, report) if report else None  # the config keeps no reference
    if watch is not None:
        config.progress_monitor = watch  # not in TensorRT 8.6
    started, share_of_others = time.perf_counter(), others_share()
    serialized = builder.build_serialized_network(network, config)
    seconds, busy = time.perf_counter() - started, share_of_others()
    if serialized is None:
        raise _rejection(log.errors)
    if timing_file and timings is not None:
        timing_cache.keep(config, timings, timing_file)
    data = bytes(serialized)
    layers = _layers(trt, log, data, operators)
    if any(kernel.dtypes for kernel in layers.kernels):  # TensorRT 8.6 shows none inside a transformer with dynamic shapes
        layers.check_precision(recipe["precision"])
    return Plan(
        backend=backend,
        version=trt.__version__,
        data=data,
        onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
        recipe=dict(recipe),
        targets=targets,
        layers=layers,
        build_seconds=seconds,
        notes=(*_notes(recipe, targets, layers), *_timing_notes(trt, busy, timing_file)),
    )


def _parse(trt: Any, network: Any, log: Any, model: Path, version: str) -> None:
    parser = trt.OnnxParser(network, log)
    if parser.parse_from_file(str(model)):
        return
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    if not errors:
        raise _rejection(log.errors)
    if any("DESERIALIZE" in str(error.code()) for error in errors):
        raise BuildError("the file is not an ONNX model, or only a part of one")
    error = errors[0]  # later ones may be its consequences
    operator, node = _ask(error, "node_operator"), _ask(error, "node_name") or f"unnamed_{error.node()}"
    where = f"operator {operator[:60]!r} of node {node[:60]!r}" if operator else "the model"
    if error.func() == "importInput":
        where = f"input {error.file()[:60]!r}"  # the parser puts the name of the input there
    why = parser_reason(error.desc())
    if not why or "Plugin not found" in why:
        raise BuildError(f"{where} is not supported by {version}: rewrite it with other operators or write a plugin for it")
    missing = next((line for line in log.errors if "Failed to open file" in line), "")
    raise _rejection([_MISSING_WEIGHTS.sub(r"\1", missing) or why], f"{where} was rejected by {version}: ", _PARSER_ADVICE)


_MISSING_WEIGHTS = re.compile(r".*(Failed to open file: .*)")


def parser_reason(description: str) -> str:
    """The parser's own reason without the C++ condition that it failed, "" if there is only the condition "false"."""
    text = _message(description).partition(" Please set k")[0]  # a flag of the parser for DLA, which the course does not use
    asserted = re.search(r"Assertion failed: (.*)", text)
    condition = asserted[1] if asserted else text
    if quoted := re.fullmatch(r'.*&& "(.+)"', condition):
        return quoted[1]
    if asserted:
        return condition.partition(": ")[2] or condition
    return "" if condition == "false" else condition


def _ask(error: Any, method: str) -> str:
    """`node_name` and `node_operator` came with TensorRT 10."""
    return str(getattr(error, method)()) if hasattr(error, method) else ""


def _reject_forged_names(network: Any) -> None:
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    tensors += [layer.get_output(i) for layer in layers for i in range(layer.num_outputs)]
    for name in (named.name for named in (*layers, *tensors) if named is not None):
        harmless = name.isprintable() and not _FORGED_NAME.search(name)
        if not harmless and not _BUILDERS_OWN_NAME.fullmatch(name):
            raise BuildError(
                f"the name {name[:60]!r} in the graph holds brackets, braces, commas or control characters: rename it"
            )


def _layers(trt: Any, log: Any, data: bytes, operators: Mapping[str, str]) -> LayerTable:
    if log.layers:  # TensorRT for RTX prints them while it builds, so no GPU is needed
        table = parse_build_log(log.layers, operators)
        if not table.kernels:
            raise BuildError("the compiler lists no kernel for this engine, so nothing can be proved: does the graph compute?")
        return table
    if driver.capability() is None:
        return LayerTable((), operators)
    runtime = trt.Runtime(log)
    runtime.engine_host_code_allowed = True  # a version-compatible plan carries a runtime; this one was built a moment ago
    engine = runtime.deserialize_cuda_engine(data)
    if engine is None:
        raise _rejection(log.errors, "the plan that was just built cannot be loaded: ")
    inspector = engine.create_engine_inspector()
    return parse_inspector(inspector.get_engine_information(trt.LayerInformationFormat.JSON), operators)


def _notes(recipe: Mapping[str, Any], targets: tuple[str, ...], layers: LayerTable) -> list[str]:
    notes = []
    here = driver.capability()
    if not recipe["targets"] and targets == (DEFAULT_TARGET,) and here != DEFAULT_TARGET:
        why = f"this version does not support the GPU here ({here})" if here else "no GPU here"
        notes.append(f"{why}, so the plan was compiled for {targets[0]}; set `targets` in the recipe for another one")
    if not any(kernel.dtypes for kernel in layers.kernels):
        notes.append("this version does not report the datatypes of these layers, so the precision is not proved")
    return notes + layers.precision_notes(recipe["precision"])


def _timing_notes(trt: Any, busy: float | None, timing_file: Path | None) -> list[str]:
    """What may have disturbed the times of tactics: the builder takes them by calls that the host launches."""
    if driver.capability() is None or trt.__name__ == "tensorrt_rtx" or busy is None or busy < _BUSY:
        return []
    remedy = (
        "the timing cache keeps what it already knows" if timing_file else "build again on a quiet host, or from a timing cache"
    )
    return [
        f"other programs used {busy:.0%} of the processors while tactics were timed: this engine may stay slower than one that is "
        f"built alone; {remedy}"
    ]


def _rejection(messages: list[str], what: str = "", advice: Advice = ()) -> BuildError:
    """The compiler's complaint as an error of one line, which begins with `what`; `advice` goes behind its reason."""
    code = ZERO_POINT if re.search("zero[ _]?point", " ".join(messages), re.IGNORECASE) else ""
    return BuildError(what + _advise(messages, advice), code=code)


def _advise(messages: list[str], after: Advice = ()) -> str:
    """The builder's message without source locations, and with advice."""
    text = " ".join(" ".join(messages).split())
    for pattern, advice in _ADVICE:
        if re.search(pattern, text, re.IGNORECASE):
            return advice
    own = [m for m in messages if "catchCudaError" not in m] or messages or ["the compiler gave no reason"]
    why = reason(_message(own[0]))
    remedy = next((advice for pattern, advice in after if re.search(pattern, why, re.IGNORECASE)), "")
    return f"{why.rstrip('.!')}: {remedy}" if remedy else why


def _message(text: str) -> str:
    """The sentence in a message of TensorRT, without the names of its functions, error codes, and places in its source."""
    text = re.sub(r"\[[\w.]+::catchCudaError.*|^Invalid Node - \S+", "", text.strip(), flags=re.MULTILINE)
    text = " ".join(text.split())
    inner = re.search(r"Error Code \d+: [\w ]+ \((.+)\)", text)
    return re.sub(r"\s*\(?In \w+ at /\S+?\)?\s*$", "", inner[1] if inner else text).strip()
