"""What the scan is made of: version checks, programs that do not parse, what the tables of all versions know together."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.migration.analysis import python2
from course_lib.migration.analysis.evaluate import outcomes
from course_lib.migration.analysis.guards import All, AnyOf, Has, Not, Presumed, Unclear, version_number
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable
from course_lib.migration.tables.deprecations import parse_deprecations


def outcome(test: str, version: str = "11.4.0.106", **names: str) -> set[bool]:
    values = {name: ast.parse(text, mode="eval").body for name, text in names.items()}
    return outcomes(ast.parse(test, mode="eval").body, version, values)


@pytest.mark.parametrize(
    ("test", "on_11", "on_8"),
    [
        ("int(trt.__version__.split('.')[0]) >= 10", {True}, {False}),
        ("trt.__version__ >= '8.5'", {True, False}, {True}),
        ("trt.__version__ >= '10'", {True}, {True, False}),
        ("trt.__version__[0] < '7'", {True, False}, {False}),
        ("int(trt.__version__[0]) >= 8", {True, False}, {True}),
        ("float(trt.__version__[:3]) >= 8.5", {True}, {True}),
        ("trt.__version__.startswith('8')", {False}, {True}),
        ("trt.__version__.split('.')[0] in ('8', '9')", {False}, {True}),
        ("tuple(int(n) for n in trt.__version__.split('.') if n) > (8, 6, 0)", {True}, {True}),
        ("list(map(int, trt.__version__.split('.')))[0] == 8", {False}, {True}),
        ("Version(trt.__version__) < Version('10.0')", {False}, {True}),
        ("8 <= int(trt.__version__.split('.')[0]) < 10", {False}, {True}),
        ("not int(trt.__version__.split('.')[0]) < 10", {True}, {False}),
        ("(9 if trt.__version__.startswith('8') else 1) > 5", {False}, {True}),
        ("int(trt.__version__.split('.')[0]) * 1000 - 1 >= 10000", {True}, {False}),
        ("trt_version() >= '10.0'", {True}, {True, False}),
        ("TRT_MAJOR_VERSION >= 10", {True}, {False}),
        ("trt_version > [8, 5]", {True}, {True}),
        ("TRT_VERSION >= 8601", set(), set()),
        ("os.environ['x'] == trt.__version__", set(), set()),
        ("trt.__version__ is None", set(), set()),
        ("int('x') > trt.__version__", set(), set()),
        ("int(trt.__version__[0]) * 1e999 * 0 > 1", {False}, {False}),
        ("float(trt.__version__[:3]) * 10 ** 9 > 1", set(), set()),
        ("float(10.0 * 1e308 * 10) * int(trt.__version__[0]) / 0 > 1", set(), set()),
        ("'a' * 10000000000 + trt.__version__ == 'a'", set(), set()),
        ("[trt.__version__] * 10000000000 == []", set(), set()),
        ("int(1e999) > int(trt.__version__[0])", set(), set()),
        ("int('9' * 10) > len(trt.__version__)", set(), set()),
    ],
)
def test_a_version_check_is_worked_out(test: str, on_11: set[bool], on_8: set[bool]) -> None:
    assert (outcome(test), outcome(test, "8.6.1")) == (on_11, on_8)


def test_variables_and_functions_are_looked_up() -> None:
    assert outcome("major >= 10", major="int(trt.__version__.split('.')[0])") == {True}
    assert outcome("new()", **{"new()": "trt.__version__.startswith('11')"}) == {True}
    assert outcome("endless", endless="endless") == set()


@given(st.text(alphabet="trt.__version__[0:1]()<>='8.5,split int+-*/ ", max_size=40))
def test_no_expression_makes_it_fail(text: str) -> None:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return
    assert outcomes(node, "11.4.0.106", {}) <= {True, False}


def test_conditions_combine() -> None:
    table = ApiTable.load("11.4")
    yes, no, unclear = Has("IPluginV3"), Has("UffParser"), Unclear()
    assert [one.holds(table) for one in (yes, no, unclear, Not(yes), Not(unclear))] == [True, False, None, False, None]
    assert [All(parts).holds(table) for parts in ((), (yes, unclear), (no, unclear), (yes, yes))] == [True, None, False, True]
    assert [AnyOf(parts).holds(table) for parts in ((), (yes, unclear), (no, unclear), (no, no))] == [False, True, None, False]
    assert [Not(All((yes, part))).holds(table) for part in (yes, no, unclear)] == [False, True, None]
    assert [Not(AnyOf((no, part))).holds(table) for part in (yes, no, unclear)] == [False, True, None]
    assert [Presumed(part).holds(table) for part in (yes, no, unclear)] == [True, False, True]
    assert Not(Presumed(no)).holds(table) is True and Not(Not(yes)).holds(table) is True
    assert Has("*.num_io_tensors").holds(table) is True and Has("*.num_bindings").holds(table) is False


def test_versions_as_numbers() -> None:
    assert [version_number(text) for text in ("8.6.1", "rtx-1.7.1", "11.4")] == [(8, 6, 1), (1, 7, 1), (11, 4)]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("Builder.create_builder_config", "IBuilderConfig"),
        ("Builder.build_engine", "ICudaEngine"),
        ("INetworkDefinition.add_convolution", "IConvolutionLayer"),
        ("INetworkDefinition.builder", "Builder"),
        ("IExecutionContext.engine", "ICudaEngine"),
        ("INetworkDefinition.__getitem__", "ILayer"),
        ("OnnxParser.get_error", "ParserError"),
        ("IPluginRegistry.plugin_creator_list", "list:IPluginCreator"),
        ("get_plugin_registry", "IPluginRegistry"),
        ("ICudaEngine.num_io_tensors", ""),
        ("Nothing.at_all", ""),
    ],
)
def test_the_tables_tell_what_calls_give(name: str, result: str) -> None:
    assert known.result_of(name) == result


def test_owners_are_those_who_declare() -> None:
    assert known.owners_of("precision")[0] != "IConvolutionLayer" and "ILayer" in known.owners_of("precision")
    assert known.owners_of("max_workspace_size")[0] == "IBuilderConfig" and known.owners_of("nothing") == ()


# ---- Python 2


@pytest.mark.parametrize(
    "line",
    [
        "print x", "print 'a', b", "print", "print >>sys.stderr, 'a'", "print('a') % 3", "raise E, 'x'", "exec 'x'", "x = `y`", "0777",
        "def f(a, (b, c)): pass", "print 'a' % (b,),  # c", "\tprint 'x'", "u = ur'x'", "if a <> b: pass", "class A: print 1",
    ],
)  # fmt: skip
def test_python_2_leaves_the_other_lines_readable(line: str) -> None:
    text = f"import tensorrt as trt\n{line}\nx = trt.UffParser()\n"
    parsed = python2.parse(text)
    assert "x = trt.UffParser()" in ast.unparse(parsed.tree)
    assert bool(parsed.problem) == (not _is_python_3(text))


def _is_python_3(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def test_except_with_a_comma_is_understood() -> None:
    parsed = python2.parse("try:\n    x()\nexcept (A, B), error:\n    y(error)\n")
    assert "except (A, B) as error" in ast.unparse(parsed.tree) and not parsed.lost and parsed.problem.startswith("line 3")


def test_a_text_that_is_no_program_is_all_lost() -> None:
    parsed = python2.parse("\n".join(f") {i} (" for i in range(200)))
    assert len(parsed.lost) == 200 and not parsed.tree.body


# ---- docstrings


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        (
            "[DEPRECATED] Deprecated in TensorRT 10.1. Superseded by x.\n\nMore.",
            {"A": "Deprecated in TensorRT 10.1. Superseded by x."},
        ),
        ("    Enable.\n    [DEPRECATED] Deprecated in TensorRT 10.7.)", {"A": "Deprecated in TensorRT 10.7."}),
        ("Text.\n:ivar x: :class:`int` [DEPRECATED] Gone.\n:ivar y: Good.", {"A.x": "Gone."}),
        (":ivar z: (Deprecated) Old\n  words.", {"A.z": "Old words."}),
        ("Add it. Deprecated, use b instead.\n:arg c: d", {"A": "Deprecated, use b instead."}),
        ("[DEPRECATED - will go in 9.0] Faster.", {"A": "Faster."}),
        ("[DEPRECATED]", {"A": "Deprecated."}),
        ("For removal use X ([DEPRECATED] Deprecated in 10.8).", {}),
        ("Nothing.\n\nMembers:\n\n  B : [DEPRECATED] Gone.", {}),
        ("Creating one without the flag has been deprecated.", {}),
        ("", {}),
    ],
)
def test_a_docstring_says_what_is_deprecated(doc: str, found: dict[str, str]) -> None:
    assert dict(parse_deprecations("A", doc)) == found


def test_the_tables_hold_what_the_docstrings_say() -> None:
    assert ApiTable.load("10.16").deprecated("BuilderFlag.FP16").startswith("Deprecated in TensorRT 10.12.")
    assert ApiTable.load("10.16").deprecated("IConvolutionLayer.set_output_type").startswith("Deprecated in TensorRT 10.12.")
    assert ApiTable.load("10.16").deprecated("IInt8MinMaxCalibrator").startswith("Deprecated in TensorRT 10.1.")
    assert ApiTable.load("8.6.1").deprecated("BuilderFlag.FP16") == ApiTable.load("11.4").deprecated("Nothing") == ""
    assert ApiTable.load("11.4").type_of("IExecutionContext.engine") == "ICudaEngine"
    assert ApiTable.load("11.4").lineage("IConvolutionLayer") == ("IConvolutionLayer", "ILayer")
    assert ApiTable.load("11.4").lineage("Nothing") == ()
