"""What must be true of every attack that was graded, and of its scene."""

from __future__ import annotations

from pathlib import Path

from course_lib.grading.batch.intake import shown
from tests.attacks.active import active_content
from tests.attacks.catalog import Attack
from tests.attacks.scene import NOT_CONFINED, SECRET, Scene

LARGEST = 20 << 20  # bytes of all pages of one submission


def assert_blocked(scene: Scene, attack: Attack) -> None:
    """It has the points of its honest part, a report and feedback that are safe to open, and a reason where one is due.

    One whose folder cannot be graded is listed with a reason, and nothing else is written about it.
    """
    if attack.student not in scene.grades:
        assert attack.rejected in scene.rejected[shown(attack.student)]
        assert not any((scene.room.folder / kind / attack.student).is_dir() for kind in ("autograded", "feedback", "reports"))
        return
    found = scene.grades[attack.name]
    assert found.score == attack.score, found.error or found.report.read_text()[-2000:]
    assert attack.rejected in found.error if attack.rejected else found.error == ""
    assert found.report.is_file() and found.feedback.is_file()
    assert attack.said in found.report.read_text() or attack.said in found.feedback.read_text()
    assert NOT_CONFINED not in scene.outputs(attack.name), "the attack itself says that it got through"
    assert active_content(found.feedback) - scene.usual == set()
    assert active_content(found.report) == set()
    assert sum(path.stat().st_size for path in scene.pages(attack.name)) < LARGEST


def assert_no_trace(scene: Scene) -> None:
    """Nothing left its sandbox, and nobody's secret is in anybody's output."""
    assert scene.calls == []
    assert scene.left == {}
    assert scene.rubbish == [], scene.rubbish
    planted = [scene.root / "labs/planted", scene.room.folder / "planted", Path("/usr/planted"), Path("/etc/planted")]
    assert [path for path in planted if path.exists()] == []
    pages = [path for path in scene.pages() if "prints_a_page" not in str(path)]
    assert [path for path in pages if SECRET.encode() in path.read_bytes()] == []
    assert scene.secret.read_text() == SECRET
