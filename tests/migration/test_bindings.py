"""The committed tables of TensorRT's API: equal to NVIDIA's bindings, and in line with what the course says of each version."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from course_lib.migration.tables import bindings
from course_lib.migration.tables.api_table import ApiTable
from course_lib.migration.tables.bindings import RELEASES, BindingsUnavailable, NoNetwork
from docs import make_tables
from docs.make_tables import read_bindings, table_file


@pytest.mark.parametrize("version", RELEASES)
def test_the_committed_table_equals_the_real_bindings(version: str) -> None:
    if sys.version_info >= (3, 12) and version == "8.6.1":
        pytest.skip("TensorRT 8.6.1 has no wheel for this Python")
    try:
        found = read_bindings(version)
    except NoNetwork as absent:
        pytest.skip(str(absent))
    committed = json.loads(gzip.decompress(table_file(version).read_bytes()))
    if found["wheel"]["file"] != committed["wheel"]["file"]:  # another Python, another file, the same API
        found["wheel"] = committed["wheel"]
    assert found == committed


def test_the_tables_are_small_and_complete() -> None:
    assert set(ApiTable.versions()) == set(RELEASES)
    assert sum(table_file(version).stat().st_size for version in RELEASES) < 150_000
    for version in RELEASES:
        table = ApiTable.load(version)
        assert table.wheel["version"] == RELEASES[version].version and len(table.wheel["sha256"]) == 64
        assert len(table.classes()) > 100 and len(table.enums()) > 50


# ---- where reading fails


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'",
            NoNetwork,
            "reached no registry",
        ),
        ("after connection broken by 'NameResolutionError'", NoNetwork, r"put the wheel into \$COURSE_BINDINGS"),
        ("ERROR: No matching distribution found for tensorrt-cu13-bindings", BindingsUnavailable, "No matching distribution"),
    ],
)
def test_a_failed_download_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, error: type[Exception], text: str
) -> None:
    monkeypatch.setenv(bindings.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: subprocess.CompletedProcess(args, 1, "", said))
    with pytest.raises(error, match=text) as rejection:
        read_bindings("11.4")
    assert type(rejection.value) is error and "tensorrt-cu13-bindings==11.4.0.106" in str(rejection.value)


def test_tables_are_written_and_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content: dict[str, Any] = {"classes": {}}
    monkeypatch.setattr(make_tables, "TABLES", tmp_path)
    monkeypatch.setattr(make_tables, "RELEASES", {"11.4": RELEASES["11.4"]})
    monkeypatch.setattr(make_tables, "read_bindings", lambda version: content)
    assert make_tables.main(["--check"]) == 1 and "differs" in capsys.readouterr().out
    assert make_tables.main([]) == 0 and "written" in capsys.readouterr().out
    first = (tmp_path / "11.4.json.gz").read_bytes()
    assert make_tables.main(["--check"]) == 0 and make_tables.main([]) == 0
    (tmp_path / "11.4.json.gz").unlink()
    make_tables.main([])
    assert (tmp_path / "11.4.json.gz").read_bytes() == first
    content["classes"]["New"] = {}
    assert make_tables.main(["--check"]) == 1
