"""`course profile` and `course layers` on the files of profilers and trtexec."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import onnx
import pytest

from course_lib.cli.commands.engines import layers, profile
from course_lib.errors import ProfileError
from course_lib.precision import activations, insert_qdq
from course_lib.recipe import Recipe

LAYERS = json.dumps({
    "Layers": [
        {
            "Name": name,
            "LayerType": "gemm",
            "Inputs": [{"Name": "x", "Dimensions": [1, 8], "Format/Datatype": dtype}],
            "Outputs": [{"Name": "y", "Dimensions": [1, 8], "Format/Datatype": "Float"}],
        }
        for name, dtype in (("first", "Half"), ("second", "Float"))
    ]
})  # fmt: skip
TIMES_OF_LAYERS = (
    '[\n  { "count" : 100 }\n, { "name" : "first", "timeMs" : 150, "averageMs" : 1.5, "medianMs" : 1.5, "percentage" : 75 }\n'
    ', { "name" : "second", "timeMs" : 50, "averageMs" : 0.5, "medianMs" : 0.5, "percentage" : nan }\n]\n'
)
TIMES = json.dumps([
    {"startH2dMs": 4 * i, "endD2hMs": 4 * i + 4, "h2dMs": 1, "computeMs": 2, "d2hMs": 1, "latencyMs": 4} for i in range(20)
])  # fmt: skip
TRACE = json.dumps(
    {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "void a::gemm<4>(int)", "ts": 1, "dur": 9, "args": {}}]}
)
ONNX_RUNTIME = (
    '[{"cat": "Node", "ph": "X", "name": "e_kernel_time", "dur": 9, "ts": 1, "args": {"op_name": "Exp", "node_index": "0"}}]'
)
KERNELS = (
    '"ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed"\n'
    '"","","us","%"\n"0","gemm","1.500,25","65,7"\n'
)


def _nsys(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, graphId, streamId)")
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 3, 7)", [(0, 900_000), (1_000_000, 2_000_000)]
        )
        connection.commit()


FILES: dict[str, tuple[str | bytes, tuple[str, ...]]] = {  # of each: name, content, and what is printed
    "profile.json": (TIMES_OF_LAYERS, ("1 of 2 layers take half of 2 ms (100 runs, medians)", "75.0 %", "first")),
    "times.json": (TIMES, ("20 inferences, 250.0 per second", "GPU compute", " 2.0000   2.0000 to 2.0000 ")),
    "trace.json": (TRACE, ("GPU busy 100 %", "gemm", "none of the usual faults")),
    "trace.json.gz": (gzip.compress(TRACE.encode()), ("GPU busy 100 %",)),
    "onnxruntime.json": (ONNX_RUNTIME, ("1 of 1 layers take half of 0.009 ms",)),
    "kernels.csv": (KERNELS, ("kernels.csv, launches of kernels: 1\n", "1.5 ms", "66 %")),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_file_of_every_profiler_is_recognized_by_its_content(
    name: str, mark: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, printed = FILES[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else mark + content.encode())
    profile(file)
    out = capsys.readouterr().out
    assert all(text in out for text in printed), out
    profile(file, as_json=True)
    assert isinstance(json.loads(capsys.readouterr().out), dict)


def test_few_inferences_have_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "times.json"
    file.write_text(json.dumps(json.loads(TIMES)[:3]))
    profile(file, as_json=True)
    assert json.loads(capsys.readouterr().out)["ms"]["H2D"] == {"median": 1.0, "low": 1.0, "high": 1.0, "p99": 1.0}


def test_a_timeline_with_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _nsys(tmp_path / "report.sqlite")
    profile(tmp_path / "report.sqlite")
    assert "CUDA graph 3" in capsys.readouterr().out
    profile(tmp_path / "report.sqlite", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["busy_us"] == 1900 and document["faults"][0]["name"] == "idle GPU" and document["lacks"] == ""


def test_layer_information_adds_operators_and_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.json").write_text(LAYERS)
    (tmp_path / "profile.json").write_text(TIMES_OF_LAYERS)
    (tmp_path / "times.json").write_text(TIMES)
    profile(tmp_path / "profile.json", layers=tmp_path / "layers.json", as_json=True)
    assert [row["dtypes"] for row in json.loads(capsys.readouterr().out)["layers"]] == ["FP16", "FP32"]
    profile(tmp_path / "profile.json", layers=tmp_path / "layers.json")
    assert "FP16" in capsys.readouterr().out
    with pytest.raises(ProfileError, match="leave it out"):
        profile(tmp_path / "times.json", layers=tmp_path / "layers.json")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("layers.json", LAYERS, "course layers"),
        ("text.txt", "hello", "ncu --csv --page raw"),
        ("empty.json", "", "has no table"),
        ("cut.json", '{"traceEvents": [', "has no times"),
    ],
)
def test_other_files_are_one_line(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ProfileError, match=said) as rejection:
        profile(tmp_path / name)
    assert "\n" not in str(rejection.value)
    with pytest.raises(ProfileError, match="cannot read"):
        profile(tmp_path / "absent.json")


def test_course_layers_prints_the_file_of_trtexec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.json").write_text(LAYERS, encoding="utf-16")
    layers(tmp_path / "layers.json")
    out = capsys.readouterr().out
    assert "layers.json" in out and "2 kernels (1 with FP16, 1 with FP32)" in out
    layers(tmp_path / "layers.json", against=tmp_path / "layers.json", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert len(document["kernels"]) == 2 and "2 kernels stayed 2" in document["compared"]
    (tmp_path / "profile.json").write_text(TIMES_OF_LAYERS)
    with pytest.raises(ProfileError, match="course profile"):
        layers(tmp_path / "profile.json")


def test_fusions_that_int8_takes_apart_are_said(
    small_onnx: Path, service_recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = onnx.load(small_onnx)
    weighted = [node.name for node in network.graph.node if node.op_type in ("Conv", "Gemm")]
    quantized = insert_qdq(network, dict.fromkeys(activations(network, exclude=weighted[4:]), 4.0), exclude=weighted[4:])
    onnx.save(quantized, tmp_path / "int8.onnx")
    service_recipe.model_copy(update={"precision": "int8"}).save(tmp_path / "recipe.toml")
    layers(tmp_path / "int8.onnx", recipe=tmp_path / "recipe.toml", backend="tensorrt_rtx", against=small_onnx)
    out = " ".join(capsys.readouterr().out.split())
    assert f"note: fusions are taken apart, 4 of {len(weighted)} multiplications are spread over several kernels" in out
    assert f"note: only 4 of {len(weighted)} multiplications (convolutions and matrix products) compute in INT8" in out
    assert f"note: from {small_onnx} to {tmp_path / 'int8.onnx'}, 13 kernels became 1" in out and "--against" not in out
