"""Calibrators that learners write, right and wrong and hostile, on histograms that they have not seen."""

from __future__ import annotations

import json
import math
import time
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import labs
from course_lib.errors import EngineError
from course_lib.grading.isolation import sandbox
from course_lib.labs import Examiner, Outcome
from course_lib.labs.lab05_calibration.judge import calibrator
from course_lib.labs.lab05_calibration.judge.calibrator import _read, ask_calibrator
from course_lib.labs.lab05_calibration.judge.entropy import Reading
from course_lib.labs.lab05_calibration.judge.histograms import questions
from course_lib.labs.lab05_calibration.reference import CALIBRATOR
from course_lib.labs.lab05_calibration.sandboxed import calibrate
from course_lib.precision import EntropyCalibrator, MinMaxCalibrator, MSECalibrator, PercentileCalibrator

LAB = labs.find("lab05")

RIGHT = {
    "interpolated within the bin": """
import numpy as np
def percentile(counts, bin_width, percent):
    borders = np.arange(len(counts) + 1) * bin_width
    below = np.concatenate([[0], np.cumsum(counts)])
    last = np.flatnonzero(counts)[-1] + 2
    return np.interp(percent / 100 * counts.sum(), below[:last], borders[:last])
""",
    "a loop that adds up": """
def percentile(counts, bin_width, percent):
    seen, wanted = 0, sum(counts) * percent / 100
    for index, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return bin_width * (index + 1)
""",
    "entropy, one candidate after the other": """
import numpy as np
def entropy(counts, bin_width):
    counts = counts[:np.flatnonzero(counts)[-1] + 1].astype(float)
    counts = np.pad(counts, (0, max(0, 128 - len(counts))))
    counts[0] = counts[1]
    return bin_width * min(range(128, len(counts) + 1), key=lambda kept: (divergence(counts, kept), -kept))

def divergence(counts, kept):
    inside = counts[:kept]
    p = inside.copy()
    p[-1] += counts[kept:].sum()
    level = np.arange(kept) * 128 // kept
    total, filled = np.bincount(level, inside, 128), np.bincount(level, inside > 0, 128)
    q = np.where(inside > 0, total[level] / np.maximum(filled[level], 1), 0)
    q[(p > 0) & (q == 0)] = 1e-4
    if not inside.any():
        return np.inf
    p, q = p / p.sum(), q / q.sum()
    seen = p > 0
    return np.sum(p[seen] * np.log(p[seen] / q[seen]))
""",
    "entropy, group by group with slices": """
import math
def entropy(counts, bin_width):
    counts = [float(count) for count in counts]
    counts[0] = counts[1]
    used = max(128, max(index + 1 for index, count in enumerate(counts) if count))
    best, threshold = math.inf, used
    for n in range(128, used + 1):
        if not any(counts[:n]):
            continue
        p = counts[:n - 1] + [counts[n - 1] + sum(counts[n:])]
        q = []
        for group in range(128):
            bins = counts[-(-group * n // 128):-(-(group + 1) * n // 128)]
            filled = sum(count > 0 for count in bins)
            q += [sum(bins) / filled if count > 0 else 0.0 for count in bins]
        q = [1e-4 if seen > 0 and kept == 0 else kept for seen, kept in zip(p, q)]
        all_p, all_q = sum(p), sum(q)
        kl = sum(a / all_p * math.log((a / all_p) / (b / all_q)) for a, b in zip(p, q) if a > 0)
        if kl <= best:
            best, threshold = kl, n
    return threshold * bin_width
""",
    "a wrong entropy beside a right percentile": CALIBRATOR + "\ndef entropy(counts, bin_width):\n    return 1.0\n",
}

ENTROPY = RIGHT["entropy, one candidate after the other"]
# What a learner's entropy leaves out or does differently, and what the hint has to name.
OTHER_RULES = {
    "no count for empty bins": (
        ("    q[(p > 0) & (q == 0)] = 1e-4\n", ""), ("seen = p > 0", "seen = (p > 0) & (q > 0)"), "gets the count 0.0001"),
    "a tiny count for empty bins": (("1e-4", "1e-10"), "gets the count 0.0001"),
    "zeros left in the first bin": (("    counts[0] = counts[1]\n", ""), "first bin is given the count of the second"),
    "spread over all bins of a group": (
        ("inside > 0, 128)", "inside >= 0, 128)"), ("np.where(inside > 0,", "np.where(inside >= 0,"), "that were not empty"),
    "clipped values in Q": (("np.bincount(level, inside, 128)", "np.bincount(level, p, 128)"), "not in Q"),
    "groups of equal width and a rest": (
        ("level = np.arange(kept) * 128 // kept", "level = np.minimum(np.arange(kept) // (kept // 128), 127)"), "k * 128 // n"),
}  # fmt: skip

# source, tier, words of the message or the hint
WRONG = {
    "the lower border": (
        CALIBRATOR.replace("(last + 1)", "last"),
        "none",
        "Off by one bin",
    ),
    "one bin too far": (CALIBRATOR.replace("(last + 1)", "(last + 2)"), "none", "Off by one bin"),
    "a percentile of the counts": (
        "import numpy as np\ndef percentile(counts, bin_width, percent):\n    return bin_width * np.percentile(counts, percent)",
        "none",
        "Count values, not bins",
    ),
    "a share where percent were asked": (CALIBRATOR.replace("percent / 100", "percent"), "none", "Count values"),
    "always 99.9": (CALIBRATOR.replace("percent / 100", "0.999"), "none", "expected"),
    "min-max": (
        "import numpy as np\ndef percentile(counts, bin_width, percent):\n    return bin_width * (np.flatnonzero(counts)[-1] + 1)",
        "none",
        "bins too high",
    ),
    "the rule for zeros that belongs to entropy": (
        CALIBRATOR.replace("    inside", "    counts[0] = counts[1]\n    inside"), "partial", "many zeros"),
    "beyond the last value at 100 percent": (CALIBRATOR.replace("inside[-1])", "inside[-1], side='right')"), "partial", "100 percent"),
    "min-max called entropy": (
        "import numpy as np\ndef entropy(counts, bin_width):\n    return bin_width * (np.flatnonzero(counts)[-1] + 1)",
        "none",
        "divergence",
    ),
    "the answers of histograms that were seen": (
        "SEEN = {1000: 1.5}\ndef percentile(counts, bin_width, percent):\n    return SEEN[int(counts.sum())]",
        "none",
        "KeyError",
    ),
    "the untouched release": (
        "def percentile(counts, bin_width, percent):\n    raise NotImplementedError  # your code here",
        "none",
        "still empty",
    ),
    "another name": ("def calibrate(counts):\n    return 1.0", "none", "no function percentile or entropy"),
    "the course's own": ("from course_lib.precision import PercentileCalibrator", "none", "may import numpy and Python's own"),
    "no Python": ("def percentile(:", "none", "line 1"),
    "a null byte": ("x = '\0'", "none", "calibrator.py"),
    "no number": ("def percentile(counts, bin_width, percent):\n    return None", "none", "TypeError"),
    "not a number": ("def percentile(counts, bin_width, percent):\n    return float('nan')", "none", "not a finite number"),
    "infinity": ("def percentile(counts, bin_width, percent):\n    return float('inf')", "none", "not a finite number"),
}  # fmt: skip

HOSTILE = {
    "leaves": ("import os\nos._exit(0)", "ended without an answer"),
    "leaves politely": ("raise SystemExit(0)", "SystemExit"),
    "recurses": ("def f(): f()\nf()", "RecursionError"),
    "prints": (CALIBRATOR + "\nprint('x' * 100_000)\nimport sys\nsys.stdout.flush()", "8 of 8"),
    "writes garbage on every descriptor": (
        "import os\nfor fd in range(3, 32):\n    try: os.write(fd, b'{garbage')\n    except OSError: pass\nos._exit(0)",
        "did not return one number",
    ),
    "writes without end": (
        "import os\nwhile True:\n    for fd in range(3, 32):\n        try: os.write(fd, b'9' * 65536)\n        except OSError: pass",
        "more than 65,536 bytes",
    ),
    "sleeps": ("import time\ntime.sleep(1000)", "no answer within 2 s"),
    "sleeps in a child": (
        "import os, time\nif os.fork() == 0: time.sleep(1000)\nos._exit(0)",
        "no answer within 2 s",
    ),
    "answers for functions that nobody asked": (
        "import os, json\nfor fd in range(3, 32):\n    try: os.write(fd, json.dumps({'percentile': [1.0] * 99}).encode())\n"
        "    except OSError: pass\nos._exit(0)",
        "did not return one number",
    ),
}


@pytest.fixture
def check(tmp_path):
    def run(source: str, seed: int | None = None) -> Outcome:
        (tmp_path / "calibrator.py").write_text(source)
        (outcome,) = LAB.examine(tmp_path, Examiner(seed=seed), only="calibrator").outcomes
        assert "\n" not in outcome.message
        return outcome

    return run


@pytest.mark.parametrize("name", ["the reference", *RIGHT])
def test_right_calibrators_have_full_marks(check, name):
    outcome = check(RIGHT.get(name, CALIBRATOR))
    assert (outcome.tier, outcome.points, outcome.hint) == ("full", 3, ""), outcome


@pytest.mark.parametrize("name", WRONG)
def test_mistake_loses_its_tier_and_is_told_where_to_look(check, name):
    source, tier, words = WRONG[name]
    outcome = check(source, seed=4)
    assert (outcome.tier, outcome.points) == (tier, 1.5 if tier == "partial" else 0), outcome
    assert words in f"{outcome.message} {outcome.hint}", outcome


# Right where values are few, percentages are high, or bins are wide.
OF_SOME_HISTOGRAMS = {
    "sums in float32": ("np.cumsum(counts)", "np.cumsum(counts, dtype=np.float32)"),
    "sums in int32": ("np.cumsum(counts)", "np.cumsum(counts, dtype=np.int32)"),
    "99 percent or more": ("percent / 100", "max(percent, 99) / 100"),
    "80 percent or more": ("percent / 100", "max(percent, 80) / 100"),
    "bins that are not narrow": ("* bin_width", "* max(bin_width, 2.0**-16)"),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OF_SOME_HISTOGRAMS)
def test_cheat_thresholds_of_some_histograms_alone(check, name, seed):
    old, new = OF_SOME_HISTOGRAMS[name]
    assert old in CALIBRATOR
    assert check(CALIBRATOR.replace(old, new), seed).tier != "full"


@pytest.mark.parametrize("name", OTHER_RULES)
def test_entropy_by_another_rule_is_told_which_rule(check, name):
    *changes, words = OTHER_RULES[name]
    source = ENTROPY
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    outcome = check(source, seed=124)
    assert outcome.tier != "full" and words in outcome.hint, outcome


def test_the_readings_agree_with_the_calibrator_where_no_rule_is_broken():
    for question in questions(np.random.default_rng(7)):
        assert Reading().border(question.histogram) == question.border("entropy"), question.name


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_source_is_one_line_within_seconds(check, monkeypatch, name):
    monkeypatch.setattr(calibrator, "TIME_LIMIT_S", 2.0)
    source, words = HOSTILE[name]
    started = time.monotonic()
    outcome = check(source)
    assert time.monotonic() - started < 6
    assert words in outcome.message
    assert outcome.tier == ("full" if name == "prints" else "none")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "calibrator.py").write_bytes(b"\xff\xfe\x00")
    (outcome,) = LAB.examine(tmp_path, Examiner(), only="calibrator").outcomes
    assert (outcome.tier, "cannot be read as text" in outcome.message) == ("none", True)


@pytest.mark.skipif(bool(sandbox.problem()), reason=f"no sandbox here: {sandbox.problem()}")
def test_in_the_sandbox_it_finds_neither_files_nor_network(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("planted")
    source = tmp_path / "calibrator.py"
    source.write_text(f"""
import socket
def percentile(counts, bin_width, percent):
    found = []
    try: found.append(open({str(secret)!r}).read())
    except OSError: pass
    try: found.append(socket.create_connection(("1.1.1.1", 53), timeout=1))
    except OSError: pass
    return len(found)
""")
    (answers,) = ask_calibrator(source, questions(np.random.default_rng(1)), sandbox.Sandbox().command)
    assert answers.found == [0.0] * 8
    (answers,) = ask_calibrator(source, questions(np.random.default_rng(1)), None)
    assert answers.found[0] >= 1  # outside of the sandbox the file is there: the test can fail


@pytest.mark.parametrize("seed", range(5))
def test_every_histogram_tells_right_from_wrong(seed):
    """The library's own calibrators answer all questions; thresholds by another rule, or a bin beside, do not."""
    asked = questions(np.random.default_rng(seed))
    assert sorted(question.clean for question in asked) == [False] * 5 + [True] * 3
    for question in asked:
        histogram = question.histogram
        right = PercentileCalibrator(question.percent).threshold(histogram)
        assert question.bins_off("percentile", right) == 0
        border = question.border("percentile") * histogram.bin_width
        assert [round(question.bins_off("percentile", border + n * histogram.bin_width)) for n in (-3, -1, 0, 1, 2)] == [
            -3,
            -1,
            0,
            1,
            2,
        ]
        assert question.bins_off("entropy", EntropyCalibrator().threshold(histogram)) == 0
        assert math.isinf(question.bins_off("entropy", math.nan))
    for method, rule in (("entropy", MinMaxCalibrator()), ("entropy", MSECalibrator()), ("entropy", PercentileCalibrator(99.99)),
                         ("percentile", MinMaxCalibrator()), ("percentile", EntropyCalibrator())):  # fmt: skip
        assert any(question.clean and question.bins_off(method, rule.threshold(question.histogram)) for question in asked), rule


def test_no_two_sets_of_questions_are_alike():
    one, other = (questions(np.random.default_rng(seed)) for seed in (1, 2))
    assert all(a.histogram.counts.tolist() != b.histogram.counts.tolist() for a, b in zip(one, other, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=9), st.dictionaries(st.sampled_from(["percentile", "entropy", "error", "x"]), inner)),
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_whatever_a_process_answers_is_read_or_rejected(answer):
    asked = questions_for_fuzzing()
    try:
        for answers in _read(answer, asked):
            assert len(answers.message().splitlines()) == 1
            assert isinstance(answers.hint(), str)
    except EngineError as error:
        assert len(str(error).splitlines()) <= 1


@cache
def questions_for_fuzzing():
    return questions(np.random.default_rng(0))[:2]


def test_the_child_answers_every_function_that_is_there():
    asked = questions(np.random.default_rng(3))[:2]
    request = {"file": "calibrator.py", "source": RIGHT["a wrong entropy beside a right percentile"],
               "questions": {method: [question.wire(method) for question in asked] for method in calibrate.METHODS}}  # fmt: skip
    found = calibrate.answers(request)
    assert found["entropy"] == [1.0, 1.0]
    assert found["percentile"] == pytest.approx([q.border("percentile") * q.histogram.bin_width for q in asked])


def test_error_names_the_line():
    request = {
        "file": "calibrator.py",
        "source": "\n\ndef percentile(counts, bin_width, percent):\n    return counts[10**9]",
        "questions": {"percentile": []},
    }
    request["questions"]["percentile"] = [questions(np.random.default_rng(3))[0].wire("percentile")]
    (answer,) = calibrate.answers(request)["percentile"]
    assert answer["error"].startswith("line 4: IndexError")
