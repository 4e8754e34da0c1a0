"""Everything that the double has is in NVIDIA's bindings of that version, with the same argument names."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from course_lib.migration.tables.api_table import ApiTable
from course_lib.standin import tensorrt_module
from course_lib.standin.conforming import VERSIONS
from tests.doubles import rig

MODULES = {version: tensorrt_module.make(version) for version in VERSIONS}


def _classes(trt: Any) -> list[tuple[str, type]]:
    return [
        (n, c) for n, c in vars(trt).items() if isinstance(c, type) and not n.startswith("_") and not hasattr(c, "__members__")
    ]


def _public(kind: type) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(kind).items() if not name.startswith("_") or name == "__init__"]


METHODS = [
    (version, f"{name}.{key}", value)
    for version, trt in MODULES.items()
    for name, kind in _classes(trt)
    for key, value in _public(kind)
    if hasattr(value, "__wrapped__")
]
PROPERTIES = [
    (version, f"{name}.{key}", value)
    for version, trt in MODULES.items()
    for name, kind in _classes(trt)
    for key, value in _public(kind)
    if isinstance(value, property)
]


def test_there_is_enough_to_check() -> None:
    assert len(METHODS) > 150 and len(PROPERTIES) > 90
    assert {full for _, full, _ in METHODS} >= {
        "IExecutionContext.execute_async_v3",
        "Refitter.set_named_weights",
        "Builder.__init__",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_public_name_of_the_module_is_real(version: str) -> None:
    table = ApiTable.load(version)
    names = [name for name in vars(MODULES[version]) if not name.startswith("_")]
    assert len(names) > 90
    assert [name for name in names if not table.has(name)] == []
    assert MODULES[version].__version__ == table.wheel["version"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_attribute_of_a_class_is_real(version: str) -> None:
    table = ApiTable.load(version)
    for name, kind in _classes(MODULES[version]):
        unreal = [key for key, _ in _public(kind) if key != "__init__" and not table.has(f"{name}.{key}")]
        assert unreal == [], f"{name}: {unreal}"


@pytest.mark.parametrize(("version", "full", "method"), METHODS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_method_takes_the_real_arguments_in_the_real_order(version: str, full: str, method: Any) -> None:
    overloads = ApiTable.load(version).signature(full)
    ours = list(inspect.signature(method.__wrapped__).parameters.values())[1:]
    known = [parameter.name for parameter in ours]
    assert overloads
    served = [one for one in overloads if set(known) >= {parameter.name for parameter in one.parameters}]
    assert served, f"{full}({', '.join(known)}) serves none of {overloads}"
    for overload in served:
        names = [parameter.name for parameter in overload.parameters]
        assert [name for name in known if name in names] == names
        for parameter in overload.parameters:
            if parameter.default is not None:
                mine = next(one for one in ours if one.name == parameter.name)
                assert mine.default is not inspect.Parameter.empty, f"{full}: {parameter.name} may be left out"
    real = {parameter.name for overload in overloads for parameter in overload.parameters}
    assert set(known) <= real, f"{full} takes {set(known) - real}, which no overload has"


@pytest.mark.parametrize(("version", "full", "found"), PROPERTIES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_property_is_no_more_writable_than_the_real_one(version: str, full: str, found: property) -> None:
    access = ApiTable.load(version).access(full)
    assert access, f"{full} is not a property"
    assert not (found.fset and "w" not in access) and not (found.fget and "r" not in access)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_enums_are_those_of_the_version(version: str) -> None:
    table = ApiTable.load(version)
    for name in table.enums():
        kind: Any = MODULES[version]
        for part in name.split("."):
            kind = getattr(kind, part)
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
