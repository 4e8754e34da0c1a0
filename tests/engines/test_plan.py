"""A plan is written whole or not at all, and is read only when it is what was built, for a device that is here."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.engines import Plan
from course_lib.engines.plan import check_target
from course_lib.errors import PlanError
from tests.one_line import one_line


@pytest.fixture
def saved(small_plan: Plan, tmp_path: Path) -> Path:
    path = tmp_path / "model.plan"
    small_plan.save(path)
    return path


def _description(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _rejected(path: Path, *words: str) -> None:
    with one_line(PlanError, path.name, *words):
        Plan.load(path)


def test_load_gives_back_what_save_wrote_and_the_summary_has_no_bytes_and_no_layers(small_plan: Plan, saved: Path) -> None:
    assert Plan.load(saved) == small_plan == Plan.load(str(saved))
    assert sorted(path.name for path in saved.parent.iterdir()) == ["model.plan", "model.plan.json"]
    summary = json.loads(json.dumps(small_plan.summary()))
    assert summary.keys() == {"backend", "version", "onnx_sha256", "recipe", "targets", "build_seconds", "notes"}


@pytest.mark.parametrize(
    "damage", [lambda data: data[:1000] + bytes([data[1000] ^ 1]) + data[1001:], lambda data: data[:1000], lambda data: b""]
)
def test_a_corrupt_or_truncated_plan(damage: Callable[[bytes], bytes], saved: Path) -> None:
    saved.write_bytes(damage(saved.read_bytes()))
    _rejected(saved, "corrupt", "build it again")


def test_no_such_plan_and_one_of_unknown_origin(saved: Path, tmp_path: Path) -> None:
    _rejected(tmp_path / "absent.plan", "no such plan")
    (tmp_path / "folder.plan").mkdir()
    _rejected(tmp_path / "folder.plan")
    _description(saved).unlink()
    _rejected(saved, "model.plan.json", "executable code")


@pytest.mark.parametrize(
    "text",
    ["", "not JSON", "\x00\xff", "[]", "{}", "null", "5", '"text"', "[" * 50_000, '{"digest": 1}', '{"digest": null, "layers": 5}'],
    ids=["empty", "text", "bytes", "list", "object", "null", "number", "string", "nested", "keys missing", "wrong types"],
)  # fmt: skip
def test_a_description_that_is_none(text: str, saved: Path) -> None:
    _description(saved).write_text(text)
    _rejected(saved, "build it again")


def test_a_limit_on_the_size_of_files_leaves_nothing_behind(saved: Path, tmp_path: Path) -> None:
    """The same without mounting: the kernel does not write more than 64 KiB to a file."""
    before = saved.read_bytes()
    code = (
        "import resource, signal, sys\n"
        "from course_lib.engines import Plan\n"
        "from course_lib.errors import PlanError\n"
        "plan = Plan.load(sys.argv[1])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "for path in sys.argv[1:]:\n"
        "    try: plan.save(path)\n"
        "    except PlanError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, saved, tmp_path / "new.plan"], capture_output=True, text=True, check=True
    )
    assert [line.rpartition(": ")[2] for line in done.stdout.splitlines()] == ["File too large"] * 2
    assert saved.read_bytes() == before and Plan.load(saved)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.plan", "model.plan.json"]


@pytest.mark.parametrize("name", ["model.plan", "model.plan.json"])
def test_a_folder_in_the_place_of_a_file(name: str, small_plan: Plan, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(PlanError, match=f"cannot write .*/{name}: "):
        small_plan.save(tmp_path / "model.plan")


def test_a_folder_that_does_not_exist(small_plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file or directory"):
        small_plan.save(tmp_path / "absent" / "model.plan")


def test_a_plan_for_another_device_is_rejected(small_plan: Plan) -> None:
    check_target(small_plan, "sm89")
    check_target(replace(small_plan, targets=()), None)
    check_target(replace(small_plan, targets=("sm80+",)), "sm90")  # built with hardware_compatibility = "ampere_plus"
    for here, words in {"sm90": "this GPU is sm90.*`targets`", None: r"no usable NVIDIA GPU.*default_runner\(\)"}.items():
        with pytest.raises(PlanError, match=f"runs on sm89 and .*{words}") as raised:
            check_target(small_plan, here)
        assert len(str(raised.value).splitlines()) == 1
