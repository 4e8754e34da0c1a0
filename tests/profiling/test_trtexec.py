"""Files of trtexec, with the structure that the versions 7 to 11 write, and names and numbers of our own."""

import json
from pathlib import Path

import numpy as np
import pytest

from course_lib.errors import ProfileError
from course_lib.profiling.readers.trtexec import read_inference_times, read_layer_times, read_layers

LAYERS = {"Reformatting CopyNode for Input Tensor 0 to stem": 0.25, "stem + relu": 1.5, "__myl_MulSum_myl4_1": 0.75}
INFORMATION = {
    "Layers": [
        {
            "Name": name,
            "LayerType": "kgen" if "myl" in name else "CaskConvolution",
            "Inputs": [{"Name": "x", "Dimensions": [1, 8], "Format/Datatype": "Half"}],
            "Outputs": [{"Name": "y", "Dimensions": [1, 8], "Format/Datatype": "Half"}],
            "TacticName": "t",
            "StreamId": 0,
            "Metadata": "",
        }
        for name in LAYERS
    ],
    "Bindings": ["x", "y"],
}
LINE = (
    "Name: {}, LayerType: gemm, Inputs: [ {{ Name: x, Dimensions: [1,8], Format/Datatype: Half }}], Outputs: [ {{ Name: y, "
    "Dimensions: [1,8], Format/Datatype: Half }}], TacticName: t, StreamId: 0, Metadata: "
)


def _profile(*keys: str, count: int | None = 200) -> str:
    """What exportProfile writes: one number more than JSON knows, and names as they are."""
    head = [f'  {{ "count" : {count} }}'] if count else []
    rows = [
        f'{{ "name" : "{name}", "timeMs" : {200 * ms:g}'
        + "".join(f', "{key}" : {ms:g}' for key in keys)
        + ', "percentage" : -nan }'
        for name, ms in LAYERS.items()
    ]
    return "[\n" + "\n, ".join(head + rows) + "\n]\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("text", "runs", "statistic"),
    [
        (_profile("averageMs", "medianMs"), 200, "median"),  # 8.4 and later
        (_profile("averageMs"), 200, "mean"),  # before
        (_profile("averageMs", count=None), 1, "mean"),
        (_profile("averageMs", "medianMs").replace("stem + relu", "stem\x1erelu"), 200, "median"),
    ],
)
def test_times_of_layers(tmp_path: Path, text: str, runs: int, statistic: str, encoding: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text, encoding=encoding)
    timings = read_layer_times(path)
    assert (timings.runs, timings.statistic, timings.total_ms) == (runs, statistic, 2.5)
    assert [layer.ms for layer in timings.heaviest()] == [1.5, 0.75, 0.25] and timings.heaviest()[0].share == 0.6
    assert timings.to_json()["runs"] == runs and f"{statistic}s)" in timings._repr_html_()
    (tmp_path / "layers.json").write_text(json.dumps(INFORMATION), encoding=encoding)
    described = timings.with_table(read_layers(tmp_path / "layers.json")).by_dtype()
    assert described == ({"FP16": 1.0, "unknown": 1.5} if "\x1e" in text else {"FP16": 2.5})


PRINTED = {  # what dumpProfile prints, by version
    "8.6 and later": (
        "   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer\n"
        "      50.00       0.2600       0.2500      10.0   Reformatting CopyNode for Input Tensor 0 to stem\n"
        "     300.00       1.5100       1.5000      60.0   stem + relu\n"
        "     150.00       0.7600       0.7500      30.0   [A]-[b 1.0 2.00 3.0] + __myl_MulSum_myl4_1\n"
        "     500.00       2.5300       2.5000     100.0   Total"
    ),
    "8.4": (
        "                Layer   Time (ms)   Avg. Time (ms)   Median Time (ms)   Time %\n"
        "                 stem       50.00           0.2600             0.2500     10.0\n"
        "   stem + relu 1.0 2.0      300.00           1.5100             1.5000     60.0\n"
        "  __myl_MulSum_myl4_1      150.00           0.7600             0.7500     30.0\n"
        "                Total      500.00           2.5300             2.5000    100.0"
    ),
    "8.2": (
        "                Layer   Time (ms)   Avg. Time (ms)   Time %\n"
        "                 stem       50.00           0.2500     10.0\n"
        "          stem + relu      300.00           1.5000     60.0\n"
        "  __myl_MulSum_myl4_1      150.00           0.7500     30.0\n"
        "                Total      500.00           2.5000    100.0"
    ),
}


@pytest.mark.parametrize("version", PRINTED)
@pytest.mark.parametrize("prefix", ["", "[04/26/2024-00:42:55] [I] "])
def test_times_of_layers_in_a_log(tmp_path: Path, version: str, prefix: str) -> None:
    lines = [
        "Using random values",
        "",
        "=== Profile (200 iterations ) ===",
        *PRINTED[version].split("\n"),
        "",
        "1.0 2.0 3.0   no layer",
    ]
    path = tmp_path / "trtexec.log"
    path.write_text("\n".join(prefix + line for line in lines), encoding="utf-8")
    timings = read_layer_times(path)
    assert (timings.runs, timings.layer_ms.tolist()) == (200, [0.25, 1.5, 0.75])
    assert timings.statistic == ("mean" if version == "8.2" else "median") and timings.names[1].startswith("stem + relu")


@pytest.mark.parametrize("prefix", ["", "[07/07/2026-02:11:38] [I] ", "[V] [TRT] "])
def test_layers_of_a_log(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "build.log"
    rows = "\r\n".join(LINE.format(name) for name in LAYERS)
    path.write_bytes(f"{prefix}Layer Information:\r\n{prefix}Layers:\r\n{rows}\r\n\r\nBindings:\r\nx\r\ny\r\n".encode())
    table = read_layers(path)
    assert [layer.name for layer in table] == list(LAYERS) and table.dtype_counts() == {"Half": 3}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("names.json", '{"Layers": ["Conv_0 + Relu_1", "MaxPool_2"], "Bindings": ["x"]}', "profilingVerbosity=detailed"),
        ("names.log", "[I] Layers:\nConv_0 + Relu_1\nMaxPool_2\n\nBindings:\nx\n", "profilingVerbosity=detailed"),
        ("none.json", '{"Layers": [], "Bindings": ["x"]}', "no layers"),
        ("cut.json", '{"Layers": [{"Name": "a"', "not layer information"),
        ("other.json", '{"Layers": [{"a": 1}]}', "no key Name"),
        ("times.json", _profile("averageMs"), "course profile"),
    ],
)
def test_what_is_not_layer_information_is_rejected_with_a_remedy(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=said) as rejection:
        read_layers(path)
    assert str(path) in str(rejection.value) and "\n" not in str(rejection.value)


def _times(count: int, enqueue: bool = True) -> str:
    rows = []
    for index in range(count):
        begin, compute = 10 * index, 2 + 0.01 * (index % 3)
        row = {"startEnqMs": begin, "endEnqMs": begin + 0.5} if enqueue else {}
        row |= {"startH2dMs": begin, "endH2dMs": begin + 1}
        row |= {"startComputeMs": begin + 1, "endComputeMs": begin + 1 + compute}
        row |= {"startD2hMs": begin + 1 + compute, "endD2hMs": begin + 2 + compute}
        row |= {"h2dMs": 1, "computeMs": compute, "d2hMs": 1}
        rows.append(row | {"latencyMs": 2 + compute})
    return json.dumps(rows)


@pytest.mark.parametrize("enqueue", [True, False])
def test_times_of_inferences(tmp_path: Path, enqueue: bool) -> None:
    path = tmp_path / "times.json"
    path.write_text(_times(300, enqueue=enqueue), encoding="utf-8")
    times = read_inference_times(path)
    assert len(times) == 300 and set(times.ms) == {"latency", "H2D", "GPU compute", "D2H"} | ({"enqueue"} if enqueue else set())
    assert np.median(times.ms["GPU compute"]) == pytest.approx(2.01) and times.ms["H2D"].tolist() == 300 * [1.0]
    assert np.allclose(times.ms["latency"], sum(times.ms[name] for name in ("H2D", "GPU compute", "D2H")))
    assert times.per_second == pytest.approx(300e3 / (2990 + 4.02), rel=1e-3)


@pytest.mark.parametrize("text", ["", "[]", "[1]", '{"a": 1}', '[{"computeMs": "x", "latencyMs": 1}]', "[" * 99999])
def test_what_holds_no_times_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(text, encoding="utf-8")
    for read in (read_layer_times, read_inference_times):
        with pytest.raises(ProfileError, match="has no times of"):
            read(path)
    path.write_text(json.dumps(INFORMATION), encoding="utf-8")
    with pytest.raises(ProfileError, match="course layers"):
        read_layer_times(path)
    with pytest.raises(ProfileError, match="cannot read"):
        read_layers(tmp_path / "absent.json")
