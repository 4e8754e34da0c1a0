"""The kernel's every access under the address and undefined-behavior sanitizers: bounds, alignment, overflow of indices."""

import shutil
import subprocess
from pathlib import Path

import pytest

from course_lib.plugins.compilers import FOLDER, SOURCE

DRIVER = Path(__file__).with_name("sanitized.cpp")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


FLAGS = ("-std=c++17", "-O0", "-g1", *SANITIZERS, "-DROPE_ON_HOST", f"-I{FOLDER}")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler")
    probe = tmp_path_factory.mktemp("probe") / "probe.cpp"
    probe.write_text("int main() {}\n")
    if subprocess.run([found, *SANITIZERS, str(probe), "-o", str(probe.with_suffix(""))], capture_output=True).returncode != 0:
        pytest.skip(f"{found} has no sanitizers: install libasan and libubsan")
    return found


@pytest.fixture(scope="module")
def driver(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("driver") / "driver.o"
    subprocess.run([compiler, *FLAGS, "-c", str(DRIVER), "-o", str(output)], check=True)
    return output


def build_and_run(compiler: str, driver: Path, source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    program, kernel = folder / "sanitized", folder / "kernel.o"
    for command in (["-x", "c++", "-c", str(source), "-o", str(kernel)], [str(kernel), str(driver), "-o", str(program)]):
        subprocess.run([compiler, *FLAGS, *command], check=True)
    return subprocess.run([str(program)], capture_output=True, text=True, timeout=300)


def test_no_access_is_out_of_bounds_or_misaligned(compiler: str, driver: Path, tmp_path: Path) -> None:
    done = build_and_run(compiler, driver, SOURCE, tmp_path)
    assert done.returncode == 0 and " 0 wrong" in done.stdout, done.stdout + done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 3000
