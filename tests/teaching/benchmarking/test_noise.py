"""A load that is there, on the core that was chosen, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from course_lib.teaching.benchmarking import noise
from course_lib.teaching.benchmarking.noise import background_load, one_core


def test_the_thread_stays_on_one_core_and_gets_all_of_them_back():
    before = os.sched_getaffinity(0)
    with one_core() as core:
        assert os.sched_getaffinity(0) == {core} <= before
    assert os.sched_getaffinity(0) == before


def test_without_such_a_call_it_says_so(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    with one_core() as core:
        assert core is None


def test_the_load_computes_on_the_same_core_and_ends_with_the_block(monkeypatch):
    started, real = [], subprocess.Popen
    monkeypatch.setattr(noise.subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    with one_core() as core, background_load(20):
        child, end = started[0].pid, time.monotonic() + 10
        while _cpu_s(child) < 0.2 and time.monotonic() < end:
            time.sleep(0.05)
        assert _cpu_s(child) >= 0.2
        assert os.sched_getaffinity(child) == {core}
    assert started[0].returncode is not None


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")
