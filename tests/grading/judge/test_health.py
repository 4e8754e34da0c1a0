"""The device's turns and its health: one measurement at a time, and again when something disturbed it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from course_lib.engines.cuda import driver
from course_lib.grading.judge import health
from course_lib.grading.judge.health import Device, Gpu, Snapshot, compared

CALM = Snapshot(0.0, 1000.0, 0.0, 0.0, 3000.0, Gpu(1980.0, 40.0, False, 0, "GPU-7"))


def after(seconds: float = 10.0, **changes: object) -> Snapshot:
    return replace(CALM, **{"at_s": seconds, "unix_s": 1000.0 + seconds, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ()),
        ({"waited_s": 2.4, "stolen_s": 2.4, "clock_mhz": 2500.0}, ()),
        ({"waited_s": 4.0}, ("the judge waited for a processor 40 % of the time",)),
        ({"stolen_s": 3.0}, ("other virtual machines had the processors 30 % of the time",)),
        ({"clock_mhz": 2000.0}, ("the processors' clock went from 3000 to 2000 MHz",)),
        ({"clock_mhz": None}, ()),
        ({"gpu": Gpu(1980.0, 90.0, True, 0, "GPU-7")}, ("the GPU lowered its clock at 90 degrees",)),
        ({"gpu": Gpu(1980.0, 40.0, False, 2, "GPU-7")}, ("2 other processes used the GPU",)),
    ],
)
def test_what_disturbs(changes, said):
    found = compared(CALM, after(**changes))
    assert found.disturbed == said
    assert found.to_json()["disturbed"] == said
    assert (found.began, found.ended) == (1000, 1010)
    of_gpu = tuple(line for line in said if "GPU" in line)
    assert compared(CALM, after(**changes), device_clock=True).disturbed == of_gpu, "the host is not the clock"


def device(*pairs: tuple[Snapshot, Snapshot]) -> Device:
    moments = iter([moment for pair in pairs for moment in pair])
    return Device("test", snapshot=lambda: next(moments))


def test_a_disturbed_measurement_is_repeated_and_all_are_on_record():
    bad, good = (CALM, after(waited_s=9.0)), (CALM, after())
    taken = iter("abc")
    one = device(bad, bad, good)
    assert one.measured(lambda: next(taken)) == "c"
    assert [bool(record.disturbed) for record in one.records] == [True, True, False]
    assert one.disturbances == []
    taken = iter("abcd")
    left = device(bad, bad, bad)
    assert left.measured(lambda: next(taken)) == "c", "three times, then an instructor decides"
    assert left.disturbances == ["the judge waited for a processor 90 % of the time"]
    taken = iter("ab")
    assert device(good).measured(lambda: next(taken)) == "a"


def test_long_measurements_are_not_repeated(monkeypatch):
    clock = iter([0.0, 31.0])
    monkeypatch.setattr(health.time, "monotonic", lambda: next(clock))
    taken = iter("ab")
    assert device((CALM, after(waited_s=9.0))).measured(lambda: next(taken)) == "a"


def test_the_machine_itself():
    before = health.snapshot()
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        pass
    found = compared(before, health.snapshot())
    assert 0.2 <= found.ended - found.began < 5 and 0 <= found.waiting <= 1
    assert Device.here().name == "cpu" or Device.here().name.startswith("GPU-")


def test_what_nvidia_smi_says(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $2 in\n--query-gpu*) echo 'GPU-7, 1980, 41, Not Active, Active';;\n*) echo 1; echo $PPID;;\nesac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert health.gpu() == Gpu(1980.0, 41.0, True, 1, "GPU-7"), "process 1 is a stranger, this one is not"
    program.write_text("#!/bin/sh\necho '[N/A]'\n")
    assert health.gpu() is None
    program.write_text("#!/bin/sh\nexit 9\n")
    assert health.gpu() is None
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert health.gpu() is None


class TwoGpus:
    """A driver with two GPUs in sight, the second of which has the smaller name."""

    def cuDeviceGetCount(self, count):
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal
        return 0

    def cuDeviceGetUuid(self, name, device):
        name[:] = [0xAB - device.value, *range(1, 16)]
        return 0


NAMES = [f"GPU-{first}010203-0405-0607-0809-0a0b0c0d0e0f" for first in ("ab", "aa")]


def test_the_device_is_named_by_the_gpus_that_the_driver_lets_this_process_see(monkeypatch):
    """Not by CUDA_VISIBLE_DEVICES, where "0", a name and nothing at all may mean the same GPU."""
    assert driver.capability() or (Device.here().name == "cpu" and driver.uuids() == ())
    monkeypatch.setattr(driver, "capability", lambda: "sm90")
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda _: TwoGpus())
    assert driver.uuids() == tuple(NAMES)
    assert Device.here().name == "+".join(reversed(NAMES))


def waits_for(mine: str, other: str) -> bool:
    """Whether a measurement on `mine` is still waiting while another process measures on `other`."""
    code = (
        "import sys; from course_lib.grading.judge.health import Device; "
        f"Device({other!r}).measured(lambda: (print('in', flush=True), sys.stdin.read()))"
    )
    done = threading.Event()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"in\n"
        thread = threading.Thread(target=lambda: Device(mine).measured(done.set))
        thread.start()
        waited = not done.wait(0.7)
        process.stdin.close()
    thread.join(10)
    assert done.is_set()
    return waited


def test_only_processes_that_share_a_gpu_wait():
    assert waits_for("test-a", "test-b+test-a") and waits_for("test-c+test-a", "test-a+test-b")
    assert not waits_for("test-a", "test-b")


def test_what_a_system_does_not_tell_is_left_out(monkeypatch, tmp_path):
    (tmp_path / "cpu0/cpufreq").mkdir(parents=True)
    (tmp_path / "cpu0/cpufreq/scaling_cur_freq").write_text("2500000\n")
    (tmp_path / "cpu1/cpufreq").mkdir(parents=True)
    (tmp_path / "cpu1/cpufreq/scaling_cur_freq").write_text("broken\n")
    monkeypatch.setattr(health, "_CPUS", tmp_path)
    assert health._clock_mhz() == 2500
    monkeypatch.setattr(health, "_CPUS", tmp_path / "nowhere")
    assert health._clock_mhz() is None
