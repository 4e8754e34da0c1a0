"""TensorRT's cache as text, and the shape of the calibrator classes over a stand-in for its module."""

import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import BackendUnavailable, CourseError
from course_lib.precision import read_cache, read_header, trt_calibrator, write_cache
from course_lib.precision.calibration import trt_calibrators

SAMPLE = """TRT-8600-EntropyCalibration2
image: 3c010a14
/block1/Relu_output_0: 3d0c1b2a
scope:with:colons: 800000
"""


def test_a_line_is_a_tensor_and_the_bits_of_its_scale() -> None:
    assert write_cache({"a": 127.0, "b": 1.0}) == "TRT-8600-EntropyCalibration2\na: 3f800000\nb: 3c010204\n"
    assert read_cache("TRT-10160-MinMaxCalibration\na: 3f800000\n") == {"a": 127.0}
    assert read_header("TRT-10160-MinMaxCalibration\r\na: 3f800000\r\n") == (10160, "MinMaxCalibration")
    ranges = read_cache(SAMPLE)
    assert list(ranges) == ["image", "/block1/Relu_output_0", "scope:with:colons"]
    assert ranges["image"] == struct.unpack(">f", bytes.fromhex("3c010a14"))[0] * 127
    assert write_cache(ranges) == SAMPLE.replace(" 800000", " 00800000")  # leading zeros may be missing, we write them


def test_a_legacy_cache_as_an_h200_wrote_it() -> None:
    """Its first line: a regression cutoff of 1 and a quantile of 0.9999, as bits of float64."""
    text = "0 3ff0000000000000 3fefff2e48e8a71e\nimage: 3c010204\n/Relu_output_0: 3d403b06\n"
    assert struct.pack(">2d", 1.0, 0.9999).hex(" ", 8) == "3ff0000000000000 3fefff2e48e8a71e"
    assert read_header(text) == (0, "LegacyCalibration")
    assert read_cache(text)["image"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("version", ["8XXX", "8.6.1", "LATEST"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_caches_of_other_tools_and_editors_are_read(tmp_path: Path, version: str, encoding: str) -> None:
    text = f"TRT-{version}-EntropyCalibration2 \r\nx: 3C010A14\r\ny: 0x3f800000\r\n"
    file = tmp_path / "calibration.cache"
    file.write_bytes(text.encode(encoding))
    for cache in (file, file.read_bytes(), text, "\ufeff" + text):
        assert read_header(cache) == (0, "EntropyCalibration2")
        assert read_cache(cache) == {"x": pytest.approx(1.0, rel=1e-3), "y": 127.0}


@pytest.mark.parametrize(
    ("digits", "scale"), [("0", "0.0"), ("00000000", "0.0"), ("7f800000", "inf"), ("7fc00000", "nan"), ("bf800000", "-1.0")]
)
def test_one_unusable_scale_is_a_note_that_names_the_tensor(digits: str, scale: str) -> None:
    with pytest.warns(UserWarning, match=rf"no usable scale for 'dead:0' \(line 3: {scale}\)"):
        ranges = read_cache(f"TRT-8601-EntropyCalibration2\nimage: 3c010a14\ndead:0: {digits}\nhead: 3d1f5c19\n")
    assert list(ranges) == ["image", "head"]


def test_a_file_that_is_absent_or_is_no_text_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="cannot read"):
        read_cache(tmp_path / "absent.cache")
    with pytest.raises(CourseError, match="expected EntropyCalibration2 or MinMaxCalibration"):
        write_cache({}, algorithm="LegacyCalibration")
    with pytest.raises(CourseError, match="not text"):
        read_cache(b"TRT-8600-EntropyCalibration2\n\xff: 0")


@given(st.dictionaries(st.text("abc/.:_ 0", min_size=1).map(str.strip).filter(bool), st.floats(1e-30, 1e30)))
def test_what_was_written_is_read(ranges: dict[str, float]) -> None:
    text = write_cache(ranges, 8601, algorithm="MinMaxCalibration")
    found = read_cache(text)
    assert found == pytest.approx(ranges, rel=1e-6) and list(found) == list(ranges)
    assert write_cache(found, 8601, algorithm="MinMaxCalibration") == text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "first line"),
        ("image: 3c010a14\n", "first line"),
        ("TRT-8600-EntropyCalibration2\nimage 3c010a14\n", "line 2"),
        ("TRT-8600-EntropyCalibration2\nimage: 3c010a14\nx: 3c010a14f\n", "line 3"),
        ("TRT-8600-EntropyCalibration2\nimage: 7fc00000\n", "nan"),
        ("TRT-8600-EntropyCalibration2\nimage: 7f800000\n", "inf"),
        ("TRT-8600-EntropyCalibration2\nimage: bf800000\n", "-1.0"),
        ("TRT-8600-EntropyCalibration2\nimage: 0\n", "0.0"),
    ],
)
def test_other_text_is_rejected(text: str, word: str) -> None:
    with pytest.raises(CourseError, match=word):
        read_cache(text)


class _Base:
    def __init__(self) -> None:
        self.made = True


TRT = SimpleNamespace(__version__="10.0", IInt8EntropyCalibrator2=_Base, IInt8MinMaxCalibrator=_Base)


@pytest.fixture
def uploaded(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Every array that went to the "GPU"; its address is its place in this list."""
    arrays: list[np.ndarray] = []

    def upload(array: np.ndarray) -> tuple[int, object]:
        arrays.append(array)
        return len(arrays) - 1, array

    monkeypatch.setattr(trt_calibrators, "_uploader", lambda: upload)
    return arrays


@pytest.mark.parametrize("kind", ["entropy", "minmax"])
def test_a_calibrator_hands_out_batches_and_keeps_the_cache(kind: str, uploaded: list[np.ndarray], tmp_path: Path) -> None:
    batches = [{"b": np.full((4, 2), i), "a": np.full((4, 3), -i)} for i in range(3)]
    calibrator = trt_calibrator(TRT, kind, iter(batches), tmp_path / "cache")  # type: ignore[arg-type]
    assert calibrator.made and calibrator.get_batch_size() == 4
    assert [calibrator.get_batch(["a", "b"]) for _ in range(4)] == [[0, 1], [2, 3], [4, 5], None]
    assert [array.flat[0] for array in uploaded] == [0, 0, -1, 1, -2, 2]
    assert calibrator.read_calibration_cache() is None
    calibrator.write_calibration_cache(memoryview(b"TRT"))
    assert calibrator.read_calibration_cache() == b"TRT"


def test_misuse_of_a_calibrator_is_rejected(uploaded: list[np.ndarray], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no calibration batch"):
        trt_calibrator(TRT, "entropy", [], tmp_path / "cache")
    with pytest.raises(CourseError, match="kind must be"):
        trt_calibrator(TRT, "kl", [], tmp_path / "cache")  # type: ignore[arg-type]
    with pytest.raises(BackendUnavailable, match="insert Q/DQ"):
        trt_calibrator(SimpleNamespace(__version__="11.0"), "entropy", [], tmp_path / "cache")
    uneven = trt_calibrator(TRT, "entropy", [{"a": np.zeros((4, 1))}, {"a": np.zeros((3, 1))}], tmp_path / "cache")
    assert uneven.get_batch(["a"]) == [0]
    with pytest.raises(CourseError, match="shapes of the first"):
        uneven.get_batch(["a"])
