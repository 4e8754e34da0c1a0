"""A cache of plans: a plan for the same model, recipe, backend and device is not compiled again.

Each entry is a folder named after its key, the SHA-256 of everything that the build depends on. It is written under another
name, then renamed, so a reader finds a complete entry or none. A digest covers every byte, and each hit checks it, so the cache
returns exactly what a compiler stored. A plan is executable code: anyone who can write to the folder of the cache can run code as
you. The folder and its entries are therefore accessible only to you.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from course_lib._util.files import cache_folder
from course_lib.engines.cache.fingerprint import build_fingerprint, cache_key, weights_sha256
from course_lib.engines.compiler import Compiler
from course_lib.engines.plan import Plan
from course_lib.engines.progress import Report
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import PlanError

if TYPE_CHECKING:
    from course_lib.engines.cache.fingerprint import Model
    from course_lib.recipe import Recipe  # a worker imports this package in environments without pydantic

_PLAN, _DESCRIPTION = "model.plan", "model.plan.json"
_TEMPORARY = ".temporary-"
_REMAINS_S = 3600.0  # no store takes so long: a killed process left what is older


@dataclass(frozen=True)
class Built:
    """A plan and how it was obtained.

    Attributes:
        plan: the same as `engines.build` returns.
        outcome: "hit" if the plan came from the cache, "built" if it was not there, "rebuilt" if its entry could not be trusted.
        reason: one readable line; it also says if a new plan could not be cached.
    """

    plan: Plan
    outcome: Literal["hit", "built", "rebuilt"]
    reason: str


@dataclass(frozen=True)
class Entry:
    """One plan in the cache. If the entry is damaged, `backend` and `version` are empty.

    Attributes:
        key: name of its folder.
        backend, version: the compiler that built it.
        size_bytes: size of all its files.
        age_s: seconds since it was built.
        idle_s: seconds since it was built or last used.
    """

    key: str
    backend: str
    version: str
    size_bytes: int
    age_s: float
    idle_s: float


@dataclass(frozen=True)
class PlanCache:
    """A cache of plans in one folder, which need not exist yet. Any number of processes and threads may share it.

    >>> PlanCache("/tmp/plans").folder.name
    'plans'
    """

    folder: Path = field(default_factory=lambda: cache_folder("plans"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).absolute())

    def build(
        self,
        model: Model,
        recipe: Recipe | None = None,
        *,
        backend: str | None = None,
        time_limit_s: float = 600.0,
        launcher: Launcher | None = None,
        progress: bool | Report = False,
    ) -> Built:
        """Return the plan from the cache, or build it with the same arguments as `engines.build`.

        A cache hit only reads and hashes the plan and the model, with its weights. With
        ``name@environment`` it also starts that interpreter once, to ask for the backend's version. A failed build leaves
        nothing in the cache. A plan that cannot be cached (read-only folder, full disk) is still returned.

        Raises:
            BackendUnavailable, BuildError, PrecisionError: as `engines.build`.
        """
        with Compiler(backend, launcher=launcher) as compiler:
            return self.build_with(compiler, model, recipe, time_limit_s=time_limit_s, progress=progress)

    def build_with(
        self,
        compiler: Compiler,
        model: Model,
        recipe: Recipe | None = None,
        *,
        time_limit_s: float = 600.0,
        progress: bool | Report = False,
    ) -> Built:
        """`build` with a shared compiler, whose process starts for the first plan that is not in the cache."""
        backend, launcher = compiler.backend, compiler.launcher
        fingerprint = build_fingerprint(model, recipe, backend=backend, launcher=launcher, version=compiler.version())
        entry = self.folder / cache_key(fingerprint)
        who = f"{fingerprint['backend']} {fingerprint['version']}"
        outcome: Literal["built", "rebuilt"] = "built"
        reason = f"not in the cache for this model, recipe, device and {who}"
        try:
            plan = Plan.load(entry / _PLAN)
            with contextlib.suppress(OSError):  # a cache that cannot be written to
                os.utime(entry)
            return Built(plan, "hit", f"cached for this model, recipe, device and {who}")
        except PlanError as error:
            if os.path.lexists(entry):  # unlike `Path.exists`, it does not raise in a folder that cannot be entered
                outcome, reason = "rebuilt", f"the cached plan was not used: {error}"
        plan = compiler.build(model, recipe, time_limit_s=time_limit_s, progress=progress)
        try:
            weights = fingerprint["weights"]
            if plan.onnx_sha256 != fingerprint["model"] or (weights and weights_sha256(Path(str(model))) != weights):
                raise PlanError("the model changed while it was compiled")
            self._store(entry, plan, damaged=outcome == "rebuilt")
        except PlanError as error:
            reason += f"; not cached: {error}"
        return Built(plan, outcome, reason)

    def entries(self) -> tuple[Entry, ...]:
        """The entries of the cache, least recently used first."""
        folders = (path.parent for path in self.folder.glob(f"[0-9a-f]*/{_DESCRIPTION}"))
        return tuple(sorted(filter(None, map(_describe, folders)), key=lambda entry: (-entry.idle_s, entry.key)))

    def prune(self, max_bytes: int) -> tuple[Entry, ...]:
        """Remove the least recently used entries until the others take at most `max_bytes`. Return the removed entries.

        Raises:
            ValueError: `max_bytes` is negative.
            PlanError: the folder cannot be changed.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be 0 or more, found {max_bytes}")
        for remains in self.folder.glob(f"{_TEMPORARY}*"):
            with contextlib.suppress(FileNotFoundError):  # another process has just finished it
                if time.time() - remains.stat().st_mtime > _REMAINS_S:
                    shutil.rmtree(remains, ignore_errors=True)
        removed, entries = [], self.entries()
        total = sum(entry.size_bytes for entry in entries)
        for entry in entries:
            if total <= max_bytes:
                break
            try:
                shutil.rmtree(self.folder / entry.key)
            except FileNotFoundError:
                pass  # another process removes it, too
            except OSError as error:
                raise PlanError(f"cannot write to {self.folder}: {error.strerror}") from None
            total -= entry.size_bytes
            removed.append(entry)
        return tuple(removed)

    def _store(self, entry: Path, plan: Plan, *, damaged: bool) -> None:
        """Write a complete entry or none.

        Raises:
            PlanError: the folder cannot be written to, or its disk is full.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
        except OSError as error:
            raise PlanError(f"cannot write to {self.folder}: {error.strerror}") from None
        try:
            plan.save(new / _PLAN)
            if damaged:
                shutil.rmtree(entry, ignore_errors=True)
            new.rename(entry)
        except OSError as error:
            if not entry.is_dir():  # otherwise another process stored the same plan in the meantime
                raise PlanError(f"cannot write to {self.folder}: {error.strerror}") from None
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _describe(entry: Path) -> Entry | None:
    """The `Entry` of a folder; None if another process removes it."""
    backend, version, now = "", "", time.time()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads((entry / _DESCRIPTION).read_bytes())
        backend, version = str(known["backend"]), str(known["version"])
    try:
        files = [path.stat() for path in entry.iterdir()]
        built = max(file.st_mtime for file in files)
        idle_s = now - max(entry.stat().st_mtime, built)
    except (OSError, ValueError):
        return None
    return Entry(entry.name, backend, version, sum(file.st_size for file in files), now - built, idle_s)
