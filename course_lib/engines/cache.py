"""A cache of plans: what was compiled once for a model, a recipe, a backend and a device is not compiled again.

Each entry is a folder named after its key, the SHA-256 of everything that the build depends on. It is written under another
name, flushed to the disk, then renamed, so that a reader finds all of it or nothing; and every byte of it is under a digest
that each hit checks, so that what comes out of the cache is what a compiler once put in. A plan is executable code: whoever
can write to the cache's folder can run code as you, which is why the folder and its entries are made for you alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from course_lib.engines import cuda_driver
from course_lib.engines.base import Plan
from course_lib.engines.build import Compiler, default_builder
from course_lib.engines.environments import split_target
from course_lib.engines.progress import Report
from course_lib.engines.worker import Launcher
from course_lib.errors import BuildError, PlanError
from course_lib.files import cache_folder

if TYPE_CHECKING:
    import onnx

    from course_lib.recipe import Recipe  # a worker imports this package in environments without pydantic

    Model = onnx.ModelProto | str | os.PathLike[str]

FORMAT = 2  # raise it when the course's own part of a build changes: what `compile_plan` asks of a compiler or notes in a plan
_PLAN, _DESCRIPTION, _ENTRY = "model.plan", "model.plan.json", "entry.json"
_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ".temporary-"  # only the holder of the lock has any; those that another finds were left by a killed process
_LOCK_WAIT_S = 30.0  # a store takes well under a second; a cache must not keep a build waiting behind a stopped process
_CHUNK = 1 << 20
_RACY_S = 1.0  # far above the tick of any file system's clock


@dataclass(frozen=True)
class Built:
    """A plan and how it was obtained.

    Attributes:
        plan: the same as `engines.build` returns.
        outcome: "hit" came from the cache, "built" was not in it, "rebuilt" was in it but could not be trusted.
        reason: one line for a person; it also says so where a new plan could not be cached.
    """

    plan: Plan
    outcome: Literal["hit", "built", "rebuilt"]
    reason: str


@dataclass(frozen=True)
class Entry:
    """One plan in the cache. Where the entry is damaged, `model_sha256`, `backend` and `version` are empty.

    Attributes:
        key: name of its folder.
        model_sha256: digest of the ONNX file.
        backend, version: who built it.
        size_bytes: of all its files.
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
    """The plans kept in one folder, which need not exist yet. Any number of processes and threads may share it.

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
        """`engines.build`, unless the plan is at hand already; the arguments are the same.

        A hit reads and hashes the plan, and the model where this process has not done so yet, and no more. With
        ``name@environment`` it also starts that interpreter once, to ask for the backend's version. A build that fails leaves
        nothing in the cache. A plan that cannot be cached (read-only folder, full disk) is returned all the same.

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
        """`build` with a compiler that builds others, too: its process starts for the first plan that is not at hand."""
        backend, launcher = compiler.backend, compiler.launcher
        ingredients = made_of(model, recipe, backend=backend, launcher=launcher, version=compiler.version())
        entry = self.folder / key_of(ingredients)
        who = f"{ingredients['backend']} {ingredients['version']}"
        outcome: Literal["built", "rebuilt"] = "built"
        reason = f"not in the cache for this model, recipe, device and {who}"
        try:
            if (plan := _read(entry, ingredients)) is not None:
                _touch(entry)
                return Built(plan, "hit", f"cached for this model, recipe, device and {who}")
        except PlanError as error:
            outcome, reason = "rebuilt", f"the cached plan was not used: {error}"
        plan = compiler.build(model, recipe, time_limit_s=time_limit_s, progress=progress)
        try:
            if plan.onnx_sha256 != ingredients["model"] or (ingredients["files"] and _files(model) != ingredients["files"]):
                raise PlanError("the model changed while it was compiled")
            self._store(entry, ingredients, plan)
        except PlanError as error:
            reason += f"; not cached: {error}"
        return Built(plan, outcome, reason)

    def entries(self) -> tuple[Entry, ...]:
        """What is in the cache, least recently used first.

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
        """Remove the least recently used entries until the others take `max_bytes` or less; returns those removed.

        Raises:
            ValueError: `max_bytes` is negative.
            PlanError: the folder cannot be changed.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be 0 or more, found {max_bytes}")
        return self._remove_until(max_bytes)

    def clear(self) -> tuple[Entry, ...]:
        """Remove every entry, and nothing else that may lie in the folder; returns those removed.

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

    def _store(self, entry: Path, ingredients: dict[str, Any], plan: Plan) -> None:
        """Write an entry, all or nothing, unless another process has written a good one in the meantime.

        Raises:
            PlanError: the folder cannot be written to, or its disk is full.
        """
        with self._locked():
            with contextlib.suppress(PlanError):
                if _read(entry, ingredients) is not None:
                    return
            new = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
            try:
                plan.save(new / _PLAN)
                digest = hashlib.sha256((new / _DESCRIPTION).read_bytes()).hexdigest()
                with open(new / _ENTRY, "wb") as file:
                    file.write(json.dumps({"made_of": ingredients, "description_sha256": digest}, indent=1).encode())
                    file.flush()
                    os.fsync(file.fileno())
                _sync(new)
                self._discard(entry)  # a damaged one
                new.rename(entry)
                _sync(self.folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)

    def _discard(self, entry: Path) -> None:
        """Remove an entry, if there is one: first its name, so that no reader meets a part of it. Call with the lock held."""
        if os.path.lexists(entry):
            away = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
            entry.rename(away / entry.name)
            shutil.rmtree(away)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The right to change the folder, with the remains of killed processes swept away. The kernel ends it with its owner.

        Raises:
            PlanError: for any `OSError` of the body too; or another process has kept the lock for `_LOCK_WAIT_S`.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self.folder / ".lock", "ab") as lock:
                deadline = time.monotonic() + _LOCK_WAIT_S
                while not _try_lock(lock.fileno()):
                    if time.monotonic() > deadline:
                        raise TimeoutError(errno.ETIMEDOUT, f"another process has held its lock for {_LOCK_WAIT_S:g} s")
                    time.sleep(0.01)
                for remains in self.folder.glob(f"{_TEMPORARY}*"):
                    shutil.rmtree(remains, ignore_errors=True)
                yield
        except OSError as error:
            raise PlanError(f"cannot write to {self.folder}: {error.strerror}") from None


def made_of(
    model: Model,
    recipe: Recipe | None = None,
    *,
    backend: str | None = None,
    launcher: Launcher | None = None,
    version: str | None = None,
) -> dict[str, Any]:
    """Everything that a build depends on, as plain JSON values; the arguments are those of `engines.build`.

    The backend's version is asked for where it is not given, in another interpreter by starting it.

    The device is the model of the GPU and its compute capability: TensorRT warns that an engine may be slow, or fail, on another
    model. With ``hardware_compatibility = "same_compute_capability"`` the plan is built for all models of one, which then share it.

    Raises:
        BackendUnavailable: there is no such backend or environment.
        BuildError: the model cannot be read, or the environment does not answer.
    """
    if version is None:
        with Compiler(backend) as compiler:
            version = compiler.version()
    if recipe is None:
        from course_lib.recipe import Recipe

        recipe = Recipe()
    digest, more = _model_sha256(model)
    return {
        "format": FORMAT,
        "model": digest,
        # With a launcher the compiler gets the model's bytes and cannot reach files beside it; and a hand-in must not choose
        # which files this process reads.
        "files": _files(model) if more and launcher is None else {},
        "recipe": recipe.wire(),
        "backend": split_target(backend or default_builder())[0],
        "version": version,
        "device": list(recipe.targets) or _device(shared=recipe.hardware_compatibility == "same_compute_capability"),
        "tactic_sources": os.environ.get("COURSE_TACTIC_SOURCES", ""),  # see trt.builder
    }


def _device(*, shared: bool) -> list[str]:
    capability = cuda_driver.capability()
    if capability is None:
        return ["no GPU"]
    return [capability] if shared else [capability, cuda_driver.model()]


def key_of(ingredients: dict[str, Any]) -> str:
    """SHA-256 in hexadecimal of the ingredients as canonical JSON: sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(ingredients, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read(entry: Path, ingredients: dict[str, Any]) -> Plan | None:
    """The plan of an entry, or None where there is none.

    Raises:
        PlanError: the entry is damaged, or not made of these ingredients.
    """
    while (before := _identity(entry)) is not None:
        try:
            return _load(entry, ingredients)
        except PlanError:
            if _identity(entry) == before:
                raise
        # another process removed or replaced the entry while it was read: see what is there now
    return None


def _load(entry: Path, ingredients: dict[str, Any]) -> Plan:
    """`entry.json` vouches for the plan's description and that for the plan; what it was made of is known beforehand."""
    try:
        known = json.loads((entry / _ENTRY).read_bytes())
        found = dict(known["made_of"])
        if other := sorted(name for name in found.keys() | ingredients.keys() if found.get(name) != ingredients.get(name)):
            raise PlanError(f"it was made for another {', '.join(other)[:80]}")
        if known["description_sha256"] != hashlib.sha256((entry / _DESCRIPTION).read_bytes()).hexdigest():
            raise PlanError(f"{_DESCRIPTION} is corrupt")
        return Plan.load(entry / _PLAN)
    except FileNotFoundError as error:
        raise PlanError(f"{Path(error.filename).name} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PlanError(f"its {_ENTRY} or {_DESCRIPTION} cannot be read ({type(error).__name__})") from None


def _identity(entry: Path) -> tuple[int, int] | None:
    """Changes when another folder takes the name; None where there is none."""
    try:
        found = os.lstat(entry)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PlanError(f"{entry.parent} cannot be read: {error.strerror}") from None
    return found.st_ino, found.st_ctime_ns


def _describe(entry: Path, now: float) -> Entry | None:
    """What `PlanCache.entries` says about an entry at a time on `time.time()`; None where it has just been removed."""
    model, backend, version = "", "", ""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        ingredients = json.loads((entry / _ENTRY).read_bytes())["made_of"]
        model, backend, version = (str(ingredients[name]) for name in ("model", "backend", "version"))
    try:
        used = entry.stat().st_mtime
        files = [path.stat() for path in entry.iterdir()] if entry.is_dir() else [entry.stat()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PlanError(f"{entry} cannot be read: {error.strerror}") from None
    size, built = sum(file.st_size for file in files), max((file.st_mtime for file in files), default=used)
    return Entry(entry.name, model, backend, version, size, now - built, now - max(used, built))


def _model_sha256(model: Model) -> tuple[str, bool]:
    """Digest of the model, and whether some of its weights may lie in files beside it.

    A tensor says where its data is with the key "location" (onnx.proto, `external_data`), so a file without that word has no
    such tensor, and most models need not be parsed.
    """
    if not isinstance(model, (str, os.PathLike)):
        return hashlib.sha256(model.SerializeToString()).hexdigest(), False  # in memory: there is nothing beside it
    try:
        return _sha256_once(Path(model), b"location")
    except FileNotFoundError:
        raise BuildError(f"{model}: no such file") from None
    except OSError as error:
        raise BuildError(f"{model} cannot be read: {error.strerror}") from None


def _files(model: Any) -> dict[str, str]:
    """Digests of the files beside an ONNX file that hold its weights, by the name it calls them; "" where there is none.

    Raises:
        BuildError: the file is not an ONNX model.
    """
    import onnx

    path = Path(model).resolve()  # as `engines.build` does: weights lie beside the file, not beside a link to it
    try:
        content = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's own class, which differs between its versions
        raise BuildError(f"the file is not an ONNX model, or only a part of one ({type(error).__name__})") from None
    digests = {}
    for location in sorted(set(_locations(content))):
        digests[location] = ""
        with contextlib.suppress(OSError, ValueError):  # ValueError: a name with a zero byte
            if stat.S_ISREG(os.stat(path.parent / location).st_mode):
                digests[location] = _sha256(path.parent / location)[0]
    return digests


def _locations(message: Any) -> Iterator[str]:
    """Every file that a tensor anywhere in a protobuf message keeps its data in: in initializers, attributes, functions."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        for child in value if isinstance(value, Iterable) else (value,):
            if descriptor.name == "external_data" and child.key == "location":
                yield child.value
            else:
                yield from _locations(child)


def _sha256_once(path: Path, word: bytes) -> tuple[str, bool]:
    """`_sha256`, from memory where this process has read the file and nothing has touched it since.

    A change within the clock's tick of the last one leaves the same times behind, so a file that was touched just now is read
    again (git calls such an entry racy). Nobody can set the time of the last change of a file's status.
    """
    status = path.stat()
    if time.time() - status.st_ctime < _RACY_S:
        return _sha256(path, word)
    touched = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _sha256_of(path, word, touched)


@lru_cache(maxsize=256)
def _sha256_of(path: Path, word: bytes, touched: tuple[int, ...]) -> tuple[str, bool]:
    return _sha256(path, word)


def _sha256(path: Path, word: bytes = b"") -> tuple[str, bool]:
    """Digest of a file, and whether `word` occurs in it. In chunks: a large file is never in memory as a whole."""
    digest, found, tail = hashlib.sha256(), not word, b""
    buffer = bytearray(_CHUNK)
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(memoryview(buffer)[:size])
            if not found:
                seam = tail + bytes(buffer[: min(size, len(word))])
                found = buffer.find(word, 0, size) >= 0 or word in seam
                tail = (seam if size < len(word) else bytes(buffer[size - len(word) : size]))[-len(word) :]
    return digest.hexdigest(), found


def _touch(entry: Path) -> None:
    """Note that an entry was used, where that may be noted."""
    with contextlib.suppress(OSError):
        os.utime(entry, ns=(time.time_ns(), time.time_ns()))


def _sync(folder: Path) -> None:
    """Have the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
