"""TensorRT's classes in all versions: their names, the results of calls, and the types of properties."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from course_lib.migration.rules.data import rows
from course_lib.migration.tables.api_table import ApiTable

RELEASES_IN_ORDER = ("8.6.1", "10.15", "10.16", "11.0", "11.4")
RTX = "rtx-1.7.1"
_CLASS_IN_TYPE = re.compile(r"\bI?[A-Z]\w+")
_SPELLED_OTHERWISE = {
    "IBuilder": "Builder",
    "IRuntime": "Runtime",
    "IRefitter": "Refitter",
    "IOnnxParser": "OnnxParser",
    "IParserError": "ParserError",
}

# Taught in many places, and in no version of the Python API.
NEVER_EXISTED = (
    "Profiler.get_layer_timing",
    "IProfiler.get_layer_timing",
    "ICudaEngine.get_device_memory_size",
    "ICudaEngine.get_binding_size",
)
# Modules of TensorRT 3 and 4 beneath `tensorrt`: whatever they held went with them.
GONE_MODULES = ("infer", "utils", "parsers", "lite")
# Methods that a user's class overrides: newer bindings accept them without listing them.
_OVERRIDDEN = ("IOutputAllocator.", "IPluginCreator.tensorrt_version", "IGpuAllocator.free")


@cache
def gone_before_8_6() -> dict[str, str]:
    """Name to the first version without it."""
    return {name: row["since"] for row in rows("gone.toml", "before_8_6") for name in row["names"]}


def gone_early(name: str) -> str:
    """The first version without a name that was removed before 8.6, including the names in `GONE_MODULES`; empty for any other."""
    module = name.partition(".")[0]
    return gone_before_8_6().get(module if module in GONE_MODULES else name, "")


_MADE_BY_GONE_MODULES = {
    "create_infer_builder": "Builder",
    "create_infer_runtime": "Runtime",
    "create_uff_parser": "UffParser",
    "create_caffe_parser": "CaffeParser",
    "uff_to_trt_engine": "ICudaEngine",
    "caffe_to_trt_engine": "ICudaEngine",
    "uff_file_to_trt_engine": "ICudaEngine",
    "load_engine": "ICudaEngine",
}


def result_of_gone(name: str) -> str:
    """The class that a function of one of `GONE_MODULES` gave; empty if it gave none of TensorRT's."""
    return _MADE_BY_GONE_MODULES.get(name.rpartition(".")[2], "")


@cache
def older_than(target: str) -> tuple[ApiTable, ...]:
    """The tables of the versions before `version`, oldest first. Every TensorRT version comes before TensorRT for RTX."""
    end = RELEASES_IN_ORDER.index(target) if target in RELEASES_IN_ORDER else len(RELEASES_IN_ORDER)
    return tuple(ApiTable.load(version) for version in RELEASES_IN_ORDER[:end])


@cache
def all_tables() -> tuple[ApiTable, ...]:
    """The tables of every version, oldest first, then that of TensorRT for RTX."""
    return tuple(ApiTable.load(version) for version in (*RELEASES_IN_ORDER, RTX))


@cache
def existed(name: str, target: str) -> bool:
    """Whether a version before `target` had the name."""
    if name.startswith(_OVERRIDDEN):
        return False
    return bool(gone_early(name)) or any(table.has(name) for table in older_than(target))


@cache
def exists_anywhere(name: str) -> bool:
    """Whether any version has or had the name, or is often believed to have it."""
    return bool(gone_early(name)) or name in NEVER_EXISTED or any(table.has(name) for table in all_tables())


@cache
def knows_all_members(owner: str) -> bool:
    """Whether the tables contain all members that a class or enum ever had, so that a missing name exists in no version."""
    return any(owner in (*table.classes(), *table.enums()) for table in all_tables())


@cache
def is_final(owner: str) -> bool:
    """Whether no class derives from this one, in TensorRT or in a program. Its objects then have only the members of its table."""
    derived = any(owner in table.bases(name) for table in all_tables() for name in table.classes())
    return not derived and not any(table.signature(f"{owner}.__init__") for table in all_tables())


@cache
def classes() -> frozenset[str]:
    """Names of all classes and enums of all versions."""
    historic = {name.partition(".")[0] for name in (*gone_before_8_6(), *NEVER_EXISTED)} - set(GONE_MODULES)
    return frozenset(historic | {name for table in all_tables() for name in (*table.classes(), *table.enums())})


@cache
def enums() -> frozenset[str]:
    """Names of all enums of all versions."""
    return frozenset(name for table in all_tables() for name in table.enums())


@cache
def names_of(owner: str) -> tuple[str, ...]:
    """Public members of a class or enum in the newest version that has it; the module's own names for an empty `owner`."""
    for table in (*reversed(older_than("")), all_tables()[-1]):
        if not owner:
            found = (*table.classes(), *table.enums(), *table.functions(), *table.values())
        else:
            found = (*table.members(owner), *table.enum(owner))
        if found:
            return tuple(name for name in found if not name.startswith("_") and "." not in name)
    return ()


@cache
def value_of(name: str) -> str:
    """The value of a constant of the module, such as ``"DataType.HALF"`` for ``float16``; empty for any other name."""
    return next((found for table in all_tables() if (found := table.values().get(name))), "")


@cache
def owners_of(member: str) -> tuple[str, ...]:
    """Classes that have, or once had, a member of that name, without those that inherit it; those that 8.6 still had come first."""
    found = [owner for owner in sorted(classes()) if exists_anywhere(f"{owner}.{member}")]
    inherited = {owner for owner in found for table in all_tables() if set(table.lineage(owner)[1:]) & set(found)}
    declaring = [owner for owner in found if owner not in inherited]
    return tuple(sorted(declaring, key=lambda owner: f"{owner}.{member}" in gone_before_8_6()))  # the latest first


@cache
def result_of(name: str) -> str:
    """The class that a function, method or property gives; ``"list:X"`` for a sequence of them; empty if it is none."""
    for table in all_tables():
        texts = [overload.returns for overload in table.signature(name)] or [table.type_of(name)]
        for text in texts:
            if found := _type_in(text):
                return found
    return ""


@cache
def parameters_of(name: str) -> tuple[str, ...]:
    """The types of a method's parameters, in the form of `result_of`; empty if no version has the method."""
    overloads = next((found for table in all_tables() if (found := table.signature(name))), ())
    return tuple(_type_in(one.type) for one in overloads[0].parameters) if overloads else ()


def _type_in(text: str) -> str:
    found = next(_classes_in(text), "")
    return f"list:{found}" if found and text.lower().startswith(("list", "sequence", "tuple")) else found


def _classes_in(text: str) -> Iterator[str]:
    for word in _CLASS_IN_TYPE.findall(text):
        word = _SPELLED_OTHERWISE.get(word, word)
        if word in classes():
            yield word
