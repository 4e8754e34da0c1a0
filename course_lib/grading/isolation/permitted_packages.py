"""The files of permitted packages, and the folders with all others, so that a sandbox shows only the permitted ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

_SITES = ("site-packages", "dist-packages")
_OTHER_ENVIRONMENTS = ("envs", "pkgs")  # of conda and pyenv, inside a prefix
_WHOLE = (".libs", ".dist-info", ".egg-info", ".data")  # folders that belong to one package, although they are not modules


@cache
def files_of(packages: Sequence[str]) -> tuple[Path, ...]:
    """Files and folders of these packages and of all that they require. A package that is not installed has none."""
    return tuple(sorted({path for one in _with_required(packages) for path in _files(one)}))


@cache
def folders_with_others(root: Path) -> tuple[Path, ...]:
    """Folders inside `root` with installed packages or with other environments, wherever they are. Links are not followed."""
    found = []
    for folder, inner, _ in os.walk(root):
        names = [one for one in inner if one in _SITES or (one in _OTHER_ENVIRONMENTS and folder == str(root))]
        found += [Path(folder, one) for one in names]
        inner[:] = [one for one in inner if one not in names]
    return tuple(sorted(found))


def library_folders() -> list[Path]:
    """Folders in which programs find shared libraries besides the usual ones."""
    named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for file in (Path("/etc/ld.so.conf"), *Path("/etc/ld.so.conf.d").glob("*.conf")):
        if file.is_file():
            named += file.read_text(encoding="utf-8", errors="replace").split()
    return sorted({Path(one) for one in named if one.startswith("/") and Path(one).is_dir()})


def _with_required(packages: Sequence[str]) -> Iterator[metadata.Distribution]:
    """The installed packages among these, and among those that they require, each once."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    seen, left = set(), [(name, "") for name in packages]
    while left:
        name, extra = one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for line in found.requires or ():
            required = Requirement(line)
            if not required.marker or required.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(required.name), one) for one in ("", *required.extras)]
        if not extra:
            yield found


def _files(package: metadata.Distribution) -> Iterator[Path]:
    """Where a package is installed: whole folders, except those that it shares with others."""
    site = Path(str(package.locate_file("")))
    listed = {file.parts[:2] for file in package.files or () if file.parts[0] != ".." and not file.is_absolute()}
    found = {_own(site, parts) for parts in listed}
    if not any(path.exists() for path in found):  # a Linux distribution's package does not list its files
        modules = (package.read_text("top_level.txt") or package.metadata["Name"].replace("-", "_")).split()
        found = {site / f"{name}{ending}" for name in modules for ending in ("", ".py", ".libs")}
        found |= {path for name in modules for pattern in ("{}.*.so", "{}-*-info") for path in site.glob(pattern.format(name))}
    yield from (path for path in found if path.exists())


def _own(site: Path, parts: Sequence[str]) -> Path:
    """The folder of a listed file below `site`. Of a folder without a module's first file, only what is in it belongs to a package."""
    first = site / parts[0]
    whole = parts[0].endswith(_WHOLE) or (first / "__init__.py").exists()
    return first if whole or len(parts) == 1 else first / parts[1]
