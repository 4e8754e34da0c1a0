"""Everything that the double has is in NVIDIA's bindings of that version, with the same argument names."""

import inspect
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from course_lib.migration.tables.api_table import ApiTable
from course_lib.standin import tensorrt_module
from course_lib.standin.conforming import VERSIONS
from tests.doubles import rig

MODULES = {version: tensorrt_module.make(version) for version in VERSIONS}


def _members(trt: Any) -> Iterator[tuple[str, Any]]:
    """Everything public of every class, by its full name."""
    for name, kind in vars(trt).items():
        if isinstance(kind, type) and not name.startswith("_") and not hasattr(kind, "__members__"):
            for key, value in vars(kind).items():
                if not key.startswith("_") or key == "__init__":
                    yield f"{name}.{key}", value


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_name_is_real(version: str) -> None:
    table, module = ApiTable.load(version), MODULES[version]
    names = [name for name in vars(module) if not name.startswith("_")]
    members = [full for full, _ in _members(module) if not full.endswith("__init__")]
    assert len(names) > 90 and len(members) > 120
    assert [name for name in (*names, *members) if not table.has(name)] == []
    assert module.__version__ == table.wheel["version"]


def test_methods_take_the_real_arguments_in_the_real_order(version: str) -> None:
    methods = {full: method for full, method in _members(MODULES[version]) if hasattr(method, "__wrapped__")}
    assert len(methods) > 75 and methods.keys() >= {"IExecutionContext.execute_async_v3", "Refitter.set_named_weights"}
    for full, method in methods.items():
        overloads = ApiTable.load(version).signature(full)
        ours = {one.name: one for one in list(inspect.signature(method.__wrapped__).parameters.values())[1:]}
        served = [one for one in overloads if ours.keys() >= {parameter.name for parameter in one.parameters}]
        assert served, f"{full}({', '.join(ours)}) serves none of {overloads}"
        for overload in served:
            names = [parameter.name for parameter in overload.parameters]
            assert [name for name in ours if name in names] == names, full
            optional = [parameter.name for parameter in overload.parameters if parameter.default is not None]
            assert not [name for name in optional if ours[name].default is inspect.Parameter.empty], f"{full}: may be left out"
        real = {parameter.name for overload in overloads for parameter in overload.parameters}
        assert ours.keys() <= real, f"{full} takes {ours.keys() - real}, which no overload has"


def test_properties_are_no_more_writable_than_the_real_ones(version: str) -> None:
    properties = {full: found for full, found in _members(MODULES[version]) if isinstance(found, property)}
    assert len(properties) > 45
    for full, found in properties.items():
        access = ApiTable.load(version).access(full)
        assert access and not (found.fset and "w" not in access) and not (found.fget and "r" not in access), full


def test_the_enums_are_those_of_the_version(version: str) -> None:
    table = ApiTable.load(version)
    for name in table.enums():
        kind = attrgetter(name)(MODULES[version])
        assert {key: int(value) for key, value in kind.__members__.items()} == table.enum(name)


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("ICudaEngine.create_execution_context_without_device_memory", ("10.16",)),
        ("Builder.platform_has_fast_fp16", ("10.16",)),
        ("BuilderFlag.FP16", ("10.16",)),
        ("NetworkDefinitionCreationFlag.EXPLICIT_BATCH", ("10.16",)),
        ("NetworkDefinitionCreationFlag.STRONGLY_TYPED", ("10.16", "11.4")),
        ("IExecutionContext.execute_async_v2", ()),
        ("ICudaEngine.device_memory_size_v2", ("10.16", "11.4")),
        ("IBuilderConfig.max_workspace_size", ()),
    ],
)
def test_what_a_version_lacks_is_absent(name: str, versions: tuple[str, ...]) -> None:
    owner, _, key = name.partition(".")
    assert tuple(version for version in VERSIONS if hasattr(getattr(MODULES[version], owner), key)) == versions


# ---- the manners of pybind11


def test_wrong_arguments_raise_a_type_error(trt: Any, log: Any) -> None:
    context = rig.engine(trt).create_execution_context()
    for call in (
        lambda: context.set_tensor_address("x", "y"),
        lambda: context.set_tensor_address("x", 1.5),
        lambda: context.set_tensor_address(b"x", 1),
        lambda: context.set_tensor_address("x"),
        lambda: context.set_tensor_address(tensor="x", memory=1),
        lambda: context.execute_async_v3(None),
        lambda: context.set_input_shape("x", 3),
        lambda: trt.Runtime(None),
        lambda: trt.Builder("log"),
        lambda: trt.Refitter(None, log),
        lambda: trt.Logger("x"),
        lambda: trt.ICudaEngine(),
        lambda: trt.Dims((1.5, 2)),
        lambda: 1 << trt.BuilderFlag.TF32,
        lambda: list(trt.DataType),
        lambda: trt.DataType["FLOAT"],
        lambda: hash(trt.Dims((1, 2))),
        lambda: trt.nptype(trt.bfloat16),
    ):
        with pytest.raises(TypeError):
            call()


def test_a_derived_class_must_call_the_base(trt: Any) -> None:
    class Forgetful(trt.ILogger):
        def __init__(self) -> None:
            self.rows: list[str] = []

    with pytest.raises(TypeError, match=r"ILogger\.__init__\(\) must be called when overriding __init__"):
        Forgetful()
