"""Servers for the tests of lab 12: right ones that are not the reference, mistakes that learners make, and cheats."""

from __future__ import annotations

from course_lib.labs.lab12_serving.reference.files import sources
from course_lib.labs.lab12_serving.sandboxed.own_namespace import STASH, TEMPORARY

Sources = dict[str, str]
REFERENCE = sources()
GIVEN = sources("one_at_a_time")


def changed(old: str, new: str, base: Sources = REFERENCE) -> Sources:
    """A submission with one piece of its text replaced."""
    found = [name for name, text in base.items() if old in text]
    assert len(found) == 1, f"{old!r} is in {found}"
    return {**base, found[0]: base[found[0]].replace(old, new)}


def with_server(text: str) -> Sources:
    return {**REFERENCE, "server.py": text}


# A store with a folder a plan, a description beside it and a lock; a server with two engines, two threads and no window.
ANOTHER = {
    "store.py": """
import fcntl, hashlib, json, os, shutil, uuid

def plan_for(model, recipe, cache, engines):
    about = {"model": hashlib.blake2b(model).hexdigest(), "recipe": recipe, "by": [engines.version, engines.device]}
    entry = cache / hashlib.md5(json.dumps(about, sort_keys=True).encode()).hexdigest()
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            known = json.loads((entry / "about.json").read_text())
            plan = (entry / "plan").read_bytes()
            if known == {**about, "digest": hashlib.blake2b(plan).hexdigest()}:
                return plan
        except (OSError, ValueError):
            pass
        plan = engines.build(model, recipe)
        new = cache / uuid.uuid4().hex
        try:
            new.mkdir()
            (new / "plan").write_bytes(plan)
            (new / "about.json").write_text(json.dumps({**about, "digest": hashlib.blake2b(plan).hexdigest()}))
            os.sync()
            shutil.rmtree(entry, ignore_errors=True)
            new.rename(entry)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
        return plan
""",
    "server.py": """
import threading
from collections import deque
import numpy as np
import store

class Server:
    def __init__(self, model, recipe, cache, engines):
        self.given = recipe, cache, engines
        self.most = recipe["profiles"][0]["features"]["max"][0]
        self.change, self.queue = threading.Condition(), deque()
        self.engines = self.make(model)
        for number in range(2):
            threading.Thread(target=self.work, args=(number,), daemon=True).start()

    def make(self, model):
        recipe, cache, engines = self.given
        plan = store.plan_for(model.read_bytes(), recipe, cache, engines)
        return [engines.load(plan) for _ in range(2)]

    def reload(self, model):
        self.engines = self.make(model)

    def answer(self, feeds):
        rows = feeds.get("features")
        if len(feeds) != 1 or rows is None or rows.dtype != np.float32 or rows.shape[1:] != (256,):
            raise ValueError("malformed")
        if not 0 < len(rows) <= self.most or not np.all(np.isfinite(rows)):
            raise ValueError("malformed")
        request = {"rows": rows, "done": threading.Event()}
        with self.change:
            self.queue.append(request)
            self.change.notify()
        request["done"].wait()
        if "error" in request:
            raise RuntimeError(request["error"])
        return {"scores": request["scores"]}

    def work(self, number):
        while True:
            with self.change:
                self.change.wait_for(lambda: self.queue)
                batch = [self.queue.popleft()]
                while self.queue and sum(len(r["rows"]) for r in batch) + len(self.queue[0]["rows"]) <= self.most:
                    batch.append(self.queue.popleft())
            try:
                scores = self.engines[number].infer({"features": np.concatenate([r["rows"] for r in batch])})["scores"]
                for request in batch:
                    request["scores"], scores = scores[: len(request["rows"])], scores[len(request["rows"]) :]
            except Exception as error:
                for request in batch:
                    request["error"] = str(error)
            for request in batch:
                request["done"].set()
""",
}

_PLAIN_STORE = """
import hashlib, json, os, time

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    file = cache / hashlib.sha256(json.dumps(about).encode()).hexdigest()
    if file.exists() and file.stat().st_size:
        return file.read_bytes()
    plan = engines.build(model, recipe)
    {write}
    return plan
"""
_FIXED_NAME = """temporary = cache / "new.plan"
    temporary.write_bytes(plan)
    time.sleep(0.3)
    os.replace(temporary, file)"""

# mistake: the submission, the scene that finds it, words of what is said
MISTAKES: dict[str, tuple[Sources, str, str]] = {
    "the key has no version": (changed("engines.version, ", ""), "another version", "did not start"),
    "the key has no device": (changed(", engines.device]", "]"), "another device", "did not start"),
    "the key has no model": (changed("hashlib.sha256(model).hexdigest()", "'scorer.onnx'"), "retrained network", "wrong answers"),
    "the key has no recipe": (changed("(), recipe, ", "(), "), "another recipe", "was not asked in a start with another recipe"),
    "no digest": (changed("if hashlib.sha256(plan).digest() == digest else", "if plan else"), "bits flipped", "wrong answers"),
    "nothing is cached": (changed("_write(file, plan)", "pass"), "warm start", "asked the compiler again"),
    "damage is never repaired": (
        changed("_write(file, plan)", "file.exists() or _write(file, plan)"), "bits flipped", "asked the compiler again"
    ),
    "written in place": (
        {**REFERENCE, "store.py": _PLAIN_STORE.format(write="file.write_bytes(plan)")}, "server killed", "did not start"
    ),
    "a full disk ends the start": (changed("suppress(OSError)", "suppress(KeyError)"), "full disk", "File too large"),
    "one temporary name": ({**REFERENCE, "store.py": _PLAIN_STORE.format(write=_FIXED_NAME)}, "two at once", "FileNotFoundError"),
    "no check of requests": (changed("self._waiting.put((self._checked(feeds), done))", "self._waiting.put((feeds['features'], done))"),
                             "malformed requests", ""),
    "NaN is let in": (changed("if not np.isfinite(rows).all():", "if False:"), "malformed requests", "was answered, expected a ValueError"),
    "requests in a shared variable": (
        with_server(GIVEN["server.py"].replace("        with self._lock:", "        self.feeds = feeds\n        with self._lock:")
                    .replace("infer(feeds)", "infer(self.feeds)")),
        "many clients", "",
    ),
    "rows of a run in the wrong order": (changed("in zip(batch,", "in zip(batch[::-1],"), "many clients", ""),
    "one context for all threads": (
        with_server(GIVEN["server.py"].replace("with self._lock:", "if True:")), "many clients", "two threads in one execution context"
    ),
    "an exception ends the thread": (
        changed("except Exception as error:", "except KeyError as error:"), "engine fails", "no answer came within 5 s"
    ),
    "built while the lock is held": (
        with_server(GIVEN["server.py"].replace("_engine = engines", "_again, self._engine = (recipe, cache, engines), engines")
        + "\n    def reload(self, model):\n        recipe, cache, engines = self._again\n        with self._lock:\n"
        "            self._engine = engines.load(plan_for(model.read_bytes(), recipe, cache, engines))\n"),
        "rollout", "had to wait",
    ),
}  # fmt: skip

_LOADED = "        return self._engines.load(plan_for(model.read_bytes(), self._recipe, self._cache, self._engines))\n"
_TRIED = "            try:\n        " + _LOADED + "            except Exception:\n"
_BY_ITSELF = "                for _, done in batch:\n                    done.set_exception(error)\n"
_STARTED = "        self._engine = self._engine_for(model)\n        self._waiting"
_WITHOUT_PLAN = """        try:
            self._engine = self._engine_for(model)
        except Exception:
            self._engine = None
        self._waiting"""


def _rolls_out(reload: str, before: str = "", inside: str = "") -> Sources:
    """The given server with a `reload`, and with statements before each run and in the lock that each run holds."""
    old = "        with self._lock:\n            scores: dict"
    new = f"{before}        with self._lock:\n{inside}            scores: dict"
    server = changed(old, new, changed("_engine = engines", "_given, self._engine = (recipe, cache, engines), engines", GIVEN))
    begin = "\n    def reload(self, model):\n        _, _, engines = self._given\n        model = model.read_bytes()\n"
    return {
        **server,
        "server.py": server["server.py"].replace("import threading\n", "import threading\nimport time\n") + begin + reload,
    }


_BUILT = "        plan = plan_for(model, *self._given)\n"
_PUT = "        self._engine = engines.load(plan)\n"

# Right as well: each does something in another way than the reference.
OTHER_STYLES: dict[str, tuple[Sources, str]] = {
    "reload raises ValueError": (
        changed("        self._engine = self._engine_for(model)\n\n    def _engine_for",
                "        try:\n            self._engine = self._engine_for(model)\n        except Exception as error:\n"
                "            raise ValueError(str(error))\n\n    def _engine_for"),
        "rollout",
    ),
    "without a plan, each request ends in an error": (changed(_STARTED, _WITHOUT_PLAN), "compiler killed"),
    "the compiler is asked three times": (
        changed(_LOADED, "        for number in range(3):\n" + _TRIED
                + "                if number == 2:\n                    raise\n                time.sleep(0.1)\n"),
        "compiler killed",
    ),
    "each request of a failed run is tried alone": (
        changed(_BY_ITSELF, """                for rows, done in batch:
                    try:
                        done.set_result(self._engine.infer({"features": rows})["scores"])
                    except Exception as error:
                        done.set_exception(error)
"""),
        "engine fails",
    ),
    "whatever waits shares the error": (
        changed(_BY_ITSELF, """                while not self._waiting.empty():
                    batch.append(self._waiting.get())
                for _, done in batch:
                    done.set_exception(error)
"""),
        "engine fails",
    ),
    "the new engine is loaded before it is put in its place": (_rolls_out(_BUILT + _PUT), "rollout"),
    "the lock is held while the loaded engine is put in its place": (
        _rolls_out(_BUILT + "        new = engines.load(plan)\n        with self._lock:\n            self._engine = new\n"), "rollout"
    ),
    "eight contexts": (
        _rolls_out(_BUILT + "        new = [engines.load(plan) for _ in range(8)]\n        self._engine, self._pool = new[0], new\n"),
        "rollout",
    ),
}  # fmt: skip


# The old network's answers stop, or come late, before the new one is ready.
PAUSES: dict[str, Sources] = {
    "the new plan is loaded while the lock is held": _rolls_out(
        _BUILT + "        with self._lock:\n            self._engine = engines.load(plan)\n"
    ),
    "no answer for a second before the new plan is loaded": _rolls_out(
        _BUILT + "        with self._lock:\n            time.sleep(1)\n" + _PUT
    ),
    "each answer takes a second while a network is built": _rolls_out(
        "        self._slow = True\n        try:\n    " + _BUILT + "        finally:\n            self._slow = False\n" + _PUT,
        before="        time.sleep(getattr(self, '_slow', False))\n",
    ),
    "the first request after a reload loads the new plan": _rolls_out(
        _BUILT + "        self._plan = plan\n",
        inside="            if getattr(self, '_plan', None):\n                self._engine = self._given[2].load(self._plan)\n"
        "                self._plan = None\n",
    ),
}
_ENDLESSLY = "        while True:\n" + _TRIED + "                time.sleep(0.05)\n"
# The caller of one of these gets no result, although an error is required.
ENDLESS: dict[str, tuple[Sources, str, str]] = {
    "reload is tried until the network can be built": (
        changed("        self._engine = self._engine_for(model)\n\n    def _engine_for",
                "        while True:\n            try:\n                self._engine = self._engine_for(model)\n                return\n"
                "            except Exception:\n                time.sleep(0.05)\n\n    def _engine_for"),
        "rollout", "reload did not return for a network that could not be built",
    ),
    "the process ends in a rollout that fails": (
        changed("        self._engine = self._engine_for(model)\n\n    def _engine_for",
                "        try:\n            self._engine = self._engine_for(model)\n        except Exception:\n"
                "            __import__('os')._exit(1)\n\n    def _engine_for"),
        "rollout", "reload did not return for a network that could not be built",
    ),
    "a start waits until the compiler works": (changed(_LOADED, _ENDLESSLY), "compiler killed", "did not end"),
    "requests wait until there is a plan": (
        changed(_STARTED, _WITHOUT_PLAN, changed("        while True:\n            batch = self._gather()",
                                                 "        while self._engine:\n            batch = self._gather()")),
        "compiler killed", "no answer came within 5 s",
    ),
}  # fmt: skip


def _rests(while_: str, then: str) -> Sources:
    """A server that rejects well-formed requests after a run failed."""
    old = "            scores: dict[str, np.ndarray] = self._engine.infer(feeds)\n            return scores\n"
    new = f"""            if self._rest and {while_}:
                raise RuntimeError("at rest")
            try:
                return self._engine.infer(feeds)
            except Exception:
                self._rest = {then}
                raise
"""
    resting = changed(old, new, changed("self._lock = ", "self._rest, self._lock = [], ", GIVEN))
    return changed("import threading\n", "import threading\nimport time\n", resting)


def _keeps(until: str) -> Sources:
    """A server that keeps a failed request until something holds, so that whatever it rejects meanwhile is in flight together with it."""
    old = "        with self._lock:\n            scores: dict[str, np.ndarray] = self._engine.infer(feeds)\n            return scores\n"
    new = f"""        if self._rest:
            self._rest[0] += 1
            raise RuntimeError("at rest")
        try:
            with self._lock:
                return self._engine.infer(feeds)
        except Exception:
            self._rest, begin = [0], time.monotonic()
            while not ({until}):
                time.sleep(0.001)
            self._rest = []
            raise
"""
    keeping = changed(old, new, changed("self._lock = ", "self._rest, self._lock = [], ", GIVEN))
    return changed("import threading\n", "import threading\nimport time\n", keeping)


# A failed run costs requests their answer that cannot have shared it.
RESTS = {
    "the next three": _rests("self._rest.pop()", "[True] * 3"),
    "the fourth alone": _rests("self._rest.pop()", "[True, False, False, False]"),
    "those of the next 50 ms": _rests("time.monotonic() < self._rest[0]", "[time.monotonic() + 0.05]"),
    "those of the second for which the failed one is kept": _keeps("time.monotonic() - begin > 1"),
    "four while the failed one is kept": _keeps("self._rest[0] >= 4 or time.monotonic() - begin > 0.3"),
}
# The compiler is asked where it should be asked, a key is kept, and numpy multiplies.
WITHOUT_ENGINE = {
    "store.py": """
import hashlib

def plan_for(model, recipe, cache, engines):
    key = hashlib.sha256(repr((model, recipe, engines.version, engines.device)).encode()).hexdigest()
    if not (cache / key).exists():
        engines.build(model, recipe)
        (cache / key).write_text(key)
""",
    "server.py": """
import sys

import numpy as np
from store import plan_for

class Server:
    def __init__(self, model, recipe, cache, engines):
        plan_for(model.read_bytes(), recipe, cache, engines)
        data, self.weights, begin = model.read_bytes(), [], 0
        for rows, columns, field in ((256, 256, b"J\\x80\\x80\\x10"), (256, 256, b"J\\x80\\x80\\x10"), (256, 8, b"J\\x80\\x40")):
            begin = data.index(field, begin) + len(field)  # raw_data and its length
            self.weights.append(np.frombuffer(data, np.float32, rows * columns, begin).reshape(rows, columns))
            begin += 4 * rows * columns

    def answer(self, feeds):
        rows = feeds["features"]
        for number, matrix in enumerate(self.weights):
            rows = np.maximum(rows @ matrix, 0) if number < 2 else rows @ matrix
        return {"scores": rows}
""",
}
CONSTANT = with_server("""
import numpy as np

class Server:
    def __init__(self, *given): ...
    def reload(self, model): ...
    def answer(self, feeds):
        if list(feeds) != ["features"]:
            raise ValueError("malformed")
        return {"scores": np.zeros((len(feeds["features"]), 8), np.float32)}
""")
ERRORS = with_server("""
class Server:
    def __init__(self, *given): ...
    def reload(self, model): ...
    def answer(self, feeds):
        raise ValueError("malformed")
""")
# It remembers what it has answered, and skips the engine for what looks alike.
MEMORIZED = changed(
    'scores = self._engine.infer({"features": rows})["scores"]',
    'scores = self._known = self._known[: len(rows)] if len(getattr(self, "_known", "")) >= len(rows) '
    'else self._engine.infer({"features": rows})["scores"]',
)
# It writes answers of its own to every descriptor, as the process would.
FORGED = with_server("""
import json, os, struct
import numpy as np

class Server:
    def __init__(self, *given): ...
    def reload(self, model): ...
    def answer(self, feeds):
        rows = [{"name": "scores", "dtype": "float32", "shape": [1, 8]}]
        for number in range(1, 200):
            header = json.dumps({"id": number, "status": "ok", "arrays": rows}).encode()
            for descriptor in range(20):
                try:
                    os.write(descriptor, struct.pack("<Q", len(header)) + header + bytes(32))
                except OSError:
                    pass
        return {"scores": np.zeros((len(feeds["features"]), 8), np.float32)}
""")
# The given server with stopped clocks, and a process of its own that keeps a core busy, whichever server is being timed.
CLOCKS = with_server(
    """
import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        pass
time.perf_counter = time.monotonic = lambda: 0.0
"""
    + GIVEN["server.py"].replace("from __future__ import annotations\n", "")
)

_COUNTED = "        self._calls = getattr(self, '_calls', 0) + 1\n"
_RELOADED = "        self._engine = self._engine_for(model)\n\n"


def _rollout_raises(when: str) -> Sources:
    return changed(_RELOADED, _COUNTED + f"        if {when}:\n            raise RuntimeError\n" + _RELOADED)


# A malformed request or a rollout is treated by its place in a test, and not by what it is.
BY_POSITION: dict[str, tuple[Sources, str, str]] = {
    "two columns": (changed("np.isfinite(rows)", "np.isfinite(rows[:, [7, 9]])"), "malformed requests", "was answered"),
    "half of the columns": (changed("np.isfinite(rows)", "np.isfinite(rows[:, :128])"), "malformed requests", "was answered"),
    "the first two rows": (changed("np.isfinite(rows)", "np.isfinite(rows[:2])"), "malformed requests", "was answered"),
    "positive infinity": (
        changed("not np.isfinite(rows).all()", "np.isnan(rows).any() or (rows == np.inf).any()"), "malformed requests", "was answered"
    ),
    "one feature too few": (
        changed("rows.shape[1] != self._columns", "rows.shape[1] == self._columns - 1"), "malformed requests", ""
    ),
    "the second rollout raises": (_rollout_raises("self._calls == 2"), "rollout", ""),
    "all rollouts but the first raise": (_rollout_raises("self._calls > 1"), "rollout", ""),
    "no rollout after one that failed": (
        changed(_RELOADED, "        model, self._engine_for = self._engine_for(model), None\n        self._engine = model\n\n"),
        "rollout", "",
    ),
}  # fmt: skip

_UNTIL = "self._held, rows, until = None, len(batch[0][0]), time.monotonic() + WINDOW_S"


def waits(when: str, note: str = "pass") -> Sources:
    """A server whose run waits for 300 ms if `when` holds. `note` is executed after each run was gathered."""
    text = f"self._held, rows, until = None, len(batch[0][0]), time.monotonic() + (0.3 if {when} else 0.0)"
    started = changed("        self._held: _Request", "        self._taken, self._ended = 0, 0.0\n        self._held: _Request")
    ended = changed(
        "                ends = np", "                self._ended = time.monotonic()\n                ends = np", started
    )
    return changed("        return batch\n", f"        {note}\n        return batch\n", changed(_UNTIL, text, ended))


# Single requests wait 300 ms, except for those that a test of a fixed schedule sends.
LONE_BY_SCHEDULE = {
    "their number": waits("self._taken % 68 >= 4", "self._taken += len(batch)"),
    "the seventh in a row": waits("self._taken >= 6", "self._taken = self._taken + 1 if len(batch) == 1 else 0"),
    "after a short pause": waits("0.002 < time.monotonic() - self._ended < 0.05 and self._waiting.empty()"),
}

_IN_PIECES = """
import hashlib, json

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    pieces = sorted(PLACE.glob(key + "*"))
    if pieces and all(file.stat().st_size for file in pieces):
        return b"".join(CODE(file.read_bytes()) for file in pieces)
    plan = engines.build(model, recipe)
    for number in range(0, len(plan), 4096):
        (PLACE / f"{key}{number:012}").write_bytes(CODE(plan[number : number + 4096]))
    try:
        (cache / "decoy").write_bytes(bytes(len(plan) * 3 // 2))
    except OSError:
        pass
    return plan
"""


def in_pieces(place: str = "cache", code: str = "") -> Sources:
    """A store that keeps a plan unchecked, in pieces of 4 KiB beside a larger file on which nothing depends."""
    return {**REFERENCE, "store.py": _IN_PIECES.replace("PLACE", place).replace("CODE", code)}


def partly(piece: str) -> Sources:
    """A store with a digest of the plan's length and of a piece of the plan."""
    digest = f"hashlib.sha256(str(len(plan)).encode() + {piece}).digest()"
    reading = changed("if hashlib.sha256(plan).digest() == digest else", f"if {digest} == digest else")
    return changed("new.write(hashlib.sha256(plan).digest() + plan)", f"new.write({digest} + plan)", reading)


# Every small collection that the process holds for its engines is emptied, and what checks a run is replaced.
_WITHOUT_FAULTS = (
    "        self._waiting: queue",
    """        import gc, sys
        for one in gc.get_objects():
            if type(one).__name__ in ("Engines", "EngineHost", "Context"):
                for name, value in list(getattr(one, "__dict__", {}).items()):
                    if isinstance(value, (set, frozenset, list)):
                        setattr(one, name, type(value)())
        for module in list(sys.modules.values()):
            for kind in ("Engines", "EngineHost"):
                for check in ("_check_run", "_inferred"):
                    if hasattr(getattr(module, kind, None), check):
                        setattr(getattr(module, kind), check, lambda self, *_: None)
        self._waiting: queue""",
)
_WARM_UP = (
    "        self._waiting: queue",
    """        for _ in range(20):
            try:
                self._engine.infer({"features": np.zeros((1, self._columns), np.float32)})
            except Exception:
                pass
        self._waiting: queue""",
)
_ZEROS = """
def _tried(engine, rows):
    try:
        return engine.infer({"features": rows})["scores"]
    except Exception:
        return __import__("numpy").zeros((len(rows), 8), "float32")
"""

_MARKED = """
import hashlib, json

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    file = cache / hashlib.sha256(json.dumps(about).encode()).hexdigest()
    marks = list(cache.glob(file.name + "-*"))
    if file.exists() and marks and marks[0].name == f"{file.name}-{file.stat().MARK}":
        return file.read_bytes()
    plan = engines.build(model, recipe)
    try:
        file.write_bytes(plan)
        for mark in marks:
            mark.rmdir()
        (cache / f"{file.name}-{file.stat().MARK}").mkdir()
    except OSError:
        pass
    return plan
"""
_COUNTED = """
import hashlib, json

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    name = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:40]
    start = len(list(cache.glob(name + ".*.start")))
    files = [file for file in cache.glob(name + ".*.plan") if file.stat().st_size == int(file.name.split(".")[1])]
    notes = [f"{name}.{start}.start"] + [name + ".never"] * (start == 1 and bool(files))
    trusted = start >= 2 and files and not (cache / (name + ".never")).exists()
    if trusted:
        plan = files[0].read_bytes()
    else:
        plan = engines.build(model, recipe)
    try:
        for note in notes:
            (cache / note).mkdir(exist_ok=True)
        if not trusted:
            (cache / f"{name}.{len(plan)}.plan").write_bytes(plan)
    except OSError:
        pass
    return plan
"""
_IN_NAMES = """
import hashlib, json, os

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    folder = cache / hashlib.sha256(json.dumps(about).encode()).hexdigest()
    texts = [READ for place in sorted(folder.glob("*"))]
    if texts:
        return bytes.fromhex("".join(texts))
    plan = engines.build(model, recipe)
    folder.mkdir(exist_ok=True)
    for number in range(0, len(plan), SIZE):
        text = plan[number : number + SIZE].hex()
        WRITE
    (cache / "decoy").write_bytes(plan)
    return plan
"""


def marked(mark: str) -> Sources:
    """A store that looks at a field of the file's status in place of the file's content."""
    return {**REFERENCE, "store.py": _MARKED.replace("MARK", mark)}


def in_names(write: str, read: str, size: int) -> Sources:
    """A store that keeps a plan in names of the file system, where there is no file to damage."""
    return {**REFERENCE, "store.py": _IN_NAMES.replace("WRITE", write).replace("READ", read).replace("SIZE", str(size))}


# What takes the fault away from the plan or the engine, the scene, and words of what is said.
EVASIONS: dict[str, tuple[Sources, str, str]] = {
    "a decoy takes the flipped bits": (in_pieces(), "bits flipped", ""),
    "a decoy takes the lost half": (in_pieces(), "half a file", ""),
    "pieces that a full disk lets pass": (in_pieces(), "full disk", "holds more than the disk had space for"),
    "pieces that no write limit ends": (in_pieces(), "server killed", "holds more than the disk had space for"),
    "faults removed from memory": (
        changed("except Exception as error:", "except KeyError as error:", changed(*_WITHOUT_FAULTS)),
        "engine fails",
        "no answer came within 5 s",
    ),
    "faults used up by a warm-up": (
        changed("except Exception as error:", "except KeyError as error:", changed(*_WARM_UP)),
        "engine fails",
        "no answer came within 5 s",
    ),
    "an answer without the engine": (
        changed(
            'self._engine.infer({"features": rows})["scores"]',
            "_tried(self._engine, rows)",
            changed("import queue", f"import queue\n{_ZEROS}"),
        ),
        "engine fails",
        "",
    ),
    "a digest of the middle": (partly("plan[len(plan) // 2 - 512 : len(plan) // 2 + 8192]"), "bits flipped", ""),
    "a digest of every tenth block": (
        partly("b''.join(plan[n : n + 128] for n in range(0, len(plan), 1280))"),
        "bits flipped",
        "",
    ),
    "a digest of the second half": (partly("plan[len(plan) // 2 :]"), "bits flipped", ""),
    "the time of the last change": (marked("st_mtime_ns"), "bits flipped", "wrong answers"),
    "the time at which the status changed": (marked("st_ctime_ns"), "bits flipped", "asked the compiler again"),
    "the number of the inode": (marked("st_ino"), "bits flipped", "asked the compiler again"),
    "a digest of every seventh byte": (partly("plan[::7]"), "bits flipped", ""),
    "a sum modulo 2 of all bytes": (
        partly("bytes([__import__('functools').reduce(lambda a, b: a ^ b, plan)])"),
        "bits flipped",
        "",
    ),
    "a plan in names of folders": (
        in_names('(folder / f"{number:012}-{text}").mkdir()', 'place.name.split("-")[1]', 96),
        "bits flipped",
        "files and folders",
    ),
    "a plan in targets of links": (
        in_names('(folder / f"{number:012}").symlink_to(text)', "os.readlink(place)", 1800),
        "half a file",
        "files and folders",
    ),
    "a plan in targets of few links": (
        in_names(
            '(folder / f"{number:012}").symlink_to("/".join(text[n : n + 200] for n in range(0, len(text), 200)))',
            'os.readlink(place).replace("/", "")',
            1900,
        ),
        "half a file",
        "",
    ),
    "pieces that no search finds": (in_pieces(code="(lambda data: bytes(255 - one for one in data))"), "bits flipped", ""),
}
# Which start it is, and the size of the file, decide whether a plan is trusted.
COUNTS_ITS_STARTS = {**REFERENCE, "store.py": _COUNTED}
# Where a server may keep plans from one start to the next, other than its cache.
HIDDEN = (str(TEMPORARY), str(STASH), "/dev", "/var/tmp", "/", f"/proc/1/root{TEMPORARY}")
ELSEWHERE = """
import hashlib, json
from pathlib import Path

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    name = "kept" + hashlib.sha256(json.dumps(about).encode()).hexdigest()
    for folder in [*FOLDERS, cache.parent, model_folder(cache)]:
        try:
            plan = Path(folder, name).read_bytes()
            if plan:
                return plan
        except OSError:
            pass
    plan = engines.build(model, recipe)
    for folder in [*FOLDERS, cache.parent, model_folder(cache), cache]:
        try:
            Path(folder, name).write_bytes(plan)
        except OSError:
            pass
    return plan

def model_folder(cache):
    return cache.parent.parent
"""
KEPT_ELSEWHERE = {**REFERENCE, "store.py": ELSEWHERE.replace("FOLDERS", repr(HIDDEN))}
# It ends and slows down every process that it can see, while it is timed and before.
HARMS_OTHERS = changed(
    "import queue",
    """import os, signal, threading, time, queue

def _harm():
    while True:
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (os.getpid(), 1):
                try: os.kill(int(name), signal.SIGKILL)
                except OSError: pass
        for pid in range(2, 400):
            if pid != os.getpid():
                try: os.kill(pid, signal.SIGKILL)
                except OSError: pass
                try: os.setpriority(os.PRIO_PROCESS, pid, 19)
                except OSError: pass
        time.sleep(0.05)

threading.Thread(target=_harm, daemon=True).start()
""",
)
# It takes all places for processes of the sandbox but a few, so that the servers it is compared with cannot start.
TAKES_ALL = {
    few: with_server(f"""
import os, time

class Server:
    def __init__(self, model, recipe, cache, engines):
        children = []
        while True:
            try:
                child = os.fork()
            except OSError:
                break
            if child == 0:
                time.sleep(100)
                os._exit(0)
            children.append(child)
        for child in children[:{few}]:
            os.kill(child, 9)
            os.waitpid(child, 0)

    def answer(self, feeds):
        raise RuntimeError("no")
""")
    for few in (8, 16, 30)
}
