"""What must be true of every attack that was graded, and of its scene."""

from __future__ import annotations

from pathlib import Path

from tests.attacks.active import active_content
from tests.attacks.catalog import Attack
from tests.attacks.scene import NOT_CONFINED, SECRET, Scene

LARGEST = 20 << 20  # bytes of all pages of one submission


def assert_blocked(scene: Scene, attack: Attack) -> None:
    """It has the points of its honest part, a report and feedback that are safe to open, and a reason where one is due."""
    found = scene.grades[attack.name]
    assert found.score == attack.score, found.error or found.report.read_text()[-2000:]
    assert found.error == "" and found.report.is_file() and found.feedback.is_file()
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
