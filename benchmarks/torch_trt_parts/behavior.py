"""What `compile` returns, how it partitions, and which arguments it reads, ignores or rejects."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.sections.observing import Rows, observed
from benchmarks.torch_trt_parts.compiling import blocks, compiled, counted, layers_of, quickly
from benchmarks.torch_trt_parts.networks import (
    Centered,
    Island,
    lecture_classifier,
    made,
    normal,
    pictures,
    relative_error,
    tensor_of,
)

RELU = "torch.ops.aten.relu.default"


def formats(rows: Rows) -> None:
    """What comes back for each output format, and the error in each precision."""
    import torch_tensorrt

    model, x = lecture_classifier(), pictures(8)
    want = model(x)
    ways: dict[str, dict[str, Any]] = {
        "default": {},
        'output_format="fx"': {"output_format": "fx"},
        'output_format="torchscript"': {"output_format": "torchscript"},
        "use_python_runtime=True": {"output_format": "fx", "use_python_runtime": True},
    }
    for case, how in ways.items():
        settings = {"min_block_size": 1, "optimization_level": 0, **how}
        seen = observed(torch_tensorrt.compile, model, ir="dynamo", inputs=[x], **settings)
        facts: dict[str, Any] = {**seen.facts(), "type": type(seen.value).__name__}
        if seen.value is not None:
            call = observed(seen.value, x)
            facts.update(call_failed=call.failed, returns=type(call.value).__name__)
            if call.value is not None:
                facts["relative_error"] = relative_error(call.value, want)
            if isinstance(seen.value, torch.fx.GraphModule):
                facts["blocks"] = blocks(seen.value)
        rows.add(case, **facts)
    half = lecture_classifier().half()
    for case, module, given, options in (
        ("fp32", model, x, {}),
        ("fp32, disable_tf32=True", model, x, {"disable_tf32": True}),
        ("fp32 module, enabled_precisions={torch.half}", model, x, {"enabled_precisions": {torch.half}}),
        ("module.half(), enabled_precisions={torch.half}", half, x.half(), {"enabled_precisions": {torch.half}}),
        ("module.half() alone", half, x.half(), {}),
    ):
        seen = observed(quickly, module, [given], **options)
        facts = seen.facts()
        if seen.value is not None:
            answer = tensor_of(seen.value(given))
            facts.update(relative_error=relative_error(answer, want), output_type=str(answer.dtype))
        rows.add(case, **facts)


def partition(rows: Rows) -> None:
    """Blocks with one operator without a converter, for each option that moves graph breaks; the report of a debug run."""
    island, x = made(Island), normal(4, 3, 16, 16)
    classifier, images = lecture_classifier(), pictures(8)
    relus = {"torch_executed_ops": {RELU}}
    for case, module, given, options in (
        ("island", island, x, {"min_block_size": 5}),
        ("island, min_block_size=1", island, x, {"min_block_size": 1}),
        ("island, min_block_size=8", island, x, {"min_block_size": 8}),
        ("island, min_block_size=100", island, x, {"min_block_size": 100}),
        ("island, use_fast_partitioner=False", island, x, {"use_fast_partitioner": False}),
        ("island, require_full_compilation=True", island, x, {"require_full_compilation": True}),
        ("island, torch_executed_ops relu", island, x, {"min_block_size": 5, **relus}),
        ("island, torch_executed_ops relu, min_block_size=1", island, x, {"min_block_size": 1, **relus}),
        ("classifier", classifier, images, {"min_block_size": 5}),
        ("classifier with a median", Centered(classifier), images, {"min_block_size": 5}),
        ("classifier with a median, min_block_size=20", Centered(classifier), images, {"min_block_size": 20}),
        ("classifier, torch_executed_ops relu", classifier, images, {"min_block_size": 5, **relus}),
        ("classifier, torch_executed_ops relu, min_block_size=1", classifier, images, {"min_block_size": 1, **relus}),
        ("classifier, torch_executed_ops aten::relu", classifier, images, {"torch_executed_ops": {"aten::relu"}}),
    ):
        seen = observed(quickly, module, [given], **options)
        facts: dict[str, Any] = seen.facts()
        if seen.value is not None:
            facts.update(counted(seen.value), relative_error=relative_error(seen.value(given), module(given)))
        rows.add(case, **facts)


def report(rows: Rows) -> None:
    """What ``debug=True`` prints. In a process that has built nothing yet, since TensorRT keeps its first logger."""
    _reported(rows, "island", made(Island), normal(4, 3, 16, 16))
    _reported(rows, "classifier with a median", Centered(lecture_classifier()), pictures(8))


def _reported(rows: Rows, name: str, module: torch.nn.Module, given: torch.Tensor) -> None:
    """The lines that say what goes where, and the layers that the engines then name."""
    seen = observed(quickly, module, [given], debug=True, min_block_size=5)
    told = ("Detected support", "Number of TensorRT", "Supported Nodes", "Unsupported or Excluded", "Operator Count")
    facts: dict[str, Any] = {
        **seen.facts(),
        "report": [line for line in seen.lines(*told) if not line.startswith("DEBUG:")][:80],
        "lines": len(seen.lines("")),
    }
    if seen.value is not None:
        for part_name, part in seen.value.named_children():
            described = observed(_layer_info, part)
            if described.value:
                text = str(described.value)
                facts[part_name] = observed(layers_of, text).value or text[:3000]
    rows.add(f"debug=True, {name}", **facts)


def _layer_info(part: Any) -> Any:
    """The layers of a part's engine; it raises for a part that is not an engine."""
    return part.engine.get_engine_layer_info()


def arguments(rows: Rows) -> None:
    """One argument at a time: read, ignored without a word, ignored with a warning, or rejected.

    ``settings_changed`` are Torch-TensorRT's own settings that differ from those of the call without the argument.
    """
    island, x = made(Island), normal(4, 3, 16, 16)
    half, int8 = torch.half, torch.int8
    plain = observed(quickly, island, [x], min_block_size=5)
    base = plain.settings or {}
    rows.add("nothing", **plain.facts(), **(counted(plain.value) if plain.value is not None else {}), settings=base)
    for name, value in (
        ("min_blok_size", 1),
        ("no_such_argument", 3),
        ("optimisation_level", 5),
        ("calibrator", "mine"),
        ("dryrun", True),
        ("truncate_double", True),
        ("immutable_weights", False),
        ("make_refittable", True),
        ("cache_built_engines", True),
        ("engine_cache_dir", "cache"),
        ("timing_cache_path", "timings.bin"),
        ("hardware_compatible", True),
        ("use_explicit_typing", True),
        ("enable_autocast", True),
        ("arg_inputs", "these"),
        ("require_full_compilation", True),
        ("pass_through_build_failures", True),
        ("torch_executed_modules", ["after"]),
        ("enabled_precisions", {torch.float32, int8}),
        ("enabled_precisions", {int8}),
        ("enabled_precisions", {torch.bfloat16}),
        ("enabled_precisions", {half}),
        ("disable_tf32", True),
        ("refit", True),
        ("sparse_weights", True),
        ("version_compatible", True),
        ("truncate_long_and_double", True),
        ("workspace_size", 1 << 20),
        ("optimization_level", 1),
        ("output_format", "no_such_format"),
    ):
        seen = observed(quickly, island, [x], **{"min_block_size": 5, name: value})
        facts: dict[str, Any] = seen.facts()
        facts["accepted"] = seen.failed is None
        facts["settings_changed"] = sorted(key for key, text in (seen.settings or base).items() if base.get(key) != text)
        if isinstance(seen.value, torch.fx.GraphModule):
            facts["engines"] = counted(seen.value)["engines"]
        text = "{" + ", ".join(sorted(map(str, value))) + "}" if isinstance(value, set) else repr(value)
        rows.add(f"{name}={text}", **facts)


def layers(rows: Rows) -> None:
    """The layers of an engine: its inspector through the Python runtime, with and without ``debug``."""
    import tensorrt

    for case, module, given in (
        ("classifier", lecture_classifier(), pictures(8)),
        ("classifier in half precision", lecture_classifier().half(), pictures(8).half()),
    ):
        for debug in (False, True):
            options = {"use_python_runtime": True, "debug": debug, "enabled_precisions": {given.dtype}}
            seen = observed(compiled, module, [given], min_block_size=1, **options)
            facts: dict[str, Any] = seen.facts()
            engines = (
                [part.engine for part in seen.value.children() if hasattr(part, "engine")] if seen.value is not None else []
            )
            for engine in engines[:1]:
                inspector = engine.create_engine_inspector()
                text = inspector.get_engine_information(tensorrt.LayerInformationFormat.JSON)
                facts.update(observed(layers_of, text).value or {"text": text[:3000]}, count=engine.num_layers)
            rows.add(f"{case}, debug={debug}", **facts)
