"""Required packages that this interpreter lacks. This module needs only the standard library."""

from __future__ import annotations

from importlib import metadata

DISTRIBUTION = "tensorrt-course"
INSTALL = "run `pip install -c constraints.txt -e .` in the course's folder, or `make demo`, which makes an environment"


def missing_packages() -> tuple[str, ...]:
    """Required packages that are absent or have another version than the course requires; extras are not required."""
    try:
        from packaging.requirements import Requirement

        wanted = [Requirement(line) for line in metadata.requires(DISTRIBUTION) or ()]
    except (ImportError, metadata.PackageNotFoundError):
        return ()  # `packaging` comes with several of them; without metadata nothing is known of what is required
    missing = []
    for package in wanted:
        if package.marker and not package.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(package.name)
        except metadata.PackageNotFoundError:
            found = ""
        if not found or not package.specifier.contains(found, prereleases=True):
            missing.append(f"{package.name} {package.specifier}" + (f" (found {found})" if found else ""))
    return tuple(missing)


def advice(error: ModuleNotFoundError) -> str:
    """One line for an import that failed."""
    missing = missing_packages()
    listed = f"; missing in all: {', '.join(missing)}" if missing else ""
    return f"the Python package {(error.name or str(error)).partition('.')[0]!r} is not installed{listed}; {INSTALL}"
