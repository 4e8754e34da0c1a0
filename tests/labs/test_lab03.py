"""Lab 03 against its reference, mistakes that learners make, and cheats."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from course_lib import labs
from course_lib.labs import Examiner, Outcome
from course_lib.labs.framework.guest import Failed, PathIn, started
from course_lib.labs.lab03_tuning import figures, recorded_tables, reference
from course_lib.labs.lab03_tuning.device import Device, problem
from course_lib.labs.lab03_tuning.judge import (
    cache_builds,
    caching,
    choosing,
    differing,
    file_scenes,
    measuring,
    merge_scene,
    settings,
)
from course_lib.labs.lab03_tuning.judge.words import first_difference
from course_lib.recipe import Recipe
from tests.labs import quick
from tests.labs.quick import check_solved, judged_reference
from tests.labs.submissions import lab03 as made
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab03")


def examined(folder: Path, task: str, seed: int = 3) -> Outcome:
    return quick.examined(LAB, folder, task, Examiner(seed=seed))


# Right answers


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    judged_reference(LAB, tmp_path)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_another_right_answer(seed, tmp_path):
    LAB.write_reference(tmp_path)
    made.another(tmp_path)
    check_solved(LAB, LAB.examine(tmp_path, Examiner(seed=seed)))


@pytest.mark.parametrize("database", ["A_DATABASE", "A_DATABASE_IN_PLACE"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_the_file_may_be_a_database(database, seed, tmp_path):
    (tmp_path / "timing_cache.py").write_text(reference.CACHE + getattr(made, database))
    outcome = quick.examined(LAB, tmp_path, "cache", Examiner(seed=seed))
    assert outcome.points == 3, outcome.message


def test_the_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    found = LAB.examine(tmp_path, Examiner())
    assert found.points == 0
    assert all(one.hint for one in found.outcomes)
    assert all("still empty" in one.message for one in found.outcomes[:4]), [one.message for one in found.outcomes]
    assert "recipe.toml is missing" in found.outcomes[4].message


# Planted mistakes: changes to the reference, words of the message, words of the hint, points

_TIES = "chosen = min(name for name, ms in typical.items() if ms <= limit)"
_ROUNDS = "for _ in range(budget // len(times)):\n        for name in times:"
_BLOCKS = "for name in times:\n        for _ in range(budget // len(times)):"
MISTAKES = {
    "timing.py": {
        "once": ({"budget // len(times)": "1", "several[1:]": "several"}, "1.0 runs on average", "always too slow", 0),
        "in_blocks": (
            {_ROUNDS: _BLOCKS},
            "All runs of a tactic follow each other",
            "in each round",
            1.5,
        ),
        "the_mean": (
            {"median(several[1:])": "sum(several) / len(several)"},
            "above the tactics' own",
            "Drop the first ones",
            0,
        ),
        "no_rule": (
            {_TIES: "chosen = min(typical, key=typical.get)"},
            "another build makes another one",
            "does not depend on noise",
            1.5,
        ),
        "by_the_list": (
            {"sorted(tactics)": "tactics", "chosen = min(": "chosen = next("},
            "another build makes another one",
            "always the same",
            1.5,
        ),
        "too_tolerant": ({"EQUAL = 0.02": "EQUAL = 0.3"}, "slower than the fastest tactic", "How large is your tolerance", 0),
        "over_budget": (
            {"budget // len(times)": "budget // len(times) + 1"},
            "more runs than the budget of 150",
            "Count your runs",
            0,
        ),
        "no_time": (
            {"return chosen, typical[chosen]": "return chosen"},
            "expected (name of a tactic, ms)",
            "the same error",
            0,
        ),
        "unknown": ({"run(name))": "run(name.upper()))"}, "has no tactic", "the same error", 0),
        "an_error": ({"median(several": "medium(several"}, "line 11: NameError", "the same error", 0),
        "renamed": ({"def fastest(": "def fast("}, "defines no function fastest", "Requirement 1", 0),
    },
    "choice.py": {
        "no_limit": ({"> workspace": "> 1e9"}, "MiB of workspace, the limit is", "for each chosen tactic alone", 0),
        "less_than_the_limit": ({"> workspace": ">= workspace"}, "needs the whole workspace", "exactly that", 0),
        "no_reformats": ({"reformats[index - 1]": "0"}, "reformats are not counted", "What does the pair cost", 1),
        "one_short": (
            {"min(best.values())[1]": "min(best.values())[1][1:]"},
            "one name for each of 7 layers",
            "Call it in the notebook",
            0,
        ),
        "least_workspace": (
            {
                'total = ms + tactic["ms"]': 'total = ms + tactic["ms"] + 1e6 * tactic["workspace_mib"]',
                "total += reformats[index - 1]": "pass",
            },
            "the least workspace, not the least time",
            "not for the sum",
            0,
        ),
        "greedy": (
            {"best = ways": "best = dict([min(ways.items(), key=lambda way: way[1])])"},
            "for the layer before it alone",
            "Keep the best way to each format",
            1,
        ),
    },
    "budget.py": {
        "one_layer": ({"counts[name] * ": ""}, "The savings of equal layers were not added", "How many layers", 0),
        "twice": ({"[*names, name]": "[*names, name, name]"}, "a signature twice", "measured once", 0),
        "over_budget": ({"now <= budget and ": ""}, "the budget is", "add up to", 0),
    },
    "timing_cache.py": {
        "no_driver": (
            {'"device", "driver", ': '"device", '},
            "used although driver is '",
            "Which fields are in your key",
            0,
        ),
        "no_types": ({'"shapes", "types", ': '"shapes", '}, "used although types[", "Which fields are in your key", 0),
        "no_operator": ({'("operator", ': "("}, "used although operator is '", "Which fields are in your key", 0),
        "no_attributes": (
            {'"types", "attributes")': '"types")'},
            "used although attributes",
            "Which fields are in your key",
            0,
        ),
        "some_places": (
            {
                'for field in ("operator", "shapes", "types", "attributes")]': 'for field in ("operator", "types")]',
                "parts = of_layer": """of_layer += [layer["shapes"][0][:2], [shape[-1:] for shape in layer["shapes"]], layer["attributes"]]
    parts = of_layer""",
            },
            "used although shapes[",
            "which parts of them",
            0,
        ),
        "known_attributes": (
            {
                '"types", "attributes")]': '"types")]',
                "parts = of_layer": """of_layer += [layer["attributes"].get(name) for name in ("kernel", "stride")]
    parts = of_layer""",
            },
            "used although attributes['",
            "which parts of them",
            0,
        ),
        "inputs_in_any_order": (
            {
                '("operator", "shapes", "types", "attributes")]': """("operator", "attributes")]
    of_layer += [sorted(layer["shapes"]), sorted(layer["types"])]"""
            },
            "used although shapes[",
            "which parts of them",
            0,
        ),
        "major_versions": (
            {
                '[machine[field] for field in ("device", "driver", "tensorrt")]': """[
        machine[field].split(".")[0] for field in ("device", "driver", "tensorrt")
    ]"""
            },
            "used although driver is '",
            "which parts of them",
            0,
        ),
        "with_host": ({'"tensorrt")': '"tensorrt", "host")'}, "were measured again", "no influence on a time", 0),
        "with_name": (
            {'for field in ("operator"': 'for field in ("name", "operator"'},
            "were measured again",
            "no influence on a time",
            0,
        ),
        "with_tactics": (
            {'"types", "attributes")': '"types", "attributes", "tactics")'},
            "were measured again",
            "no influence on a time",
            0,
        ),
        "order_inside": (
            {"json.dumps(parts, sort_keys=True)": "str(parts)"},
            "were measured again",
            "inside of `attributes`",
            0,
        ),
        "tactic_is_gone": (
            {' or entry[0] not in layer["tactics"]': ""},
            "no longer offers it",
            "What must hold for the tactic",
            0,
        ),
        "order_of_merging": (
            {"min(entry, other, key=lambda pair: (pair[1], pair[0]))": "entry"},
            "merge(a, b) and merge(b, a) differ",
            "must not ask which",
            1.5,
        ),
        "equal_times": ({"(pair[1], pair[0])": "pair[1]"}, "merge(a, b) and merge(b, a) differ", "must not ask which", 1.5),
        "slower_entry": ({"min(entry, other": "max(entry, other"}, "kept another one", "Compare ms first", 1.5),
        "written_in_place": (
            {"temporary.write_text": "path.write_text", "    os.replace(temporary, path)\n": ""},
            "entries of the file are lost",
            "Does `save` remove it earlier",
            1.5,
        ),
        "last_one_wins": (
            {"merge(load(path), cache)": "cache"},
            "entries of one of them are lost",
            "may have changed it since",
            1.5,
        ),
        "damaged": (
            {"(OSError, ValueError, AttributeError, TypeError)": "OSError"},
            "load of a damaged file (cut off) failed",
            "Which errors can reading raise",
            1.5,
        ),
        "no_text": (
            {"(OSError, ValueError, ": "(OSError, json.JSONDecodeError, "},
            "load of a damaged file (no text) failed",
            "Which errors can reading raise",
            1.5,
        ),
        "a_list": (
            {
                "{name: (tactic, ms) for name, (tactic, ms) in entries.items()}": "entries",
                "cache if kinds <= {(str, int), (str, float)} else {}": "cache",
                "kinds =": "# ",
            },
            "load of a damaged file (null instead of a dictionary) did not return an empty cache",
            "still not be a cache",
            1.5,
        ),
        "any_pairs": (
            {"cache if kinds <= {(str, int), (str, float)} else {}": "cache"},
            "load of a damaged file (each entry: ms before the tactic) did not return an empty cache",
            "must be a pair of a text and a number",
            1.5,
        ),
        "no_file_yet": ({"(OSError, ValueError": "(ValueError"}, "load failed", "each layer, cache and file", 1.5),
    },
}
# Criteria that a mistake in the cache does not meet. All others are met: a finding is about the requirement that is broken.
OTHERS, KEYS = "names and hosts do not matter", "another machine or layer is measured, and no other one"
GONE, MERGED, KEPT = "a tactic that is gone is not used", "two caches are merged in any order", "a file keeps the cache"
SAVED, FULL_DISK, DAMAGED = "two builds save to one file", "a full disk loses nothing", "a damaged file counts as missing"
UNMET = {
    **dict.fromkeys(("no_operator", "no_attributes"), (KEYS,)),
    **dict.fromkeys(
        ("no_driver", "no_types", "some_places", "known_attributes", "inputs_in_any_order", "major_versions"), (KEYS,)
    ),
    **dict.fromkeys(("with_host", "with_name", "with_tactics", "order_inside"), (OTHERS, KEYS)),
    "tactic_is_gone": (GONE,),
    **dict.fromkeys(("order_of_merging", "equal_times", "slower_entry"), (MERGED,)),
    "written_in_place": (FULL_DISK,),
    "last_one_wins": (SAVED, FULL_DISK),
    **dict.fromkeys(("damaged", "no_text", "a_list", "any_pairs"), (DAMAGED,)),
    "no_file_yet": (KEPT, SAVED, FULL_DISK),  # none of its saves works
}
TASKS = {"timing.py": "timing", "choice.py": "choice", "budget.py": "budget", "timing_cache.py": "cache"}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, several in MISTAKES.items() for name in several])
def test_mistake_is_named(file, name, tmp_path):
    changes, words, hint, points = MISTAKES[file][name]
    (tmp_path / file).write_text(made.changed(file, changes))
    outcome = examined(tmp_path, TASKS[file])
    assert words in outcome.message and hint in outcome.hint, (outcome.message, outcome.hint)
    assert outcome.points == points
    if file == "timing_cache.py":
        assert {one.name for one in outcome.criteria if not one.met} == set(UNMET[name])


def _by(rule) -> str:
    return f"""
def worth_measuring(layers, budget):
    rows = {{}}
    for row in layers:
        saving, _ = rows.get(row["signature"], (0, 0))
        rows[row["signature"]] = saving + row["expected_saving_ms"], row["measuring_ms"]
    names, left = [], budget
    for name, (saving, cost) in sorted(rows.items(), key=lambda one: {rule}, reverse=True):
        if cost <= left:
            names.append(name)
            left -= cost
    return names
"""


@pytest.mark.parametrize(
    ("rule", "words"), [("one[1][0] / one[1][1]", "by saving per ms"), ("one[1][0]", "the largest savings")]
)
def test_simple_rules_for_the_budget_are_named(rule, words, tmp_path):
    (tmp_path / "budget.py").write_text(_by(rule))
    outcome = examined(tmp_path, "budget")
    assert outcome.points == 0 and words in outcome.message and "set" in outcome.hint + "sets", outcome.message


@pytest.mark.parametrize(
    ("level", "workspace", "points"), [(2, 1, 1), (3, 1, 0), (0, 1, 0), (5, 1, 0), (2, 16, 0.5), (2, 1024, 0.5), (2, 8, 0.5)]
)
def test_recipe(level, workspace, points, tmp_path):
    Recipe(optimization_level=level, workspace_mib=workspace).save(tmp_path / "recipe.toml")
    outcome = examined(tmp_path, "recipe")
    assert outcome.points == points, outcome.message


def test_a_recipe_that_cannot_be_read(tmp_path):
    (tmp_path / "recipe.toml").write_text("optimization_level = 9\n")
    assert examined(tmp_path, "recipe").points == 0


# Cheats


def test_nothing_of_the_device_is_in_the_learners_process(tmp_path):
    (tmp_path / "timing.py").write_text(made.LOOKS_AROUND)
    assert examined(tmp_path, "timing").points == 0


def test_the_number_of_equally_fast_tactics_is_drawn(tmp_path):
    (tmp_path / "timing.py").write_text(made.FIRST_OF_THREE)
    outcome = examined(tmp_path, "timing")
    assert outcome.points == 0 and "slower than the fastest tactic" in outcome.message, outcome.message


def test_a_cache_in_a_global_variable_is_none(tmp_path):
    (tmp_path / "timing_cache.py").write_text(made.IN_A_GLOBAL)
    outcome = examined(tmp_path, "cache")
    assert outcome.points == 0 and "an empty cache did not measure again" in outcome.message


LOST = "entries of one of them are lost"
ANOTHER = "An entry was used although"
NOT_KEPT = "old entries of its cache were lost or changed"
UNREAD = "entries of the file are lost"
FULL = "The disk was full while `save` wrote"
AGAIN = "The disk has space again, and "
EQUAL_KEYS = "save did not keep the one that merge keeps"
OTHER_ENTRY = "merge kept another one than requirement 6 says"
NOT_A_PAIR = "did not return an empty cache"
# Caches that are the reference's but for one function: the points of the honest part, and the words for the other one.
CACHES = {
    **dict.fromkeys(("SAVES_WITHOUT_READING", "READS_AT_FIRST", "READS_WHAT_IT_HAS_NOT_LOADED"), (1.5, LOST)),
    "ALONE_IS_MEASURED": (0, ANOTHER),
    "ALONE_IS_COMPARED": (0, NOT_KEPT),
    "RIGHT_WHEN_ALONE": (0, "were measured again"),
    **dict.fromkeys(("DIGITS_OF_THE_MACHINE", "NUMBER_OF_THE_DEVICE", "DIGITS_OF_VERSIONS"), (0, ANOTHER)),
    **dict.fromkeys(("ATTRIBUTES_WITHOUT_NAMES", "WITHOUT_SEPARATORS", "WITHOUT_INNER_LISTS"), (0, ANOTHER)),
    "WITHOUT_A_KEY": (0, "defines no function key"),
    **dict.fromkeys(("HASHED", "OF_ITS_PROCESS"), (0, "A build in another process called `measure`")),
    "WITH_ANOTHER_KEY": (0, "key did not return another text"),
    "ALWAYS_NEW": (0, NOT_KEPT),
    "DROPS_OTHER_ENTRIES": (0, NOT_KEPT),
    "CHANGES_OLD_TIMES": (0, NOT_KEPT),
    "KEEPS_NO_TIME": (0, "differ from the results of `measure`"),
    "KNOWS_THE_ENTRIES": (1.5, UNREAD),
    "PACKS_TIGHTLY": (1.5, UNREAD),
    "SHORT_IS_DAMAGED": (1.5, NOT_A_PAIR),
    **dict.fromkeys(("LOW_BITS", "LAST_DIGITS", "THREE_DIGITS"), (0, ANOTHER)),
    **dict.fromkeys(("INNER_ORDER", "TURNED", "WHOLE_INPUTS_IN_ANY_ORDER", "HEIGHT_OR_WIDTH"), (0, ANOTHER)),
    **dict.fromkeys(("NAMES_BESIDE_SORTED_VALUES", "SORTED_INSIDE"), (0, ANOTHER)),
    **dict.fromkeys(("JOINED_FIELDS", "DEVICE_BEFORE_VERSIONS", "JOINED_BY_POINTS"), (0, ANOTHER)),
    **dict.fromkeys(("RAISES_ITS_LIMIT", "LETS_ANOTHER_WRITE", "A_FILE_WITHOUT_A_NAME", "ANSWERS_FOR_THE_FILE"), (1.5, FULL)),
    **dict.fromkeys(("KNOWS_THE_LIMIT", "COMPARES_WITH_THE_LIMIT", "WRITES_A_PROBE"), (1.5, "")),
    **dict.fromkeys(
        ("TIMES_AS_TEXT", "TIMES_TO_TWO_DECIMALS", "TIMES_TO_SIX_DECIMALS", "TIMES_IN_FLOAT32"), (1.5, OTHER_ENTRY)
    ),
    **dict.fromkeys(("ANY_TIME_BUT_A_TEXT", "TRUE_IS_A_TIME", "NULL_IS_A_TACTIC"), (1.5, NOT_A_PAIR)),
    **dict.fromkeys(("A_ZERO_IS_ONE", "LOW_BITS_OF_LARGE_NUMBERS", "BEGINNINGS_OF_NAMES"), (0, "")),
    **dict.fromkeys(("NAMES_IN_LOWER_CASE", "A_FEW_OF_EACH"), (0, ANOTHER)),
    **dict.fromkeys(("BEGINNINGS_OF_TACTICS", "SHORT_TACTICS_FIRST"), (1.5, "merge")),
    **dict.fromkeys(("WHOLE_TIMES_ARE_DAMAGED", "ONLY_WHOLE_TIMES_BELOW_TEN"), (1.5, "")),
    **dict.fromkeys(("SMALL_IN_PLACE", "LARGE_IN_PLACE"), (1.5, UNREAD)),
    "LOOKS_AT_THE_FIRST_ENTRY": (1.5, "load of a damaged file (one entry: "),
    "EMPTIES_FIRST": (1.5, LOST),
    **dict.fromkeys(("REPLACES_BEFORE_CLOSING", "MOVED_FROM_ELSEWHERE"), (1.5, FULL)),
    **dict.fromkeys(("ITS_OWN_ENTRY_WINS", "THE_ENTRY_OF_THE_FILE_WINS"), (1.5, EQUAL_KEYS)),
    "REPLACED_FROM_ELSEWHERE": (1.5, "OSError [Errno 18]"),
    **dict.fromkeys(("SECOND_FILE_MUST_BE_NEW", "APPENDS_TO_SECOND_FILE", "TAKES_A_SECOND_FILE_THAT_IS_LEFT"), (1.5, AGAIN)),
    **dict.fromkeys(("LEAVES_A_LOCK", "GIVES_UP"), (1.5, AGAIN)),
    "ONLY_NAMES": (0, "tuned did not return (names, cache), but a list"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHES)
def test_a_cache_has_the_points_of_its_honest_part(name, tmp_path):
    points, words = CACHES[name]
    (tmp_path / "timing_cache.py").write_text(reference.CACHE + getattr(made, name))
    outcome = examined(tmp_path, "cache")
    assert outcome.points == points and words in outcome.message, outcome.message


SCENES = {
    "REPLACED_FROM_ELSEWHERE": (file_scenes.through_a_file, "OSError [Errno 18]", "In which folder must the second file be"),
    "SECOND_FILE_MUST_BE_NEW": (file_scenes.disk_is_full, f"{AGAIN}save failed", "after one that failed"),
    "APPENDS_TO_SECOND_FILE": (file_scenes.disk_is_full, f"{AGAIN}after save", "after one that failed"),
    "REPLACES_BEFORE_CLOSING": (file_scenes.disk_is_full, FULL, "before the file is closed"),
    "EMPTIES_FIRST": (file_scenes.two_builds_save, LOST, "empties it"),
    "ITS_OWN_ENTRY_WINS": (file_scenes.two_builds_save, EQUAL_KEYS, "requirement 9"),
}


def _scene(scene, text: str, folder: Path, seed: int = 3) -> tuple[str, str]:
    """What one scene says about a cache, and its hint."""
    file, rng = folder / "timing_cache.py", np.random.default_rng(seed)
    file.write_text(text)
    with ExitStack() as stack:
        try:
            scene(cache_builds.Stage(partial(caching._started, file, None, rng), stack), cache_builds.Network(rng))
        except cache_builds.Wrong as wrong:
            return str(wrong), wrong.hint
    return "", ""


@pytest.mark.parametrize("name", SCENES)
def test_one_scene_finds_a_wrong_save(name, tmp_path):
    scene, words, hint = SCENES[name]
    found = _scene(scene, reference.CACHE + getattr(made, name), tmp_path)
    assert words in found[0] and hint in found[1], found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "scene", [file_scenes.through_a_file, file_scenes.two_builds_save, file_scenes.disk_is_full, file_scenes.file_is_damaged]
)
def test_a_scene_of_files_does_not_depend_on_the_other_functions(scene, seed, tmp_path):
    others = "\n\ndef key(layer, machine):\n    return ''\n\n\ndef tuned(layers, machine, cache, measure):\n    return []\n"
    assert _scene(scene, reference.CACHE + others, tmp_path, seed) == ("", "")


@pytest.mark.parametrize(
    "kept", ["max(entry, other, key=lambda pair: pair[1])", "entry", "other", "min(entry, other, key=lambda pair: pair[1])"]
)
def test_a_wrong_merge_is_not_a_wrong_save(kept, tmp_path):
    text = made.changed("timing_cache.py", {"min(entry, other, key=lambda pair: (pair[1], pair[0]))": kept})
    assert _scene(file_scenes.two_builds_save, text, tmp_path) == ("", "")
    assert "merge" in _scene(merge_scene.merge, text, tmp_path)[0]


@pytest.mark.parametrize(
    ("file", "task", "text"),
    [
        ("timing_cache.py", "cache", f"import filelock\n{reference.CACHE}"),
        ("timing.py", "timing", "def fastest(tactics, run, budget):\n    import filelock\n"),
        ("budget.py", "budget", "def worth_measuring(layers, budget):\n    import filelock\n"),
    ],
)
def test_the_hint_for_another_package_does_not_promise_its_error_in_the_notebook(file, task, text, tmp_path):
    (tmp_path / file).write_text(text)
    outcome = examined(tmp_path, task)
    assert outcome.points == 0 and "ImportError" in outcome.message
    assert "Python's standard library" in outcome.hint and "same error" not in outcome.hint, outcome.hint


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ([[1, 2], [3, 4]], [[1, 2], [3, 5]], "x[1][1] is 4 instead of 5"),
        ([1, 2], [1], "x has 2 parts instead of 1"),
        ({"a": [1]}, {"a": [2]}, "x['a'][0] is 1 instead of 2"),
        ({"a": 1, "c": 1}, {"b": 1, "c": 1}, "x has 'a' instead of 'b'"),
        ({"a": 1}, {}, "x has 'a'"),
        ({}, {"a": 1}, "x does not have 'a'"),
        ("a" * 90 + "b", "a" * 90, f"x is '...{'a' * 8}b' instead of '...{'a' * 8}'"),
        ("a" * 200, 1, f"x is '{'a' * 39}... instead of 1"),
    ],
)
def test_where_two_values_differ(found, expected, words):
    assert first_difference("x", found, expected) == words


@contextmanager
def _listed(alive: list[str], *, files: dict | None = None, disk_bytes: int | None = None) -> Iterator[Any]:
    alive.append("process")
    yield SimpleNamespace(content=lambda path: "the file")
    alive.pop()


def test_a_restart_leaves_no_process_behind():
    """A cheat: each process holds memory, and its threads run on while later processes are judged."""
    alive: list[str] = []
    with ExitStack() as stack:
        stage = cache_builds.Stage(partial(_listed, alive), stack)
        for _ in range(3):
            stage.restart()
            assert len(alive) == 1
        other = stage.another()
        for one in (stage, other, stage):
            one.restart()
            assert len(alive) == 2
    assert not alive


@pytest.mark.parametrize("work", ["threading.Thread(target=spin, daemon=True).start()", "os.fork() or spin()"])
def test_nothing_of_a_process_runs_after_its_restart(work, tmp_path):
    trace, first, file = tmp_path / "trace", tmp_path / "first", tmp_path / "timing_cache.py"
    spin = f"def spin():\n    while True:\n        open({str(trace)!r}, 'a').write('x')\n        time.sleep(0.001)\n"
    file.write_text(f"import os, threading, time\n{spin}if os.path.exists({str(first)!r}):\n    {work}\n")
    first.touch()
    with ExitStack() as stack:
        stage = cache_builds.Stage(partial(started, file, None), stack)
        first.unlink()
        time.sleep(0.2)
        stage.restart()
        size = trace.stat().st_size
        time.sleep(0.2)
        assert size == trace.stat().st_size > 0


def test_the_reference_cannot_be_imported(tmp_path):
    (tmp_path / "timing.py").write_text(made.TAKES_THE_REFERENCE)
    outcome = examined(tmp_path, "timing")
    assert outcome.points == 0 and "may import numpy and Python's own modules" in outcome.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True: pass", "did not finish within"),
        ("import os; os._exit(0)", "its process ended without an answer"),
        ("import sys; sys.exit('no')", "fastest failed: line 2: SystemExit no"),
        ("print('hello'); input()", "EOFError"),
        ("return {1: object()}", "TypeError"),
        ("return 'x' * (1 << 22), 1", "more than 1,048,576 bytes"),
        ("return tactics[0], float('nan')", "expected (name of a tactic, ms)"),
        ("return tactics[0], True", "expected (name of a tactic, ms)"),
        ("return [], 1", "expected (name of a tactic, ms)"),
        ("run()", "TypeError run() missing 1 required positional argument: 'name'"),
        ("run(tactic=tactics[0])", "TypeError run() got an unexpected keyword argument 'tactic'"),
        ("run(*tactics)", "TypeError run() takes 1 positional argument but 10 were given"),
        ("run([])", "has no tactic '[]'"),
        (
            "\n try:\n  while True: run(tactics[0])\n except RuntimeError:\n  return tactics[0], 1.0",
            "more runs than the budget",
        ),
        ("\n while True:\n  try: run(tactics[0])\n  except RuntimeError: pass", "calls back more than"),
    ],
)
def test_what_a_function_may_do_to_its_judge(body, words, tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.labs.framework.guest.TIME_LIMIT_S", 2.0 if "pass" in body[:17] else 30.0)
    (tmp_path / "timing.py").write_text(f"def fastest(tactics, run, budget):\n {body}\n")
    outcome = examined(tmp_path, "timing")
    assert outcome.points == 0 and words in outcome.message, outcome.message


@pytest.mark.parametrize(
    ("file", "task", "change"),
    [
        ("timing.py", "timing", {"run(name)": "run(name=name)"}),
        ("timing_cache.py", "cache", {"measure(layer)": "measure(layer=layer)"}),
    ],
)
def test_a_function_of_the_judge_takes_keywords(file, task, change, tmp_path):
    (tmp_path / file).write_text(made.changed(file, change))
    outcome = examined(tmp_path, task)
    assert outcome.points == 3, outcome.message


def test_a_default_of_the_judge_holds_for_what_is_not_given(tmp_path):
    (tmp_path / "choice.py").write_text("def asked(f):\n    return [f(1), f(a=2), f(3, 4), f(5, b=6), f(b=7, a=8)]\n")
    with started(tmp_path / "choice.py", None) as learner:
        assert learner.call("asked", lambda a, b=5: [a, b]) == [[1, 5], [2, 5], [3, 4], [5, 6], [8, 7]]


def test_what_is_sent_and_called_back(tmp_path):
    (tmp_path / "choice.py").write_text(
        "import numpy as np\ndef twice(x, f, path):\n    path.write_text('ab')\n"
        "    return np.array([f(x), f(np.int64(2))]), {3}, path.name\n"
    )
    with started(tmp_path / "choice.py", None) as learner:
        assert learner.call("twice", 1, lambda x: 10 * x, PathIn("a.txt")) == [[10, 20], [3], "a.txt"]
        assert learner.exists(PathIn("a.txt")) and not learner.exists(PathIn("b.txt"))
        learner.place(PathIn("a.txt"), "YQ==")
        assert learner.content(PathIn("a.txt")) == "YQ==" and learner.content(PathIn("b.txt")) is None
        assert isinstance(learner.call("twice", 1, 2, PathIn("a.txt")), Failed)
        assert "defines no function thrice" in learner.call("thrice").line


# The judge's own answers


def test_the_least_latency_is_that_of_every_choice():
    rng = np.random.default_rng(5)
    for formats in (False, True):
        layers, between = recorded_tables.table(rng, 7, 4, formats=formats)
        asked = choosing.Question(layers, between, 8)
        picks = itertools.product(range(4), repeat=7)
        allowed = (pick for pick in picks if all(asked.fits(index, place) for index, place in enumerate(pick)))
        assert asked.least == pytest.approx(min(map(asked.latency, allowed)))


def test_the_simple_rules_are_never_enough_for_the_budget():
    for seed in range(5):
        for asked in measuring.questions(np.random.default_rng(seed)):
            assert asked.budget > 0 and all(asked.saving(rule(asked)) < asked.most for _, rule, _ in measuring._MISTAKES)


def test_a_device_has_the_disturbances_that_it_names():
    rng = np.random.default_rng(1)
    tactics = problem(0.04, rng)
    name = next(iter(tactics.true_ms))
    times = np.array(
        [[device.run(name) for _ in range(device.budget)] for device in (Device(tactics.true_ms, rng) for _ in range(50))]
    )
    ratios = times / tactics.true_ms[name]
    assert ratios[:, 0].min() > 2 and np.median(ratios[:, 40:]) < 1.03
    assert (ratios[:, 40:] > 1.2).mean() > 0.08


def test_one_to_five_tactics_of_a_layer_are_equally_fast():
    rng = np.random.default_rng(1)
    counts = set()
    for tactics in (problem(0.04, rng) for _ in range(100)):
        ratios = np.array([*tactics.true_ms.values()]) / tactics.best_ms
        counts.add(int((ratios <= 1.003).sum()))
        assert len(ratios) == 10 and not ((ratios > 1.003) & (ratios < 1.049)).any()
    assert counts == {1, 2, 3, 4, 5}


def test_the_record_has_one_best_recipe():
    totals = {level: seconds + settings.RUNS * ms / 1e3 for level, (seconds, ms) in recorded_tables.levels().items()}
    first, second = sorted(totals.values())[:2]
    assert min(totals, key=totals.get) == reference.OPTIMIZATION_LEVEL and second > 1.01 * first
    assert len(recorded_tables.recorded_layers()) > 50


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ({}, True),
        ({"key": ["tactic", 0.5]}, True),
        ({"key": ["tactic", True]}, False),
        ({"key": ["tactic"]}, False),
        ([], False),
    ],
)
def test_what_has_the_form_of_a_cache(value, right):
    assert cache_builds.is_cache(value) == right


# What the notebook uses


def test_figures():
    drawn = figures.draw_runs([("a", 1.0), ("b", 2.0), ("a", 1.1)], "Runs")
    assert drawn.axes[0].get_xlabel() == "number of the run" and drawn.axes[0].get_title() == "Runs"
    drawn = figures.draw_levels(recorded_tables.levels(), 1000, "Levels")
    assert drawn.axes[0].get_xlabel() == "time (s)" and len(drawn.axes[0].patches) == 12


def test_tables_are_plain_values():
    json.dumps(recorded_tables.table(np.random.default_rng(1), 3, 4, formats=True))


@pytest.mark.parametrize("seed", range(5))
def test_versions_of_other_machines_are_as_long_as_real_ones(seed):
    """A learner was told that the driver was '2097702.85' instead of '550.85'."""
    machine = {"device": "NVIDIA H200 141GB HBM3", "driver": "550.85", "tensorrt": "10.3.0.26", "host": "node-1"}
    others = differing.other_machines(machine, np.random.default_rng(seed))
    assert len(others) > 80
    assert all(len(number) <= 4 for other in others for text in other.values() for number in re.findall(r"\d+", text))
