"""The released package for TensorRT for RTX, in a folder of its own: `make` installs it, and only `without_gpu` reads it.

How the pins were solved. The wheel of torch-tensorrt-rtx 2.13.0 asks for ``tensorrt_rtx<1.6``, the course pins 1.7.1.116, and pip would
reject the two in one environment. The release works with both. So its files, and those of the one small package that the course does
not have (dllist), are installed with ``--no-deps --target`` beside the course's environment. Everything else that the wheel requires is
the course's own: torch 2.13, numpy, packaging, psutil, filelock and typing-extensions.

The folder is not in site-packages for three reasons. ``import torch_tensorrt`` fails without a GPU unless `without_gpu` prepares it. On a
machine with a GPU, the extra ``[gpu]`` installs another build of the package under the same name. The sandbox shows this folder wherever
it shows the interpreter, because it is in the interpreter's prefix.

The package's C++ libraries are removed. They need libtorch_cuda, which the CPU build of torch lacks. The package then announces that its
C++ runtime is absent, and works with its Python parts alone.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from course_lib.errors import BackendUnavailable

RELEASE = "2.13.0"
REQUIREMENTS = (f"torch-tensorrt-rtx=={RELEASE}", "dllist==2.0.0")
FOLDER = Path(sys.prefix, "torch_tensorrt")
INSTALL = "python -m course_lib.engines.backends.torch_tensorrt.installation"
_LIBRARIES = ("torch_tensorrt/lib/*.so", "torch_tensorrt/_C*.so")


def installed_release() -> str:
    """The version in the folder, "" if there is none."""
    found = sorted(FOLDER.glob("torch_tensorrt_rtx-*.dist-info"))
    return found[-1].name.removeprefix("torch_tensorrt_rtx-").removesuffix(".dist-info") if found else ""


def install() -> None:
    """Install the release into the folder, unless it is there.

    Raises:
        BackendUnavailable: pip failed.
    """
    if installed_release() == RELEASE:
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(FOLDER)]
    if subprocess.run([*command, *REQUIREMENTS], stdout=subprocess.DEVNULL).returncode:
        raise BackendUnavailable(f"pip could not install {REQUIREMENTS[0]} into {FOLDER}: is the network available? {INSTALL}")
    for pattern in _LIBRARIES:
        for library in FOLDER.glob(pattern):
            library.unlink()


def main() -> int:
    """Install, or say why this machine does without."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("Torch-TensorRT for RTX is installed only on x86-64 Linux: lecture 13 and lab 11 need it")
        return 0
    try:
        install()
    except BackendUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
