"""The table of converters, and its reader on wheels that are right, wrong and hostile."""

from __future__ import annotations

import json
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.engines.backends.torch_tensorrt import converters
from course_lib.engines.backends.torch_tensorrt.keywords import table as keyword_table

SOURCE = """
@dynamo_tensorrt_converter(torch.ops.aten.relu.default, supports_dynamic_shapes=True)
@dynamo_tensorrt_converter(torch.ops.aten.batch_norm)
@dynamo_tensorrt_converter(operator.getitem, capability_validator=check)
def one(ctx, target): ...
@other_decorator(torch.ops.aten.nothing.default)
def two(): ...
if later:
    @dynamo_tensorrt_converter(tensorrt_op)
    def three(): ...
"""


def wheel(folder, source, name="torch_tensorrt-2.99.0-cp311-none.whl", inside="aten_ops_converters.py"):
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"torch_tensorrt/dynamo/conversion/{inside}", source)
    return path


def test_every_registration_is_read(tmp_path):
    assert converters.read_wheel(wheel(tmp_path, SOURCE)) == (
        "2.99",
        ["aten.batch_norm", "aten.relu.default", "operator.getitem", "tensorrt_op"],
    )


def test_evaluators_count_and_other_files_do_not(tmp_path):
    assert converters.read_wheel(wheel(tmp_path, SOURCE, inside="ops_evaluators.py"))[0] == "2.99"
    with pytest.raises(ValueError, match="expected a wheel"):
        converters.read_wheel(wheel(tmp_path, SOURCE, inside="impl.py"))


@pytest.mark.parametrize("source", ["", "def broken(", "x = 1"])
def test_a_wheel_without_converters_is_rejected(tmp_path, source):
    with pytest.raises(ValueError, match="expected a wheel"):
        converters.read_wheel(wheel(tmp_path, source))


def test_another_name_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="expected a wheel"):
        converters.read_wheel(wheel(tmp_path, SOURCE, name="other.whl"))


@settings(max_examples=30)
@given(data=st.binary(max_size=200))
def test_any_bytes_give_one_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("wheel") / "torch_tensorrt-2.99.0-x.whl"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="expected a wheel"):
        converters.read_wheel(path)


def test_the_table_is_written_as_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(converters, "TABLE", tmp_path / "table.json")
    converters.write({"2.2": ["b"], "2.1": ["a", "b"]})
    assert list(json.loads((tmp_path / "table.json").read_text())) == ["2.1", "2.2"]
    assert converters.table()["2.1"] == ["a", "b"]


def test_the_table_covers_the_versions_whose_keywords_are_known():
    assert list(converters.table()) == [
        version for version in keyword_table() if version != "2.2"
    ]  # it also has FX's converters
    for names in converters.table().values():
        assert len(names) > 200 and names == sorted(set(names))


def test_overloads_and_whole_operators():
    assert converters.converted("aten.relu.default", "2.14")
    assert converters.converted("aten.repeat.default", "2.14") and not converters.converted("aten.repeat.default", "2.11")
    assert not converters.converted("aten.median.dim", "2.14") and not converters.converted("aten.conv2d.default", "2.14")
    assert "aten.batch_norm" in converters.table()["2.14"] and converters.converted("aten.batch_norm.default", "2.14")
    with pytest.raises(ValueError, match=r"'1\.0' were read"):
        converters.converted("aten.relu.default", "1.0")
