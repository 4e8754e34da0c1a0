"""What the scan is made of: version checks, programs that do not parse, what the tables of all versions know together."""

import ast

import pytest

from course_lib.migration.analysis import python2
from course_lib.migration.analysis.evaluate import outcomes
from course_lib.migration.analysis.guards import UNCLEAR, all_of, any_of, has, opposite, presumed
from course_lib.migration.tables.api_table import ApiTable


def outcome(test: str, version: str = "11.4.0.106", **names: str) -> set[bool]:
    values = {name: ast.parse(text, mode="eval").body for name, text in names.items()}
    return outcomes(ast.parse(test, mode="eval").body, version, values)


@pytest.mark.parametrize(
    ("test", "on_11", "on_8"),
    [
        ("int(trt.__version__.split('.')[0]) >= 10", {True}, {False}),
        ("trt.__version__ >= '10'", {True}, {True, False}),
        ("trt.__version__[0] < '7'", {True, False}, {False}),
        ("float(trt.__version__[:3]) >= 8.5", {True}, {True}),
        ("trt.__version__.split('.')[0] in ('8', '9')", {False}, {True}),
        ("tuple(int(n) for n in trt.__version__.split('.') if n) > (8, 6, 0)", {True}, {True}),
        ("list(map(int, trt.__version__.split('.')))[0] == 8", {False}, {True}),
        ("Version(trt.__version__) < Version('10.0')", {False}, {True}),
        ("not int(trt.__version__.split('.')[0]) < 10", {True}, {False}),
        ("(9 if trt.__version__.startswith('8') else 1) > 5", {False}, {True}),
        ("int(trt.__version__.split('.')[0]) * 1000 - 1 >= 10000", {True}, {False}),
        ("trt_version() >= '10.0'", {True}, {True, False}),
        ("TRT_MAJOR_VERSION >= 10", {True}, {False}),
        ("trt_version > [8, 5]", {True}, {True}),
        ("os.environ['x'] == trt.__version__", set(), set()),
        ("trt.__version__ is None", set(), set()),
        ("int('x') > trt.__version__", set(), set()),
    ],
)
def test_a_version_check_is_worked_out(test: str, on_11: set[bool], on_8: set[bool]) -> None:
    assert (outcome(test), outcome(test, "8.6.1")) == (on_11, on_8)


def test_conditions_combine() -> None:
    table = ApiTable.load("11.4")
    yes, no, unclear = has("IPluginV3"), has("UffParser"), UNCLEAR
    assert [one.holds(table) for one in (yes, no, unclear, opposite(yes), opposite(unclear))] == [
        True,
        False,
        None,
        False,
        None,
    ]
    assert [all_of(parts).holds(table) for parts in ((), (yes, unclear), (no, unclear), (yes, yes))] == [
        True,
        None,
        False,
        True,
    ]
    assert [any_of(parts).holds(table) for parts in ((), (yes, unclear), (no, unclear), (no, no))] == [False, True, None, False]
    assert [opposite(all_of((yes, part))).holds(table) for part in (yes, no, unclear)] == [False, True, None]
    assert [opposite(any_of((no, part))).holds(table) for part in (yes, no, unclear)] == [False, True, None]
    assert [presumed(part).holds(table) for part in (yes, no, unclear)] == [True, False, True]
    assert opposite(presumed(no)).holds(table) is True and opposite(opposite(yes)).holds(table) is True
    assert has("*.num_io_tensors").holds(table) is True and has("*.num_bindings").holds(table) is False


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


def test_variables_and_functions_are_looked_up() -> None:
    assert outcome("major >= 10", major="int(trt.__version__.split('.')[0])") == {True}
    assert outcome("new()", **{"new()": "trt.__version__.startswith('11')"}) == {True}
    assert outcome("endless", endless="endless") == set()
