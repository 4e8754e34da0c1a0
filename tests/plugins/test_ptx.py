"""Widths of memory accesses: counted in a text by hand, and in what nvcc makes of the course's kernels."""

from pathlib import Path

import pytest

from course_lib.errors import BuildError
from course_lib.plugins.ptx import count_accesses, global_accesses

PTX = """
.visible .entry first(
\tld.param.u64 \t%rd1, [first_param_0];
\tld.global.nc.v4.f32 \t{%f1, %f2, %f3, %f4}, [%rd3];
\tld.global.cs.v4.u32 \t{%r1, %r2, %r3, %r4}, [%rd4];
\tld.global.nc.u16 \t%rs1, [%rd5];
\tst.global.f32 \t[%rd6], %f1;
.visible .entry second(
\tst.shared.f32 [%rd6], %f1;
\tst.global.v2.b64 [%rd6], {%rd1, %rd2};
\tst.local.v4.u32 [%rd7], {%r1, %r2, %r3, %r4};
"""


def test_counted_by_hand() -> None:
    assert count_accesses(PTX) == {"first": {"ld 16": 2, "ld 2": 1, "st 4": 1}, "second": {"st 16": 1, "local": 1}}
    assert count_accesses("ld.global.u16 %rs1, [%rd5];") == {}  # before any kernel


def test_vector_kernels_move_16_bytes_and_a_source_that_does_not_compile_is_named(nvcc: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.cu"
    file.write_text("not C++")
    with pytest.raises(BuildError, match=r"nvcc rejects wrong\.cu"):
        global_accesses(file)
    vectors = [counts for kernel, counts in global_accesses().items() if kernel.endswith("vector")]
    assert len(vectors) == 6 and all(set(counts) == {"ld 16", "st 16"} and counts["st 16"] == 2 for counts in vectors)
