"""The faults in lab 12's scenes that a server survived, and hints for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.labs.lab12_serving.sandboxed.scenes import LONGEST_WAIT_S
from course_lib.labs.lab12_serving.sandboxed.server_process import ANSWER_S, NOT_TRIED, NOT_UP, RAISED
from course_lib.labs.lab12_serving.sandboxed.stage import WITH_A_FAILURE, WITHOUT_PLAN, Reply, Scene

_TRUST = "A plan with flipped bits loads and answers. What do you compare its bytes with before you load them?"
_KEY = "What does a plan depend on? Everything on that list belongs in its key."
HINTS = {
    "warm start": "Where does a plan go after it was built, and under what name does the next start look for it?",
    "bits flipped": _TRUST,
    "half a file": _TRUST,
    "empty files": "An empty file is not a plan. Build whenever reading fails, for any reason.",
    "another version": f"TensorRT was upgraded between the two starts. {_KEY}",
    "another device": f"The cache moved to a machine with another GPU. {_KEY}",
    "retrained network": f"The new network has the name of the old one. {_KEY}",
    "another recipe": f"One value of the recipe changed between the two starts. {_KEY}",
    "compiler killed": "If the compiler fails, there is no plan to keep. The next start must not find a file under this name.",
    "server killed": "An incomplete file had the final name. Which call renames a file in one step, and when do you call it?",
    "full disk": "The plan in memory is correct; only the copy on the disk failed. Does this start need that copy?",
    "two at once": "Both servers write at the same moment. Do their temporary files have different names?",
    "malformed requests": "Check name, dtype, rank, rows, columns and finiteness before a request meets others, and raise ValueError.",
    "many clients": "Which variable do two threads share here? Each request needs its own place for its answer.",
    "engine fails": "An exception in the thread that runs the engine has to reach the requests of that run at once and must not end the "
    "thread. No request waits for another run after it.",
    "rollout": "Build and load the new engine first, with no lock held; then one assignment puts it in place.",
}


@dataclass(frozen=True)
class Finding:
    """The result of one scene.

    Attributes:
        wrong: number of wrong answers. A server must never give one.
        trouble: the other problem, one line; empty if the server survived.
        busy: the server was late, and so was the reference. Nothing is decided.
        empty: a part of the server's code is not written yet.
        late: no answer was wrong, but a server or an answer was not in time. The cause is the server or a stalled machine.
    """

    scene: str
    wrong: int
    trouble: str
    late: bool = False
    busy: bool = False
    empty: bool = False

    @property
    def survived(self) -> bool:
        """Whether no answer was wrong and nothing else went wrong."""
        return not (self.wrong or self.trouble)

    @property
    def hint(self) -> str:
        """Advice for this scene; empty if the server survived."""
        return "" if self.survived else HINTS[self.scene]

    @property
    def said(self) -> str:
        """What went wrong, in a few words."""
        return f"{self.wrong} wrong answer{'s' if self.wrong > 1 else ''}" if self.wrong else self.trouble or "survived"

    def __str__(self) -> str:
        return f"{self.scene}: {self.said}"


def finding(scene: Scene, wrong: Sequence[Reply]) -> Finding:
    """The finding of a scene, with the number of wrong answers from the judge."""
    trouble = _not_up(scene) or _rollout(scene) or _unanswered(scene) or _special(scene)
    return Finding(
        scene.name, len(wrong), trouble, bool(trouble) and not wrong and _late(scene), empty=bool(scene.flags.get("empty"))
    )


def _late(scene: Scene) -> bool:
    """Whether a wait of the scene ended without a result, or an answer during a rollout was late. Neither counts as survived."""
    unanswered = any(reply.status == "none" for reply in scene.replies)
    reloads = (scene.flags.get("reload"), scene.flags.get("impossible reload"))
    waited = NOT_UP in scene.failed or unanswered or "none" in reloads or _longest_wait_s(scene) > LONGEST_WAIT_S
    return waited or scene.flags.get("start ended") is False


def _longest_wait_s(scene: Scene) -> float:
    """For an answer during a rollout."""
    return float(scene.flags.get("longest wait", 0.0))


def _not_up(scene: Scene) -> str:
    if scene.failed in ("", NOT_TRIED):
        return scene.failed
    return f"a server did not start: {scene.failed}"


def _unanswered(scene: Scene) -> str:
    """Well-formed requests that got no scores. Without a plan, or with a failing run, a request may end in an exception."""
    asked = [reply for reply in scene.replies if reply.rows]
    may_raise = (WITHOUT_PLAN, WITH_A_FAILURE)
    lost = [reply for reply in asked if reply.status != "ok" and not (reply.kind in may_raise and reply.status in RAISED)]
    if not lost:
        return ""
    first = lost[0]
    why = first.text or f"no answer came within {ANSWER_S:g} s"
    return f"{len(lost)} of {len(asked)} requests were not answered: {why}"


def _special(scene: Scene) -> str:
    if scene.flags.get("start ended") is False:
        return "a start for which the compiler failed did not end. It must raise, or each request must end in an error"
    for step, builds in scene.builds.items():
        if step in _WARM_STEPS.get(scene.name, ()) and builds:
            return f"the {step} asked the compiler again, although the plan had been built before"
    if scene.flags.get("answered after all"):
        return "a request was answered although every run of the engine with it failed. What answers is not the engine"
    if scene.flags.get("wrote on"):
        return "the cache holds more than the disk had space for: a plan in many small files is written around the fault"
    if scene.name in _DAMAGED and scene.builds.get("start after it") == 0:
        return "the start after it did not ask the compiler, although every file of the cache was damaged"
    if scene.flags.get("cached") is False:
        return "the cache was empty after the first start"
    for step, builds in scene.builds.items():
        if not builds and (scene.name in _AFTER_OTHERS or step in _COLD_STEPS.get(scene.name, ())):
            if scene.name in _AFTER_OTHERS and step != "before":
                other = scene.name.replace("retrained", "another")
                return f"the compiler was not asked in a start with {other}: its plan has the key of another one"
            return f"step {step!r}: the compiler was not asked, although no plan could be there. What answers is not an engine"
    return _accepted(scene)


_DAMAGED = ("bits flipped", "half a file", "empty files")
# Each start of these scenes needs a plan of its own.
_AFTER_OTHERS = ("another version", "another device", "another recipe", "retrained network")
# A server that never asks the compiler has no plan to lose: every fault would pass it by.
_COLD_STEPS = {
    **dict.fromkeys(("warm start", *_DAMAGED), ("first start",)),
    **dict.fromkeys(("compiler killed", "server killed"), ("next start",)),
    "full disk": ("full disk", "next start"),
}
_WARM_STEPS = {
    "warm start": ("second start", "third start"),
    **dict.fromkeys(_DAMAGED, ("start in between", "start after that")),
    "server killed": ("start after that",),
    "two at once": ("next start",),
}


def _accepted(scene: Scene) -> str:
    """Malformed requests that got anything else than a ValueError."""
    for reply in scene.replies:
        if reply.kind and not reply.rows and reply.status != "rejected":
            got = {"ok": "was answered", "none": "got no answer in time"}.get(reply.status, f"ended in {reply.text}")
            return f"a request with {reply.kind} {got}, expected a ValueError"
    return ""


def _rollout(scene: Scene) -> str:
    if scene.name != "rollout":
        return ""
    if (longest_s := _longest_wait_s(scene)) > LONGEST_WAIT_S:
        return f"requests had to wait during a rollout: an answer took {longest_s:.1f} s, expected at most {LONGEST_WAIT_S:g} s"
    # The network that cannot be built may be the first one, and then the only one.
    if (ended := scene.flags.get("reload", "ok")) != "ok":
        return "reload did not return" if ended == "none" else "reload raised for a network that can be built"
    if (ended := scene.flags.get("impossible reload")) not in RAISED:
        return f"reload did not {'return' if ended == 'none' else 'raise'} for a network that could not be built"
    return ""
