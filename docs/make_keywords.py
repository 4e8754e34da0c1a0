"""Write the keywords of Torch-TensorRT's releases: course_lib/engines/backends/torch_tensorrt/keywords.json.

    python docs/make_keywords.py 2.14.0 WHEEL...

Each argument is a version, which pip downloads, or a local wheel. The scanner of old code reads the table.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.engines.backends.torch_tensorrt import keywords
from course_lib.engines.backends.torch_tensorrt.keywords import SOURCES, Keywords, of_sources

TABLE = Path(keywords.__file__).with_suffix(".json")


def read_wheel(path: Path) -> tuple[str, Keywords]:
    """Version ``"major.minor"`` and keywords of one wheel.

    Raises:
        ValueError: the file is not a wheel of Torch-TensorRT, or its functions have moved.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            sources = {name: ast.parse(wheel.read(f"torch_tensorrt/{name}.py")) for name in SOURCES}
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise ValueError(f"{path} is not a wheel of torch-tensorrt: {error}") from None
    version = re.match(r"torch_tensorrt-(\d+\.\d+)", path.name)
    if not version:
        raise ValueError(f"{path.name}: expected a wheel's name, torch_tensorrt-VERSION-...")
    return version[1], of_sources(sources)


def download(version: str, folder: Path) -> Path:
    """Torch-TensorRT's wheel for Linux (4 MB, Python code and one library) from pip's registry.

    Raises:
        ValueError: pip cannot download it; the message is pip's last line.
    """
    platforms = [word for name in ("manylinux_2_28", "manylinux_2_34") for word in ("--platform", f"{name}_x86_64")]
    wanted = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.11", *platforms]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wanted, "--dest", str(folder), f"torch-tensorrt=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = list(folder.glob(f"torch_tensorrt-{version}-*.whl"))
    if not found:
        raise ValueError(
            f"pip cannot download torch-tensorrt {version}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}"
        )
    return found[0]


def write(versions: Mapping[str, Keywords]) -> None:
    """Write the table with one line per list, so that changes are easy to read."""
    rows = (
        f' "{version}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(words)}' for name, words in functions.items()) + "\n }"
        for version, functions in sorted(versions.items(), key=lambda item: [int(part) for part in item[0].split(".")])
    )
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main(sources: Sequence[str]) -> None:
    """Add the keywords of releases to the table. Each source is a wheel, or a version that pip downloads."""
    known: dict[str, Keywords] = json.loads(TABLE.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            version, read = read_wheel(Path(source) if source.endswith(".whl") else download(source, Path(folder)))
            known[version] = read
    write(known)


if __name__ == "__main__":
    main(sys.argv[1:])
