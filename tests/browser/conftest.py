"""A JupyterLab on a copy of the course, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "test-artifacts"
TOKEN = "read-the-course"
NOT_EXECUTED = "lectures/0[1246-9]* lectures/1[013-7]*"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the course's folders, so that nothing in the repository changes."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("lectures", "labs", "solutions"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    return folder


@pytest.fixture(scope="session")
def jupyter(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of what `course lab` starts. The application object is exposed, to ask it when cells are done."""
    port, log = _free_port(), tmp_path_factory.mktemp("jupyter") / "log"
    home = tmp_path_factory.mktemp("home")
    settings = home / ".jupyter"
    settings.mkdir()
    (settings / "jupyter_server_config.py").write_text(
        "c.LabServerApp.expose_app_in_browser = True\nc.LabApp.expose_app_in_browser = True\n"
    )
    environment = {
        **os.environ,
        "COURSE_ROOT": str(course),
        "JUPYTER_PORT": str(port),
        "JUPYTER_TOKEN": TOKEN,
        "JUPYTER_CONFIG_DIR": str(settings),
        "IPYTHONDIR": str(home / "ipython"),
        "BROWSER": "true",
        "PYTHONPATH": str(ROOT),
    }
    with open(log, "wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "course_lib.cli.app", "lab"], env=environment, stdout=output, stderr=output
        )
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + 240
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=2)
                break
            if server.poll() is not None or time.monotonic() > end:
                pytest.fail(f"JupyterLab did not start: {log.read_text()[-2000:]}")
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book with the outputs of lectures 3, 5 and 12; with those of all where `make book` has left it in COURSE_BOOK."""
    if built := os.environ.get("COURSE_BOOK"):
        return Path(built)
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, str(ROOT / "docs" / "make_book.py"), "--output", str(folder)]
    environment = {**os.environ, "COURSE_BOOK_EXCLUDES": NOT_EXECUTED}
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if not program:
        pytest.skip("no chromium: apt-get install chromium")
    ARTIFACTS.mkdir(exist_ok=True)
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser, request):
    """A page whose last look is kept as a test artifact."""
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    opened.set_default_timeout(60_000)
    yield opened
    opened.screenshot(path=ARTIFACTS / f"{request.node.name}.png")
    opened.close()
