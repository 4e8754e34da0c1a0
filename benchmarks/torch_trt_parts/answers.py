"""Whether answers are right: attention, batch sizes, INT8, CUDA graphs."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.sections.observing import Rows, Seen, observed
from benchmarks.torch_trt_parts.compiling import compiled, counted, quickly
from benchmarks.torch_trt_parts.networks import (
    Attention,
    lecture_classifier,
    made,
    normal,
    pictures,
    relative_error,
    tensor_of,
)

STYLES = ("fused qkv, unbind", "fused qkv, chunk", "three projections", "fused qkv, written out")
PARTS = ("query", "key", "value")


def attention(rows: Rows) -> None:
    """The same attention in four spellings: error against eager, and against eager with its operands in every other order."""
    x = normal(4, 64, 256)
    for style in STYLES:
        model = made(partial(Attention, style))
        orders = {", ".join(PARTS[i] for i in order): model(x, order=order) for order in itertools.permutations(range(3))}
        for kernels in ("all kernels", "math kernel only"):
            every = kernels == "all kernels"
            with torch.backends.cuda.sdp_kernel(enable_flash=every, enable_math=True, enable_mem_efficient=every):
                seen = observed(quickly, model, [x], disable_tf32=True)
            facts: dict[str, Any] = seen.facts()
            if seen.value is not None:
                answer = tensor_of(seen.value(x))
                facts.update(counted(seen.value), errors={name: relative_error(answer, want) for name, want in orders.items()})
            rows.add(f"{style}; {kernels}", **facts)
    encoder(rows)


def encoder(rows: Rows) -> None:
    """The course's encoder, whose attention is written out."""
    from course_lib.models import encoder as course_encoder

    model, x = made(course_encoder), normal(2, 16, 32)
    seen = observed(quickly, model, [x], disable_tf32=True)
    facts: dict[str, Any] = seen.facts()
    if seen.value is not None:
        facts.update(counted(seen.value), relative_error=relative_error(seen.value(x), model(x)))
    rows.add("the course's encoder", **facts)


def batches(rows: Rows) -> None:
    """A range of batch sizes, and batches outside it."""
    import torch_tensorrt

    model = lecture_classifier()
    bounds = {"min_shape": (1, 1, 32, 32), "opt_shape": (8, 1, 32, 32), "max_shape": (32, 1, 32, 32), "dtype": torch.float32}
    nameless = observed(lambda: quickly(model, [torch_tensorrt.Input(**bounds)]))
    rows.add("a range without a name", **nameless.facts())
    fixed = observed(quickly, model, [pictures(8)])
    forms: dict[str, tuple[Seen, tuple[int, ...]]] = {"fixed at 8": (fixed, (8, 4, 9))}
    ranges: dict[str, dict[str, Any]] = {
        "fx, 1 to 32": {},
        "Python runtime, 1 to 32": {"use_python_runtime": True},
        "exported program, 1 to 32": {"output_format": "exported_program"},
        "TorchScript, 1 to 32": {"output_format": "torchscript"},
    }
    for case, options in ranges.items():
        spec = torch_tensorrt.Input(**bounds, name="image")
        forms[case] = (observed(quickly, model, [spec], **options), (1, 2, 8, 32, 33, 64))
    for case, (seen, sizes) in forms.items():
        rows.add(f"{case}: compile", **seen.facts())
        for size in sizes if seen.value is not None else ():
            x = pictures(size)
            call = observed(_copied, seen.value, x)
            facts: dict[str, Any] = call.facts()
            if call.value is not None:
                answered = min(len(call.value), size)
                facts.update(
                    rows_given=size,
                    rows_returned=len(call.value),
                    relative_error=relative_error(call.value[:answered], model(x)[:answered]),
                )
            rows.add(f"{case}: batch {size}", **facts)
    from course_lib.models import encoder as course_encoder

    spec = torch_tensorrt.Input(
        min_shape=(1, 16, 32), opt_shape=(2, 16, 32), max_shape=(8, 16, 32), dtype=torch.float32, name="tokens"
    )
    rows.add("the course's encoder, 1 to 8", **observed(lambda: quickly(made(course_encoder), [spec])).facts())


def _copied(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Its answer in memory that the next call does not overwrite."""
    return tensor_of(module(x)).clone()


def int8(rows: Rows, folder: Path) -> None:
    """INT8 with a calibrator, which only the TorchScript front end reads; the bytes of an engine."""
    import tensorrt
    import torch_tensorrt

    model, x = lecture_classifier(), pictures(8)
    want, scripted = model(x), torch.jit.trace(lecture_classifier(), x)
    spec = [torch_tensorrt.Input((8, 1, 32, 32))]
    for case, precisions in (("fp32", {torch.float32}), ("fp16", {torch.float32, torch.half})):
        settings = {"min_block_size": 1, "enabled_precisions": precisions}
        seen = observed(torch_tensorrt.compile, scripted, ir="ts", inputs=spec, **settings)
        facts: dict[str, Any] = seen.facts()
        if seen.value is not None:
            facts["relative_error"] = relative_error(seen.value(x), want)
        rows.add(f'ir="ts", {case}', **facts)
    cache = folder / "calibration.cache"
    data = torch.utils.data.TensorDataset(pictures(64, seed=3).cpu(), torch.zeros(64))

    def calibrated() -> Any:
        calibrator = torch_tensorrt.ptq.DataLoaderCalibrator(
            torch.utils.data.DataLoader(data, batch_size=8),
            cache_file=str(cache),
            use_cache=False,
            algo_type=torch_tensorrt.ptq.CalibrationAlgo.ENTROPY_CALIBRATION_2,
            device=torch.device("cuda:0"),
        )
        return torch_tensorrt.compile(
            scripted,
            ir="ts",
            inputs=spec,
            min_block_size=1,
            enabled_precisions={torch.float32, torch.int8},
            calibrator=calibrator,
        )

    def converted(module: Any, ir: str, how: dict[str, Any]) -> Any:
        return torch_tensorrt.convert_method_to_trt_engine(module, "forward", ir=ir, **how)

    seen = observed(calibrated)
    facts = seen.facts()
    if seen.value is not None:
        answer = tensor_of(seen.value(x))
        facts["relative_error"] = relative_error(answer, want)
        facts["same_class"] = float((answer.argmax(1) == want.argmax(1)).float().mean())
    if cache.exists():
        facts["cache_starts"] = cache.read_text(errors="replace")[:400]
    rows.add('ir="ts", int8, DataLoaderCalibrator', **facts)
    for case, module, how in (("ts", scripted, {"inputs": spec}), ("dynamo", model, {"inputs": [x]})):
        seen = observed(converted, module, case, how)
        facts = seen.facts()
        if seen.value is not None:
            engine = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR)).deserialize_cuda_engine(seen.value)
            facts.update(bytes=len(seen.value), layers=engine.num_layers, type=type(seen.value).__name__)
            facts["tensors"] = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        rows.add(f'convert_method_to_trt_engine, ir="{case}"', **facts)


def cuda_graph(rows: Rows) -> None:
    """A compiled module captured in a CUDA graph: its answers for new inputs in the same memory."""
    model, x = lecture_classifier(), pictures(8)
    module = compiled(model, [x], min_block_size=1)
    eager = observed(_copied, module, x)
    rows.add("called once", **eager.facts(), relative_error=relative_error(eager.value, model(x)))
    held = x.clone()
    captured = observed(capture, lambda: tensor_of(module(held)))
    facts: dict[str, Any] = captured.facts()
    if captured.value is not None:
        replay, output = captured.value
        for seed in (7, 8):
            held.copy_(pictures(8, seed=seed))
            replay()
            torch.cuda.synchronize()
            facts[f"relative_error, new input {seed}"] = relative_error(output, model(held))
    rows.add("captured, replayed with new inputs", **facts)


def capture(call: Any) -> tuple[Any, torch.Tensor]:
    """A CUDA graph of `call`: its replay, and the tensor that holds its answer."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()
    return graph.replay, output
