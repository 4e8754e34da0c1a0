"""What the cache returns is what a compiler built for exactly this request, whatever happened to its folder in between."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from course_lib import engines
from course_lib.engines import Compiler, Plan
from course_lib.engines.cache import fingerprint as fingerprints
from course_lib.engines.cache.fingerprint import build_fingerprint, cache_key
from course_lib.engines.cache.plan_cache import PlanCache
from course_lib.errors import BackendUnavailable, BuildError, CourseError, PlanError, PrecisionError
from course_lib.recipe import Profile, Recipe
from tests.test_recipe import recipes

RTX, ORT = "tensorrt_rtx", "onnxruntime"
builds = sys.modules[Compiler.__module__]  # `engines.build` is the function


@pytest.fixture
def cache(tmp_path: Path) -> PlanCache:
    return PlanCache(tmp_path / "plans")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, small_plan: Plan) -> list[Recipe]:
    """Builds take no time: the small classifier's plan is there already. Lists the recipes that were asked for."""
    asked: list[Recipe] = []

    def build(self: Compiler, model: Any, recipe: Recipe, **_: Any) -> Plan:
        asked.append(recipe)
        return replace(small_plan, recipe=recipe.wire())

    monkeypatch.setattr(Compiler, "build", build)
    return asked


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _entry(cache: PlanCache) -> Path:
    """The folder of the only entry, which must be all that is there."""
    (name,) = _names(cache.folder)
    assert sorted(path.name for path in (cache.folder / name).iterdir()) == ["model.plan", "model.plan.json"]
    return cache.folder / name


def _key(model: Any, recipe: Recipe | None = None, **options: Any) -> str:
    return cache_key(build_fingerprint(model, recipe, **options))


# ---- hits


@pytest.mark.parametrize("backend", [RTX, ORT])
def test_the_second_build_comes_from_the_cache(
    backend: str, cache: PlanCache, small_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache.build(small_onnx, service_recipe, backend=backend)
    assert first.outcome == "built" and "not in the cache" in first.reason and "not cached" not in first.reason
    assert _entry(cache).name == _key(small_onnx, service_recipe, backend=backend)
    monkeypatch.setattr(Compiler, "build", None)  # nothing is compiled from here on
    for model in (small_onnx, str(small_onnx)):
        second = cache.build(model, service_recipe, backend=backend)
        assert (second.outcome, second.plan) == ("hit", first.plan) and backend in second.reason


def test_a_model_in_memory(cache: PlanCache, one_node: Callable[..., Any]) -> None:
    outcomes = [cache.build(model, backend=ORT).outcome for model in (one_node("Relu"), one_node("Relu"), one_node("Neg"))]
    assert outcomes == ["built", "hit", "built"]


def test_a_build_that_fails_leaves_nothing(cache: PlanCache, small_onnx: Path, service_recipe: Recipe, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(PrecisionError):
            cache.build(small_onnx, service_recipe.model_copy(update={"precision": "fp16"}), backend=RTX)
    with pytest.raises(BuildError, match="no such file"):
        cache.build(tmp_path / "absent.onnx", backend=ORT)
    with pytest.raises(BuildError, match="cannot be read: Is a directory"):
        cache.build(tmp_path, backend=ORT)
    with pytest.raises(BackendUnavailable, match="tensorflow"):
        cache.build(small_onnx, backend="tensorflow")
    with pytest.raises(BuildError, match=r"0\.05 s"):
        cache.build(small_onnx, service_recipe, backend=RTX, time_limit_s=0.05)
    assert cache.entries() == ()


def test_a_model_that_changes_while_it_is_compiled_is_not_cached(
    cache: PlanCache, small_onnx: Path, service_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copy(small_onnx, tmp_path / "model.onnx"))

    compiled = Compiler.build

    def build(*arguments: Any, **options: Any) -> Plan:
        changed = onnx.load(model)
        changed.doc_string = "changed"
        onnx.save(changed, model)
        return compiled(*arguments, **options)

    monkeypatch.setattr(Compiler, "build", build)
    built = cache.build(model, service_recipe, backend=ORT)
    assert built.outcome == "built" and "not cached: the model changed while it was compiled" in built.reason
    assert cache.entries() == ()


# ---- the key


def test_every_ingredient_changes_the_key(
    small_onnx: Path, service_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path(shutil.copy(small_onnx, tmp_path / "same.onnx"))
    base = _key(small_onnx, service_recipe, backend=RTX)
    assert base == _key(other, service_recipe, backend=RTX), "the name of the file is not an ingredient"
    larger = Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (33, 1, 32, 32)})
    updates: list[dict[str, Any]] = [
        {"precision": "fp16"},
        {"workspace_mib": 1023},
        {"optimization_level": 2},
        {"flags": ()},
        {"targets": ("sm86",)},
        {"targets": ("sm89",)},
        {"profiles": ()},
        {"profiles": (larger,)},
        {"profiles": service_recipe.profiles * 2},
        {"hardware_compatibility": "ampere_plus"},
    ]
    assert {name for update in updates for name in update} == set(Recipe.model_fields), "a new field of the recipe"
    keys = [_key(small_onnx, service_recipe.model_copy(update=update), backend=RTX) for update in updates]
    keys.append(_key(small_onnx, service_recipe, backend=ORT))
    keys.append(_key(small_onnx, backend=RTX))
    content = bytearray(small_onnx.read_bytes())
    for place in (0, len(content) // 2, -1):
        content[place] ^= 1
        other.write_bytes(content)
        keys.append(_key(other, service_recipe, backend=RTX))

    for patch in (
        lambda p: p.setattr(builds, "availability", lambda name: engines.Availability(name, "1.8")),
        lambda p: p.setattr(fingerprints.driver, "capability", lambda: "sm121"),
        lambda p: p.setattr(fingerprints, "FORMAT", fingerprints.FORMAT + 1),
        lambda p: p.setenv("COURSE_TACTIC_SOURCES", "CUBLAS"),
    ):
        with monkeypatch.context() as changed:
            patch(changed)
            keys.append(_key(small_onnx, service_recipe, backend=RTX))
    assert base == _key(small_onnx, service_recipe, backend=RTX)
    # the recipe without profiles is the one test case that appears twice
    assert len({base, *keys}) == len(keys) and keys[6] == _key(small_onnx, Recipe(), backend=RTX) == keys[11]


def test_another_model_of_gpu_builds_again_unless_the_recipe_says_that_it_may_be_shared(
    small_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An L40S and an RTX 4090 are both sm89. TensorRT warns of performance and errors where a plan meets another model."""
    monkeypatch.setattr(fingerprints.driver, "capability", lambda: "sm89")
    shared = service_recipe.model_copy(update={"hardware_compatibility": "same_compute_capability"})
    keys = {}
    for name in ("NVIDIA L40S", "NVIDIA GeForce RTX 4090"):
        monkeypatch.setattr(fingerprints.driver, "model", lambda name=name: name)
        keys[name] = [_key(small_onnx, recipe, backend=RTX) for recipe in (service_recipe, shared)]
    (own, together), (own_too, together_too) = keys.values()
    assert own != own_too and together == together_too
    monkeypatch.setattr(fingerprints.driver, "capability", lambda: "sm86")
    assert _key(small_onnx, shared, backend=RTX) != together


def test_the_same_backend_in_another_environment_shares_entries(
    small_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"other={sys.executable}; broken=/bin/false")
    here, other = (_key(small_onnx, service_recipe, backend=name) for name in (ORT, f"{ORT}@other"))
    assert here == other
    with pytest.raises(BuildError, match="'broken' does not answer"):
        build_fingerprint(small_onnx, backend=f"{ORT}@broken")
    with pytest.raises(BackendUnavailable, match="mars"):
        build_fingerprint(small_onnx, backend=f"{ORT}@mars")


def _recipe_key(recipe: Recipe) -> str:
    return cache_key({"recipe": recipe.wire()})


@settings(max_examples=100, deadline=None)
@given(recipes, recipes)
def test_equal_recipes_and_only_those_have_equal_keys(first: Recipe, second: Recipe) -> None:
    assert (_recipe_key(first) == _recipe_key(second)) == (first == second)
    assert _recipe_key(Recipe.loads(first.dumps())) == _recipe_key(first)
    profiles = tuple(Profile(dict(reversed(profile.root.items()))) for profile in first.profiles)
    assert _recipe_key(first.model_copy(update={"profiles": profiles})) == _recipe_key(first)


# ---- weights in files beside the model


@pytest.fixture
def split_onnx(small_onnx: Path, tmp_path: Path) -> Path:
    """The small classifier with its weights in `weights.bin` beside it."""
    (tmp_path / "split").mkdir()
    path = tmp_path / "split" / "model.onnx"
    onnx.save(onnx.load(small_onnx), path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    return path


def test_a_changed_weight_file_is_built_again(
    cache: PlanCache, split_onnx: Path, service_recipe: Recipe, tmp_path: Path
) -> None:
    weights = split_onnx.with_name("weights.bin")
    link = tmp_path / "link.onnx"
    link.symlink_to(split_onnx)
    before = cache.build(split_onnx, service_recipe, backend=RTX)
    assert [cache.build(path, service_recipe, backend=RTX).outcome for path in (split_onnx, link)] == ["hit", "hit"]
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 0x40
    weights.write_bytes(content)
    after = cache.build(split_onnx, service_recipe, backend=RTX)
    assert (before.outcome, after.outcome) == ("built", "built") and before.plan.onnx_sha256 == after.plan.onnx_sha256
    assert before.plan.data != after.plan.data
    weights.unlink()
    with pytest.raises(BuildError):
        cache.build(split_onnx, service_recipe, backend=RTX)
    assert len(cache.entries()) == 2


def test_weights_of_a_constant_node_count_too(split_onnx: Path, service_recipe: Recipe) -> None:
    model = onnx.load(split_onnx)
    value = onnx.numpy_helper.from_array(np.arange(64, dtype=np.float32), "value")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["beside"], value=value))
    del model.graph.initializer[:]
    onnx.save(
        *(model, split_onnx), save_as_external_data=True, location="constant.bin", size_threshold=100, convert_attribute=True
    )
    before = build_fingerprint(split_onnx, service_recipe)["weights"]
    beside = split_onnx.with_name("constant.bin")
    beside.write_bytes(bytes(len(beside.read_bytes())))
    assert build_fingerprint(split_onnx, service_recipe)["weights"] != before


def test_entries_that_another_process_removes_meanwhile_are_no_error(
    cache: PlanCache, small_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.build(small_onnx, service_recipe, backend=RTX)
    listed = Path.glob

    def then_removed(folder: Path, pattern: str) -> list[Path]:
        found = list(listed(folder, pattern))
        for path in found:
            shutil.rmtree(path.parent)
        return found

    monkeypatch.setattr(Path, "glob", then_removed)
    assert cache.entries() == () and cache.prune(0) == ()


def test_a_compiler_behind_a_launcher_reads_no_weight_files_and_neither_does_the_key(
    split_onnx: Path, small_onnx: Path, service_recipe: Recipe
) -> None:
    def launcher(command: Any) -> list[str]:
        return list(command)

    assert build_fingerprint(split_onnx, service_recipe, launcher=launcher)["weights"] == ""
    assert build_fingerprint(split_onnx, service_recipe)["weights"] != ""
    assert build_fingerprint(small_onnx, launcher=launcher) == build_fingerprint(small_onnx)


# ---- damaged entries


def _flip(path: Path, place: int = -50) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "flipped bit in the plan": (lambda entry: _flip(entry / "model.plan"), "corrupt"),
    "flipped bit in the layers": (lambda entry: _flip(entry / "model.plan.json", 500), "corrupt"),
    "truncated plan": (lambda entry: os.truncate(entry / "model.plan", 1000), "corrupt"),
    "no plan": (lambda entry: (entry / "model.plan").unlink(), "no such plan"),
    "a folder in the place of the plan": (
        lambda entry: ((entry / "model.plan").unlink(), (entry / "model.plan" / "deep").mkdir(parents=True)),
        "model.plan",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_entry_is_rebuilt_and_the_reason_says_why(
    kind: str, cache: PlanCache, small_onnx: Path, small_plan: Plan, service_recipe: Recipe, pretend: list[Recipe]
) -> None:
    damage, why = DAMAGE[kind]
    cache.build(small_onnx, service_recipe, backend=RTX)
    damage(_entry(cache))
    outcomes = [cache.build(small_onnx, service_recipe, backend=RTX) for _ in range(2)]
    assert [built.outcome for built in outcomes] == ["rebuilt", "hit"] and all(built.plan == small_plan for built in outcomes)
    assert "the cached plan was not used" in outcomes[0].reason and why in outcomes[0].reason
    assert len(outcomes[0].reason.splitlines()) == 1 and "not cached" not in outcomes[0].reason
    assert _entry(cache) and len(pretend) == 2


# ---- several processes

_BUILD = """
import sys
from course_lib.engines.cache.plan_cache import PlanCache
from course_lib.recipe import Recipe
folder, model, recipe, backend = sys.argv[1:]
cache, recipe = PlanCache(folder), Recipe.load(recipe)
print("ready", flush=True)
sys.stdin.readline()
built = cache.build(model, recipe, backend=backend)
print(built.outcome, "not cached" not in built.reason)
"""


@pytest.mark.parametrize("damaged", [False, True])
def test_two_processes_build_the_same_key_at_once(
    damaged: bool, cache: PlanCache, small_onnx: Path, service_recipe: Recipe, tmp_path: Path
) -> None:
    if damaged:
        cache.build(small_onnx, service_recipe, backend=RTX)
        _flip(_entry(cache) / "model.plan")
    service_recipe.save(tmp_path / "recipe.toml")
    command = [sys.executable, "-c", _BUILD, cache.folder, small_onnx, tmp_path / "recipe.toml", RTX]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2  # both have imported everything
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all(answer[0] in ("hit", "rebuilt" if damaged else "built") and answer[1] == "True" for answer in answers), answers
    assert _entry(cache) and cache.build(small_onnx, service_recipe, backend=RTX).outcome == "hit"


# ---- folders that cannot be written to


def test_a_read_only_disk(
    tmp_path: Path, small_onnx: Path, service_recipe: Recipe, pretend: list[Recipe], request: pytest.FixtureRequest
) -> None:
    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)]
        if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        request.addfinalizer(lambda: subprocess.run(["umount", tmp_path], check=False))

    mount("size=4m,mode=700")
    cache = PlanCache(tmp_path / "plans")
    cache.build(small_onnx, service_recipe, backend=RTX)
    mount("remount,ro")
    assert cache.build(small_onnx, service_recipe, backend=RTX).outcome == "hit"
    built = cache.build(small_onnx, service_recipe.model_copy(update={"workspace_mib": 5}), backend=RTX)
    assert built.outcome == "built" and built.plan.recipe["workspace_mib"] == 5
    assert "not cached" in built.reason and "Read-only file system" in built.reason
    assert len(cache.entries()) == 1
    with pytest.raises(PlanError, match="Read-only file system"):
        cache.prune(0)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_the_folder(
    place: str, small_onnx: Path, service_recipe: Recipe, tmp_path: Path, pretend: list[Recipe]
) -> None:
    (tmp_path / "file").write_text("a file")
    built = PlanCache(tmp_path / place).build(small_onnx, service_recipe, backend=RTX)
    assert built.outcome == "built" and "not cached: cannot write to" in built.reason


# ---- what is in the cache


def test_entries_say_what_they_are(cache: PlanCache, small_onnx: Path, small_plan: Plan, service_recipe: Recipe) -> None:
    assert cache.entries() == () == cache.prune(0) and not cache.folder.exists()
    cache.build(small_onnx, service_recipe, backend=RTX)
    (entry,) = cache.entries()
    assert (entry.key, entry.backend, entry.version) == (_key(small_onnx, service_recipe, backend=RTX), RTX, small_plan.version)
    assert entry.size_bytes == sum(path.stat().st_size for path in _entry(cache).iterdir()) > 700_000
    assert -1 < entry.idle_s <= entry.age_s < 60
    assert cache.folder.stat().st_mode & 0o077 == 0 == _entry(cache).stat().st_mode & 0o077


def test_prune_removes_what_was_used_least_recently(
    cache: PlanCache, small_onnx: Path, service_recipe: Recipe, pretend: list[Recipe]
) -> None:
    used = [service_recipe.model_copy(update={"workspace_mib": mib}) for mib in (1, 2, 3, 4)]
    keys = [_key(small_onnx, recipe, backend=RTX) for recipe in used]
    for recipe in (*used, used[0], used[2]):
        cache.build(small_onnx, recipe, backend=RTX)
        time.sleep(0.01)
    assert len(pretend) == 4
    entries = cache.entries()
    assert [entry.key for entry in entries] == [keys[1], keys[3], keys[0], keys[2]]
    total = sum(entry.size_bytes for entry in entries)
    assert cache.prune(total) == ()
    assert [entry.key for entry in cache.prune(total - 1)] == [keys[1]]
    assert [entry.key for entry in cache.prune(entries[0].size_bytes * 3 // 2)] == [keys[3], keys[0]]
    assert _entry(cache).name == keys[2]
    with pytest.raises(ValueError, match="-1"):
        cache.prune(-1)
    assert [entry.key for entry in cache.prune(0)] == [keys[2]] and _names(cache.folder) == set()


def test_it_removes_damaged_entries_and_remains_and_nothing_that_is_not_its_own(
    cache: PlanCache, small_onnx: Path, service_recipe: Recipe, pretend: list[Recipe]
) -> None:
    cache.build(small_onnx, service_recipe, backend=RTX)
    (_entry(cache) / "model.plan.json").write_text("[]")
    for name, age_s in ((".temporary-old", 7200), (".temporary-new", 0)):
        (cache.folder / name / "deep").mkdir(parents=True)
        os.utime(cache.folder / name, (time.time() - age_s,) * 2)
    (cache.folder / "thesis.txt").write_text("mine")
    assert [(entry.backend, entry.version) for entry in cache.prune(0)] == [("", "")]
    assert _names(cache.folder) == {"thesis.txt", ".temporary-new"}


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert PlanCache().folder == tmp_path / "tensorrt-course" / "plans"
    monkeypatch.setenv("HOME", "/home/student")
    for value in ("", "relative/folder"):  # which the specification says to ignore
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert PlanCache().folder == Path("/home/student/.cache/tensorrt-course/plans")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert PlanCache().folder == Path("/home/student/.cache/tensorrt-course/plans")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(CourseError, match="XDG_CACHE_HOME"):
        PlanCache()
