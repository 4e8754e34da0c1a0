"""RoPE on a real GPU: numbers, bounds, speed, and the C++ plugin inside a TensorRT engine.

COURSE_TENSORRT_INCLUDE names folders with TensorRT's headers, ``folder:folder``, for the plugin.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import course_lib
from course_lib.engines import split_target
from course_lib.errors import BackendUnavailable
from course_lib.plugins import RopeLibrary, build_plugin, compilers, cuda_launcher, rope_model, rope_tables
from course_lib.plugins.cpp_plugin import tensorrt_major
from tests.gpu.test_tensorrt import pytestmark, target  # noqa: F401  (the same marks, the same fixture)
from tests.plugins.rope_cases import DTYPES, Case, excess, make_case, random_shapes

SHAPES = [*random_shapes(60, seed=7, largest=4_000_000), (1, 1, 32, 128), (1, 2048, 32, 128), (3, 5, 7, 66), (5, 3, 9, 130)]
LARGE = (8, 4096, 32, 128)
INCLUDES = [Path(name) for name in os.environ.get("COURSE_TENSORRT_INCLUDE", "").split(os.pathsep) if name]
Launch = Callable[..., None]


@pytest.fixture(scope="module")
def launch() -> RopeLibrary:
    try:
        return cuda_launcher()
    except BackendUnavailable as absent:
        pytest.skip(str(absent))


def on_gpu(array: np.ndarray, offset: int = 0) -> torch.Tensor:
    """The bytes of an array; torch aligns to 512."""
    memory = torch.full((array.nbytes + offset,), 0xFF, dtype=torch.uint8, device="cuda")
    memory[offset:] = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8)).cuda()
    return memory[offset:]


def rotate(case: Case, launch: Launch, *, offsets: tuple[int, int, int, int] = (0, 0, 0, 0), **options: Any) -> np.ndarray:
    """Through device memory on torch's current stream; an offset in bytes for x, cos, sin and y."""
    arrays = (case.x, case.cos, case.sin, np.full_like(case.x, np.nan))
    memory = [on_gpu(array, offset) for array, offset in zip(arrays, offsets, strict=True)]
    torch.cuda.synchronize()
    options = options or {"stream": torch.cuda.current_stream().cuda_stream}
    launch(case.x.dtype.name, *(one.data_ptr() for one in memory), case.x.shape, interleaved=case.interleaved, **options)
    torch.cuda.synchronize()
    return memory[3].cpu().numpy().view(case.x.dtype).reshape(case.x.shape)


# ---- numbers


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_shapes_within_one_rounding_of_float64(launch, dtype, interleaved):
    cases = [make_case(shape, dtype, interleaved=interleaved, seed=i, spare=i % 3) for i, shape in enumerate(SHAPES)]
    errors = [excess(rotate(case, launch), case) for case in cases]
    print(
        json.dumps({"dtype": dtype, "interleaved": interleaved, "shapes": len(errors), "worst share of the bound": max(errors)})
    )
    assert len(errors) >= 50 and 0.05 < max(errors) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_that_is_not_aligned_for_vectors(launch, dtype):
    case = make_case((2, 33, 5, 128), dtype, interleaved=False, seed=1)
    for which in range(4):
        offsets = tuple((case.x.itemsize if which in (0, 3) else 4) if i == which else 0 for i in range(4))
        assert excess(rotate(case, launch, offsets=offsets), case) <= 1


def _exact(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64 and how far a float32 computation may be off it."""
    a, b = x.double().chunk(2, dim=-1)
    c, s = (table[: x.shape[-3], None].double() for table in (cos, sin))
    products = torch.cat(((a * c).abs() + (b * s).abs(), (b * c).abs() + (a * s).abs()), dim=-1)
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1), 2.0**-23 * products


def _is_right(y: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> bool:
    exact, allowed = _exact(x, cos, sin)
    if y.dtype != torch.float32:
        allowed = allowed + torch.finfo(y.dtype).eps / 2 * (exact.abs() + allowed) + 2.0**-25
    return bool(((y.double() - exact).abs() <= allowed * (1 + 1e-6)).all())


@pytest.mark.parametrize("shape", [LARGE, (3, 65536, 96, 128)], ids=["the benchmark's shape", "more than 2^31 numbers"])
def test_large_tensors(launch, shape):
    count = int(np.prod(shape))
    if torch.cuda.mem_get_info()[0] < 5 * count + (8 << 30):
        pytest.skip("the GPU has not enough memory free")
    x, y = (torch.empty(shape, dtype=torch.float16, device="cuda") for _ in range(2))
    x.normal_()
    y.fill_(float("nan"))
    cos, sin = (torch.from_numpy(table).cuda() for table in rope_tables(shape[1], shape[3]))
    stream = torch.cuda.current_stream().cuda_stream
    launch("float16", x.data_ptr(), cos.data_ptr(), sin.data_ptr(), y.data_ptr(), shape, stream=stream)
    step = 2048
    for sample in range(shape[0]):
        for first in range(0, shape[1], step):
            part = slice(first, first + step)
            assert _is_right(y[sample, part], x[sample, part], cos[part], sin[part]), (sample, first)


def test_a_graph_captures_it(launch):
    case, other = (make_case((2, 16, 4, 64), "float32", interleaved=False, seed=seed) for seed in (1, 1001))
    x, cos, sin, y = (on_gpu(array) for array in (case.x, case.cos, case.sin, np.zeros_like(case.x)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        addresses = (one.data_ptr() for one in (x, cos, sin, y))
        launch("float32", *addresses, case.x.shape, stream=torch.cuda.current_stream().cuda_stream)
    for one in (case, other):
        x.copy_(on_gpu(one.x))
        graph.replay()
        torch.cuda.synchronize()
        assert excess(y.cpu().numpy().view(np.float32).reshape(one.x.shape), Case(one.x, case.cos, case.sin, False)) <= 1


# ---- bounds


@pytest.mark.parametrize(("wrong", "clean"), [(None, True), (("pair < half; pair += ", "pair <= half; pair += "), False)])
def test_compute_sanitizer(tmp_path, wrong, clean):
    """Clean as it is, and not with a loop that goes one too far."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        pytest.skip("no compute-sanitizer: it comes with the CUDA toolkit")
    source, program = tmp_path / "rope.cu", tmp_path / "program"
    text = compilers.SOURCE.read_text()
    source.write_text(text.replace(*wrong) if wrong else text)
    assert wrong is None or source.read_text() != text
    command = [compilers.nvcc(), "-std=c++17", "-arch=native", "-lineinfo", f"-I{compilers.FOLDER}", str(source)]
    subprocess.run([*command, str(Path(__file__).with_name("sanitized_rope.cu")), "-o", str(program)], check=True)
    options = ["--tool", "memcheck", "--error-exitcode", "9", "--padding", "64"]
    done = subprocess.run([sanitizer, *options, str(program)], capture_output=True, text=True, timeout=500)
    print("\n".join(done.stdout.splitlines()[-3:]))
    assert (done.returncode == 0) is clean, done.stdout[-3000:] + done.stderr[-1000:]
    assert not clean or ("2160 launches" in done.stdout and "ERROR SUMMARY: 0 errors" in done.stdout)


# ---- the plugin in an engine


@pytest.fixture(scope="module")
def answers(target, tmp_path_factory) -> tuple[Path, dict[str, list[Case]]]:  # noqa: F811
    """What the engines gave, and what went in."""
    command = split_target(target)[1].command
    clean = {**os.environ, "PYTHONPATH": ""}
    said = subprocess.run(
        [*command, "-c", "import tensorrt; print(tensorrt.__version__)"], capture_output=True, text=True, env=clean
    )
    major = int(said.stdout.split(".")[0])
    include = next((one for one in INCLUDES if tensorrt_major(one) == major), None)
    if include is None:
        pytest.skip(f"COURSE_TENSORRT_INCLUDE names no headers of TensorRT {major}")
    folder, cases = tmp_path_factory.mktemp("engine"), {}
    for dtype in ("float32", "float16"):
        for interleaved, (heads, head_size) in ((False, (32, 128)), (True, (5, 66))):
            name = f"{dtype}-{'interleaved' if interleaved else 'halves'}"
            onnx.save(
                rope_model(heads, head_size, max_sequence=300, dtype=dtype, interleaved=interleaved), folder / f"{name}.onnx"
            )
            cases[name] = []
            for i, (batch, sequence) in enumerate(((1, 1), (2, 64), (5, 300), (3, 17), (1, 299))):
                case = make_case((batch, sequence, heads, head_size), dtype, interleaved=interleaved, seed=1000 * i)
                case = Case(case.x, *rope_tables(300, head_size), interleaved)
                np.save(folder / f"{name}.{i}.npy", case.x)
                cases[name].append(case)
    library = Path(course_lib.__file__).resolve().parent.parent
    script = Path(__file__).with_name("rope_in_engine.py")
    arguments = map(str, (script, library, build_plugin(include), folder, *cases))
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=500, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout.strip())
    return folder, cases


def test_the_engine_is_equal_to_torch_at_every_batch_and_length(answers):
    folder, cases = answers
    assert len(cases) == 4
    for name, several in cases.items():
        for i, case in enumerate(several):
            for kind in ("out", "graph"):
                y = np.load(folder / f"{name}.{i}.{kind}.npy").view(case.x.dtype)
                assert excess(y, case) <= 1, (name, i, kind)
                if not case.interleaved:
                    given = (torch.from_numpy(array) for array in (y, case.x, case.cos, case.sin))
                    assert _is_right(*given), (name, i, kind)
