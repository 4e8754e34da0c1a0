"""Submissions for the tests of lab 12: a right one that is not the reference, and mistakes that learners make."""

from __future__ import annotations

from course_lib.labs.lab12_serving.given import ONE_AT_A_TIME
from course_lib.labs.lab12_serving.reference import CONFIG, sources

REFERENCE = {**sources(), "config.pbtxt": CONFIG}
# The server of the notebook with a store that is right: task 1 can be solved before the others.
GIVEN = {**REFERENCE, "server.py": ONE_AT_A_TIME["server.py"] + "\nraise NotImplementedError  # your code here\n"}


def changed(old: str, new: str, base: dict[str, str] = REFERENCE) -> dict[str, str]:
    """A submission with one piece of its text replaced."""
    found = [name for name, text in base.items() if old in text]
    assert len(found) == 1, f"{old!r} is in {found}"
    return {**base, found[0]: base[found[0]].replace(old, new)}


# A store with a folder for each plan, a description beside it and a lock; a server with two engines, two threads and no window.
ANOTHER = {
    "config.pbtxt": CONFIG.replace("latest { num_versions: 2 }", "all { }"),
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
_RUN = "                scores = self._engine.infer"
_LOCKED = changed(_RUN, _RUN.replace("scores", "with self._lock:\n                    scores"))
_LOCKED = changed("        self._held: ", "        self._lock = threading.Lock()\n        self._held: ", _LOCKED)
_PLAIN = """
import hashlib, json

def plan_for(model, recipe, cache, engines):
    about = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    file = cache / hashlib.sha256(json.dumps(about).encode()).hexdigest()
    if file.exists() and file.stat().st_size:
        return file.read_bytes()
    plan = engines.build(model, recipe)
    file.write_bytes(plan)
    return plan
"""

# mistake: the submission, the task, the tier, and words of the message
MISTAKES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "the key has no version": (
        changed("engines.version, ", ""),
        "cache",
        "partial",
        "3 of 4 (another version or device: a server did not start: server.py, line",
    ),
    "no digest, and written in place": (
        {**REFERENCE, "store.py": _PLAIN},
        "cache",
        "none",
        "damaged plan: ",
    ),
    "nothing is cached": (changed("_write(file, plan)", "pass"), "cache", "none", "asked the compiler again, although"),
    "NaN is let in": (
        changed("if not np.isfinite(rows).all():", "if False:"),
        "requests",
        "partial",
        "3 of 4 (malformed requests: expected a ValueError for each malformed request, and scores for the others: NaN was answered",
    ),
    "an exception ends the thread": (
        changed("except Exception as error:", "except KeyError as error:"),
        "requests",
        "partial",
        "engine fails: 1 of 1 requests were not answered: no answer came within 10 s",
    ),
    "built while the lock is held": (
        changed(
            "        self._engine = self._engine_for(model)\n\n    def _engine_for",
            "        with self._lock:\n            self._engine = self._engine_for(model)\n\n    def _engine_for",
            _LOCKED,
        ),
        "requests",
        "partial",
        "rollout: a request had to wait for the build of the new network",
    ),
    "rows of a run in the wrong order": (
        changed("in zip(batch,", "in zip(batch[::-1],"),
        "throughput",
        "none",
        "wrong answers under load is",
    ),
    "no request waits for another": (GIVEN, "throughput", "none", "requests per run is 1"),
}
