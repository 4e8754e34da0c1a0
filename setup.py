"""A wheel holds the learner's course: the library without references, and what `course start` copies. The rest: pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # pip builds without this folder in the path

from course_lib.grading.nbgrader import bundle  # noqa: E402


class LearnersCourse(build_py):
    """Adds the files of `bundle.installed`."""

    def run(self) -> None:
        """An editable installation reads the files where they are, so nothing is written for it."""
        super().run()
        if not self.editable_mode:
            if not (ROOT / "lectures").is_dir():
                sys.exit(f"{ROOT} has no lectures/: build the wheel from the repository, not from an sdist")
            bundle.write_files(bundle.installed(ROOT), Path(self.build_lib))


setup(cmdclass={"build_py": LearnersCourse})
