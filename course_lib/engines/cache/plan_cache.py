"""A cache of plans: a plan for the same model, recipe, backend and device is not compiled again.

Each entry is a folder named after its key, the SHA-256 of everything that the build depends on. It is written under another
name, flushed to disk, then renamed, so a reader finds a complete entry or none. A digest covers every byte, and each hit checks
it, so the cache returns exactly what a compiler stored. A plan is executable code: anyone who can write to the folder of the cache
can run code as you. The folder and its entries are therefore accessible only to you.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from course_lib._util.files import cache_folder
from course_lib.engines.cache.fingerprint import build_fingerprint, cache_key, files_beside
from course_lib.engines.compiler import Compiler
from course_lib.engines.plan import Plan
from course_lib.engines.progress import Report
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import PlanError

if TYPE_CHECKING:
    from course_lib.engines.cache.fingerprint import Model
    from course_lib.recipe import Recipe  # a worker imports this package in environments without pydantic

_PLAN, _DESCRIPTION, _ENTRY = "model.plan", "model.plan.json", "entry.json"
_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ".temporary-"  # only the holder of the lock has any; those that another finds were left by a killed process
_LOCK_WAIT_S = 30.0  # a store takes well under a second; a cache must not keep a build waiting behind a stopped process


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
    """One plan in the cache. If the entry is damaged, `model_sha256`, `backend` and `version` are empty.

    Attributes:
        key: name of its folder.
        model_sha256: digest of the ONNX file.
        backend, version: the compiler that built it.
        size_bytes: size of all its files.
        age_s: seconds since it was built.
        idle_s: seconds since it was built or last used.
    """

    key: str
    model_sha256: str
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

        A cache hit only reads and hashes the plan, and the model if this process has not hashed it yet. With
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
            if (plan := _read(entry, fingerprint)) is not None:
                _touch(entry)
                return Built(plan, "hit", f"cached for this model, recipe, device and {who}")
        except PlanError as error:
            outcome, reason = "rebuilt", f"the cached plan was not used: {error}"
        plan = compiler.build(model, recipe, time_limit_s=time_limit_s, progress=progress)
        try:
            if plan.onnx_sha256 != fingerprint["model"] or (
                fingerprint["files"] and files_beside(model) != fingerprint["files"]
            ):
                raise PlanError("the model changed while it was compiled")
            self._store(entry, fingerprint, plan)
        except PlanError as error:
            reason += f"; not cached: {error}"
        return Built(plan, outcome, reason)

    def entries(self) -> tuple[Entry, ...]:
        """The entries of the cache, least recently used first.

        Raises:
            PlanError: the folder exists and cannot be read.
        """
        try:
            paths = [path for path in self.folder.iterdir() if _KEY.fullmatch(path.name)]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise PlanError(f"{self.folder} cannot be read: {error.strerror}") from None
        now = time.time()
        found = [entry for entry in (_describe(path, now) for path in paths) if entry is not None]
        return tuple(sorted(found, key=lambda entry: (-entry.idle_s, entry.key)))

    def prune(self, max_bytes: int) -> tuple[Entry, ...]:
        """Remove the least recently used entries until the others take at most `max_bytes`. Return the removed entries.

        Raises:
            ValueError: `max_bytes` is negative.
            PlanError: the folder cannot be changed.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be 0 or more, found {max_bytes}")
        return self._remove_until(max_bytes)

    def clear(self) -> tuple[Entry, ...]:
        """Remove every entry and no other file of the folder. Return the removed entries.

        Raises:
            PlanError: the folder cannot be changed.
        """
        return self._remove_until(-1)

    def _remove_until(self, max_bytes: int) -> tuple[Entry, ...]:
        if not self.folder.exists():
            return ()
        removed = []
        with self._locked():
            entries = self.entries()
            total = sum(entry.size_bytes for entry in entries)
            for entry in entries:
                if total <= max_bytes:
                    break
                self._discard(self.folder / entry.key)
                total -= entry.size_bytes
                removed.append(entry)
        return tuple(removed)

    def _store(self, entry: Path, fingerprint: dict[str, Any], plan: Plan) -> None:
        """Write a complete entry or none, unless another process has written a valid one in the meantime.

        Raises:
            PlanError: the folder cannot be written to, or its disk is full.
        """
        with self._locked():
            with contextlib.suppress(PlanError):
                if _read(entry, fingerprint) is not None:
                    return
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
            try:
                plan.save(new / _PLAN)
                digest = hashlib.sha256((new / _DESCRIPTION).read_bytes()).hexdigest()
                with open(new / _ENTRY, "wb") as file:
                    file.write(json.dumps({"fingerprint": fingerprint, "description_sha256": digest}, indent=1).encode())
                    file.flush()
                    os.fsync(file.fileno())
                _sync(new)
                self._discard(entry)  # a damaged one
                new.rename(entry)
                _sync(self.folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)

    def _discard(self, entry: Path) -> None:
        """Remove an entry if it exists. Its name goes first, so that no reader finds a part of it. Call with the lock held."""
        if os.path.lexists(entry):
            away = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
            entry.rename(away / entry.name)
            shutil.rmtree(away)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder, and delete what killed processes left. The kernel releases the lock when its owner ends.

        Raises:
            PlanError: the body raised an `OSError`, or another process kept the lock for `_LOCK_WAIT_S`.
        """
        from filelock import FileLock, Timeout  # here, as a worker's environment may not have it

        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock", timeout=_LOCK_WAIT_S, poll_interval=0.01):
                for remains in self.folder.glob(f"{_TEMPORARY}*"):
                    shutil.rmtree(remains, ignore_errors=True)
                yield
        except Timeout:
            held = f"another process has held its lock for {_LOCK_WAIT_S:g} s"
            raise PlanError(f"cannot write to {self.folder}: {held}") from None
        except NotImplementedError:  # from filelock 3
            raise PlanError(f"cannot write to {self.folder}: its file system has no locks") from None
        except OSError as error:
            raise PlanError(f"cannot write to {self.folder}: {error.strerror}") from None


def _read(entry: Path, fingerprint: dict[str, Any]) -> Plan | None:
    """The plan of an entry, or None if there is none.

    Raises:
        PlanError: the entry is damaged, or has another fingerprint.
    """
    while (before := _identity(entry)) is not None:
        try:
            return _load(entry, fingerprint)
        except PlanError:
            if _identity(entry) == before:
                raise
        # another process removed or replaced the entry while it was read: see what is there now
    return None


def _load(entry: Path, fingerprint: dict[str, Any]) -> Plan:
    """`entry.json` vouches for the plan's description and that for the plan; what it was made of is known beforehand."""
    try:
        known = json.loads((entry / _ENTRY).read_bytes())
        found = dict(known["fingerprint"])
        if other := sorted(name for name in found.keys() | fingerprint.keys() if found.get(name) != fingerprint.get(name)):
            raise PlanError(f"it was made for another {', '.join(other)[:80]}")
        if known["description_sha256"] != hashlib.sha256((entry / _DESCRIPTION).read_bytes()).hexdigest():
            raise PlanError(f"{_DESCRIPTION} is corrupt")
        return Plan.load(entry / _PLAN)
    except FileNotFoundError as error:
        raise PlanError(f"{Path(error.filename).name} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PlanError(f"its {_ENTRY} or {_DESCRIPTION} cannot be read ({type(error).__name__})") from None


def _identity(entry: Path) -> tuple[int, int] | None:
    """Changes when another folder takes the name; None if there is none."""
    try:
        found = os.lstat(entry)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PlanError(f"{entry.parent} cannot be read: {error.strerror}") from None
    return found.st_ino, found.st_ctime_ns


def _describe(entry: Path, now: float) -> Entry | None:
    """The `Entry` of a folder at a time on `time.time()`; None if it has just been removed."""
    model, backend, version = "", "", ""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        fingerprint = json.loads((entry / _ENTRY).read_bytes())["fingerprint"]
        model, backend, version = (str(fingerprint[name]) for name in ("model", "backend", "version"))
    try:
        used = entry.stat().st_mtime
        files = [path.stat() for path in entry.iterdir()] if entry.is_dir() else [entry.stat()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PlanError(f"{entry} cannot be read: {error.strerror}") from None
    size, built = sum(file.st_size for file in files), max((file.st_mtime for file in files), default=used)
    return Entry(entry.name, model, backend, version, size, now - built, now - max(used, built))


def _touch(entry: Path) -> None:
    """Record the use of an entry, if possible."""
    with contextlib.suppress(OSError):
        os.utime(entry, ns=(time.time_ns(), time.time_ns()))


def _sync(folder: Path) -> None:
    """Have the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
