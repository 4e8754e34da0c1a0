"""Every module has a test file near it: `tests/covering.py` finds it."""

import re

from tests.covering import MODULES, _imports, covering

# These are started by path, in their own process; the tests of their lab start them.
STARTED = (
    "course_lib._util.lazy_names",  # the packages import it
    "course_lib.__main__",
    "course_lib.standin.pycuda_modules.autoinit",  # the stand-in imports it as pycuda.autoinit
)


def test_a_module_has_a_test_file_within_three_imports() -> None:
    library, tests = _imports()
    near = reached = set().union(*tests.values())
    for _ in range(2):
        near = set().union(*(library.get(name, set()) for name in near)) - reached
        reached = reached | near
    modules = {name for name, path in MODULES.items() if path.name != "__init__.py" and not name.startswith(STARTED)}
    drawn = {
        name for name in modules if re.fullmatch(r"course_lib\.labs\.lab\w+\.figures", name)
    }  # by solutions, which tests run
    assert sorted(modules - reached - drawn) == []
    assert (1, "tests/engines/test_plan.py") in covering("course_lib.engines.plan")
