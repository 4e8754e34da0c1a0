"""A Triton configuration judged by its meaning: does it serve the scorer, in batches, on the GPU, through a rollout?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError, ExaminerFault
from course_lib.labs.framework.isolation import run_isolated
from course_lib.labs.lab12_serving.network import FEATURES, INPUT, MOST_ROWS, OUTPUT, SCORES

NAME = "scorer"
LONGEST_DELAY_US = 5000
INSTANCES, LOADED_INSTANCES = 2, 16  # as required; with more than the latter, the model may not load
MOST_WARM_UPS = 100  # runs of all warm-up requests together
MOST_VERSIONS = 16  # that a server loads, each with its instances
# Fields of each message that the scorer needs or that change nothing about its answers, whatever their values. Any other one that is
# set can keep Triton from loading the plan or from answering, such as another file, a queue that rejects, or outputs of shape tensors.
# Triton and its backends give keys of `parameters` a meaning: TRITON_BATCH_STRATEGY_PATH names a library that Triton loads, see
# "Custom Batching" in https://github.com/triton-inference-server/server/blob/main/docs/user_guide/batcher.md. The scorer needs none.
_KNOWN = {
    "": {
        *("name", "platform", "backend", "version_policy", "max_batch_size", "input", "output", "dynamic_batching"),
        *("instance_group", "optimization", "model_warmup", "response_cache", "metric_tags"),
    },
    "input": {"name", "data_type", "dims", "reshape"},
    "output": {"name", "data_type", "dims", "reshape"},
    "dynamic_batching": {"preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering"},
    "instance_group": {"name", "kind", "count", "gpus"},
    "optimization": {"cuda", "priority", "input_pinned_memory", "output_pinned_memory", "eager_batching"},
    "optimization: cuda": {"graphs", "busy_wait_events", "output_copy_stream"},
}
_UNSET: tuple[Any, ...] = ("", "0", 0, False, [], {})
_USUAL = {
    "default_model_filename": ("", "model.plan"),
    "format": ("FORMAT_NONE",),
    "priority": ("PRIORITY_DEFAULT",),
    "timeout_action": ("REJECT",),
    # The first optimization profile, which Triton selects by default. A plan of the scorer has one, and any other number is an error,
    # see `ModelInstanceGroup.profile` in https://github.com/triton-inference-server/common/blob/main/protobuf/model_config.proto.
    "profile": (["0"],),
}
# Messages that change nothing if all of their fields have their defaults. For others, presence alone has a meaning: that of
# `sequence_batching` selects another scheduler.
_PARTS = {
    *("default_queue_policy", "graph", "execution_accelerators"),
    *("model_operations", "model_repository_agents", "model_transaction_policy"),
}
_TIME_LIMIT_S = 30.0
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Mistake:
    """One mistake in the configuration.

    Attributes:
        grave: the model would not load or not answer. Otherwise Triton serves it, but not as required.
    """

    message: str
    hint: str
    grave: bool


def read(text: bytes, launcher: Launcher | None) -> Config:
    """A ``config.pbtxt`` parsed against NVIDIA's schema, in its own process.

    Raises:
        EngineError: it does not parse; the text is the parser's complaint.
        ExaminerFault: the schema is not installed.
    """
    command = [sys.executable, "-I", str(Path(__file__).resolve().parents[1] / "sandboxed" / "triton_schema.py")]
    answer = json.loads(run_isolated(command, text, launcher=launcher, time_limit_s=_TIME_LIMIT_S, max_bytes=1 << 22))
    if "missing" in answer:
        raise ExaminerFault(answer["missing"])
    if "error" in answer:
        raise EngineError(f"config.pbtxt does not parse: {answer['error']}")
    return dict(answer["config"])


def mistakes(config: Config) -> list[Mistake]:
    """Everything that prevents the configuration from serving the scorer as required, the most serious mistake first."""
    found = [
        *_unasked(config),
        *_identity(config),
        *_tensors(config),
        *_batching(config),
        *_instances(config),
        *_warmup(config),
        *_versions(config),
    ]
    return sorted(found, key=lambda mistake: not mistake.grave)


def _unasked(config: Config) -> Iterator[Mistake]:
    parts = [("", config), *((side, row) for side in ("input", "output", "instance_group") for row in config[side])]
    optimization = config.get("optimization", {})
    parts += [("dynamic_batching", config.get("dynamic_batching", {})), ("optimization", optimization)]
    parts += [("optimization: cuda", optimization.get("cuda", {}))]
    for part, fields in parts:
        for name, value in fields.items():
            if name not in _KNOWN[part] and not _default(name, value):
                where = f"{part}: {name}" if part else name
                hint = "The scorer is one file, model.plan, with plain tensors, and every request is answered. Leave the field out."
                yield Mistake(f"{where} is set, with which Triton may not load the plan or not answer", hint, True)


def _default(name: str, value: Any) -> bool:
    if name in _PARTS:
        return all(_default(*field) for field in value.items())
    return value in _UNSET or value in _USUAL.get(name, ())


def _identity(config: Config) -> Iterator[Mistake]:
    if config["name"] not in ("", NAME):
        message = f'name is "{config["name"][:40]}", the model\'s folder is "{NAME}"'
        yield Mistake(message, "Triton rejects a model whose name is not that of its folder; it may be left out.", True)
    given = (config["platform"], config["backend"])
    if given not in (("tensorrt_plan", ""), ("", "tensorrt"), ("tensorrt_plan", "tensorrt")):
        message = (
            f'platform is "{given[0][:40]}" and backend "{given[1][:40]}", expected tensorrt_plan, or the backend tensorrt'
        )
        yield Mistake(message, "Which kind of file is model.plan? `onnxruntime_onnx` would be model.onnx.", True)


def _tensors(config: Config) -> Iterator[Mistake]:
    for side, name, size in (("input", INPUT, FEATURES), ("output", OUTPUT, SCORES)):
        rows = config[side]
        if [row["name"] for row in rows] != [name]:
            found = ", ".join(row["name"][:40] for row in rows) or "none"
            yield Mistake(f"{side}s are {found}, expected {name}", "The names are those of the engine's I/O tensors.", True)
            continue
        dims, kind = [int(n) for n in rows[0]["dims"]], rows[0]["data_type"]
        if kind != "TYPE_FP32":
            hint = "The engine's tensors are float32: Triton has its own name for this type."
            yield Mistake(f"data_type of {name} is {kind}, expected TYPE_FP32", hint, True)
        if dims != [size] or "reshape" in rows[0]:
            hint = "With max_batch_size above 0 Triton puts the batch in front of dims by itself."
            yield Mistake(f"dims of {name} are {dims}, expected [{size}]", hint, True)


def _batching(config: Config) -> Iterator[Mistake]:
    most = int(config["max_batch_size"])
    if most <= 0:
        message = "max_batch_size is 0, which says that the model has no batch dimension"
        yield Mistake(message, "Without a batch dimension Triton cannot batch. Which dimension of the engine is dynamic?", True)
    elif most > MOST_ROWS:
        message = f"max_batch_size is {most}, the engine's profile ends at {MOST_ROWS}"
        yield Mistake(message, "Triton would send batches that the engine rejects.", True)
    elif most < MOST_ROWS:
        message = f"max_batch_size is {most}, the engine's profile allows {MOST_ROWS}"
        yield Mistake(message, "Triton neither forms larger batches nor accepts larger requests.", False)
    batching = config.get("dynamic_batching")
    if batching is None:
        yield Mistake("there is no dynamic_batching", "Triton batches only if the configuration says so.", False)
        return
    preferred = [int(n) for n in batching["preferred_batch_size"]]
    if most > 0 and any(not 1 <= n <= most for n in preferred):
        message = f"preferred_batch_size {preferred} is not within 1 to max_batch_size {most}"
        yield Mistake(message, "Triton rejects a model that prefers batches it cannot have.", True)
    elif preferred and (1 in preferred or max(preferred) < most):
        message = f"preferred_batch_size {preferred} must contain the largest batch and must not contain 1"
        yield Mistake(message, "Triton sends a batch of a preferred size at once: with 1, no request waits for others.", False)
    delay = int(batching["max_queue_delay_microseconds"])
    if not 0 < delay <= LONGEST_DELAY_US:
        message = f"max_queue_delay_microseconds is {delay}, expected 1 to {LONGEST_DELAY_US}"
        yield Mistake(message, "With 0, no request waits for others; the unit is a microsecond.", False)


def _instances(config: Config) -> Iterator[Mistake]:
    groups = config["instance_group"]
    hint = f"KIND_GPU, and a count: each instance is an execution context with its own stream. Asked for: {INSTANCES}."
    if any(group["kind"] not in ("KIND_GPU", "KIND_AUTO") for group in groups):
        yield Mistake("an instance_group is not on the GPU: a TensorRT plan runs nowhere else", hint, True)
    counts = [int(group["count"]) for group in groups]
    if any(count < 0 for count in counts):
        yield Mistake("an instance_group has a negative count", hint, True)
    total = sum(max(1, count) * max(1, len(group["gpus"])) for count, group in zip(counts, groups, strict=True))
    if total > INSTANCES:
        message = f"there are {total} instances in all groups, expected {INSTANCES}: each has its own memory"
        yield Mistake(message, hint, total > LOADED_INSTANCES)
    if any(set(map(int, group["gpus"])) - {0} for group in groups):
        yield Mistake("an instance_group names another GPU than 0, the only one", hint, True)
    if total < INSTANCES:
        yield Mistake("there is one instance only, which is what Triton makes without an instance_group", hint, False)


def _warmup(config: Config) -> Iterator[Mistake]:
    """Triton sends these requests to each instance while it loads the model. One that the engine rejects keeps the model from loading."""
    runs = sum(max(1, int(request.get("count", 0))) for request in config["model_warmup"])  # a count of 0 means one run
    if runs > MOST_WARM_UPS:
        hint = "The model answers only when all warm-up runs are over. How many runs does an engine need?"
        yield Mistake(f"model_warmup has {runs} runs in all requests, expected at most {MOST_WARM_UPS}", hint, True)
    for request in config["model_warmup"]:
        tensors = {name: (one["data_type"], [int(n) for n in one["dims"]]) for name, one in request["inputs"].items()}
        made = all(one.get("zero_data") or one.get("random_data") for one in request["inputs"].values())
        if not (1 <= int(request["batch_size"]) <= MOST_ROWS and made) or tensors != {INPUT: ("TYPE_FP32", [FEATURES])}:
            hint = "A warm-up request is a request: which input, type, dims and batch does the engine accept? Data come from no file."
            yield Mistake(f"model_warmup {request['name'][:40]!r} is not a request for the scorer", hint, True)


def _versions(config: Config) -> Iterator[Mistake]:
    policy = config.get("version_policy", {"latest": {"num_versions": 1}})
    served = {
        "latest": lambda chosen: 2 <= int(chosen["num_versions"]) <= MOST_VERSIONS,
        "all": lambda chosen: True,
        "specific": lambda chosen: {1, 2} <= set(map(int, chosen["versions"])) and len(chosen["versions"]) <= MOST_VERSIONS,
    }
    if not any(name in policy and served[name](policy[name]) for name in served):
        message = f"version_policy keeps another number of versions than 2 to {MOST_VERSIONS}, and a rollout needs the one before as well"
        yield Mistake(
            message, "The default is `latest { num_versions: 1 }`. What has to be there to roll back in a second?", False
        )
