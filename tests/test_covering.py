"""Every module has a test file near it: `tests/covering.py` finds it."""

from __future__ import annotations

from tests.covering import MODULES, covering

# These are started by path, in their own process; the tests of their lab start them.
STARTED = (
    "course_lib._util.lazy_names",  # the packages import it
    "course_lib.__main__",
    "course_lib.standin.pycuda_modules.autoinit",  # the stand-in imports it as pycuda.autoinit
)


def test_a_module_has_a_test_file_within_three_imports() -> None:
    modules = [name for name, path in MODULES.items() if path.name != "__init__.py"]
    far = [name for name in modules if not name.startswith(STARTED) and not any(d <= 3 for d, _ in covering(name))]
    assert far == []
    assert (1, "tests/engines/test_plan.py") in covering("course_lib.engines.plan")
