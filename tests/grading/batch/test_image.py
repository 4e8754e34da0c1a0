"""The image of `Containerfile` is built, and the demo's two submissions are graded in it as an ordinary user.

As root: ``make image-test``, which installs buildah and debootstrap. Where no registry of images is reached, the base is a Debian that
debootstrap makes. The image runs in its own mount and process namespaces: what an engine for containers does, without cgroups.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grading.conftest import ROOT

PROGRAMS = ("buildah", "debootstrap", "unshare", "setpriv")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces without a user's mapping need root"),
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="no buildah or debootstrap: make image-test installs them"),
]
IMAGE = "tensorrt-course-test"
BUILDAH = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
# $0 is the image's root, the rest a command for its user `grader`.
ENTER = """
mount --bind "$0" "$0" && mount --rbind /dev "$0/dev" && cd "$0" && mkdir -p old && pivot_root . old
mount -t proc proc /proc && mount -t tmpfs tmpfs /tmp && umount -l /old && cd /course
exec env -i PATH=/course/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin COURSE_ROOT=/course HOME=/home/grader \
  setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all --bounding-set=-all "$@"
"""


def buildah(*arguments: str) -> str:
    ran = subprocess.run(["buildah", *arguments], env=BUILDAH, capture_output=True, text=True)
    assert ran.returncode == 0, f"buildah {' '.join(arguments)}: {ran.stderr[-3000:]}"
    return ran.stdout.strip()


def base(name: str, scratch: Path) -> None:
    """The image that Containerfile begins with, pulled, or a Debian of that name with Python."""
    for there in (["images", "-q", name], ["pull", "-q", name]):
        if subprocess.run(["buildah", *there], env=BUILDAH, capture_output=True, timeout=300).returncode == 0:
            return
    packages = "--include=python3,python3-venv,python-is-python3,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, "bookworm", str(scratch)], check=True, stdout=subprocess.DEVNULL
    )
    container = buildah("from", "scratch")
    buildah("add", "-q", container, str(scratch), "/")
    buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    buildah("commit", "-q", "--rm", container, name)
    shutil.rmtree(scratch)


def pip_settings() -> list[str]:
    """This machine's settings of pip, and the folders that they name, as options of `buildah build`."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    settings = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", listed, re.M))
    options = [f"--env=PIP_{name.upper().replace('-', '_')}={value}" for name, value in settings.items()]
    named = {Path(path) for value in settings.values() for path in re.findall(r"(?:file://)?(/[\w./-]+)", value)}
    folders = {path if path.is_dir() else path.parent for path in named if path.exists()}
    return [*options, *(f"--volume={folder}:{folder}:ro" for folder in sorted(folders))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a container of the image."""
    scratch = tmp_path_factory.mktemp("image")
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"^FROM (\S+)", text, re.M)
    assert found
    base(found[1], scratch / "debian")
    context = scratch / "course"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(context)], check=True)
    buildah("build", "-q", "--pull=never", *pip_settings(), "-t", IMAGE, "-f", str(context / "Containerfile"), str(context))
    container = buildah("from", "--pull=never", IMAGE)
    yield Path(buildah("mount", container))
    buildah("rm", container)
    buildah("rmi", IMAGE)


def entered(root: Path, *command: str) -> str:
    inside = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "bash", "-c", ENTER, str(root), *command]
    ran = subprocess.run(inside, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_batch_is_graded_in_the_image_as_an_ordinary_user(root: Path) -> None:
    assert entered(root, "id", "-un").strip() == "grader"
    assert "sandbox for grading: ok" in entered(root, "course", "doctor")
    told = entered(root, "course", "demo")
    assert re.search(r"solution +10 of 12 points", told) and re.search(r"untouched +0 of 12 points", told), told
