"""The share of the processors that other programs used, and what a build says about it."""

import os
from types import SimpleNamespace

import pytest

from course_lib._util import host_load
from course_lib.engines.backends.tensorrt import builder
from course_lib.engines.cuda import driver


@pytest.mark.parametrize(
    ("before", "after", "own_s", "share"),
    [
        ("cpu 100 0 0 900 0 0 0 0 0 0", "cpu 500 0 0 1500 0 0 0 0 0 0", 0.0, 0.4),
        ("cpu 100 0 0 900 0 0 0 0 0 0", "cpu 500 0 0 1500 0 0 0 0 0 0", 2.0, 0.2),
        ("cpu 0 0 0 0 0 0 0 0 0 0", "cpu 0 500 100 100 100 100 100 0 0 0", 0.0, 0.8),
        ("cpu 1 0 0 9 0 0 0 0 0 0", "cpu 1 0 0 9 0 0 0 0 0 0", 0.0, None),
        ("something else", "cpu 1 0 0 9 0 0 0 0 0 0", 0.0, None),
    ],
)
def test_only_the_time_of_others_counts(tmp_path, monkeypatch, before, after, own_s, share):
    stat, seconds = tmp_path / "stat", iter([0.0, own_s])
    monkeypatch.setattr(host_load, "_STAT", stat)
    monkeypatch.setattr(host_load, "_own_seconds", lambda: next(seconds))
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    stat.write_text(before)
    end = host_load.others_share()
    stat.write_text(after)
    assert end() == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("busy", "module", "capability", "said"),
    [
        (0.9, "tensorrt", "sm90", "other programs used 90% of the processors"),
        (0.5, "tensorrt", "sm90", ""),
        (0.9, "tensorrt_rtx", "sm89", ""),
        (0.9, "tensorrt", None, ""),
        (None, "tensorrt", "sm90", ""),
    ],
)
def test_a_build_on_a_busy_host_says_so_where_tactics_are_timed(monkeypatch, busy, module, capability, said):
    monkeypatch.setattr(driver, "capability", lambda: capability)
    notes = builder._timing_notes(SimpleNamespace(__name__=module), busy, None)
    assert [note[: len(said)] for note in notes] == ([said] if said else [])
