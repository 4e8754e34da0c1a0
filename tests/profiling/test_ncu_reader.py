"""Tables of Nsight Compute: units, separators, gaps, and what the roofline says of each kernel."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import style
from course_lib.errors import ProfileError
from course_lib.profiling.readers.ncu import KernelMetrics, read_ncu
from course_lib.profiling.roofline_figure import roofline
from tests.one_line import one_line

LAUNCH = [
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
]
DURATION, DRAM = "gpu__time_duration.sum", "dram__bytes.sum"
DRAM_SHARE = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM_SHARE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
HFMA = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"
FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"


def table(units, *launches, before="==PROF== Connected to process 1 (python)\nstep 1, loss 0.5\n", after=""):
    """The text of a table with these metrics and units; each launch is a name and its values."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*LAUNCH, *units])
    writer.writerow([*[""] * len(LAUNCH), *units.values()])
    for number, (name, *values) in enumerate(launches):
        writer.writerow([number, 1, "python", "127.0.0.1", name, 1, 7, "(128, 1, 1)", "(64, 1, 1)", 0, "9.0", *values])
    return before + text.getvalue() + after


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "kernels.csv"
        path.write_text(text, encoding="utf-8")
        return read_ncu(path)

    return read


def test_a_row_becomes_a_kernel_in_us_bytes_shares_and_operations(read):
    units = {DURATION: "ns", DRAM: "byte", DRAM_SHARE: "%", SM_SHARE: "%", OCCUPANCY: "%", FFMA: "inst", FADD: "inst"}
    text = table(
        units, ("void add<4, float>(int)", "2,000", "1,048,576", "91.5", "12.25", "80", "1,000", "24"), after="==PROF== bye\n"
    )
    (kernel,) = read(text)
    assert kernel == KernelMetrics("void add<4, float>(int)", 2.0, 1048576.0, 0.915, 0.1225, 0.8, 2024.0)
    assert kernel.intensity == 2024 / 1048576
    assert kernel.flops_per_second == pytest.approx(2024 / 2e-6)
    assert kernel.bytes_per_second == pytest.approx(1048576 / 2e-6)
    assert kernel.bound == "memory"


def test_every_spelling_of_time_and_size_is_understood(read):
    for unit, value in {"ns": "1500", "nsecond": "1500", "usecond": "1.5", "ms": "0.0015", "second": "1.5e-06"}.items():
        assert read(table({DURATION: unit}, ("k", value)))[0].duration_us == pytest.approx(1.5)
    for unit, scale in {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}.items():
        assert read(table({DURATION: "us", DRAM: unit}, ("k", "1", "3.5")))[0].dram_bytes == pytest.approx(3.5 * scale)
    for values, microseconds in (
        (("117.344", "27595520"), 117.344),
        (("117,344", "27595520"), 117.344),
        (("1.5", "1024"), 0.0015),
    ):
        (kernel,) = read(table({DURATION: "ns", DRAM: "byte"}, ("k", *values)))  # which have no decimals
        assert kernel.duration_us == pytest.approx(microseconds)


def test_what_is_not_available_is_none(read):
    (kernel,) = read(table({DURATION: "us", DRAM: "byte", FFMA: "inst"}, ("k", "1", "n/a", "(!) n/a")))
    assert kernel == KernelMetrics("k", 1.0)
    assert (kernel.intensity, kernel.flops_per_second, kernel.bytes_per_second, kernel.bound) == (None, None, None, "")


def test_a_sum_and_its_parts_count_once(read):
    units = {DURATION: "us", "dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte"}
    assert read(table(units, ("k", "1", "100", "20")))[0].dram_bytes == 120
    assert read(table({DURATION: "us", TENSOR: "", HFMA: "inst"}, ("gemm", "1", "1,000", "10")))[0].flops == 1000 + 4 * 10
    parts = {
        "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum": "",
        "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum": "",
        "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_on.sum": "",
    }
    assert read(table({DURATION: "us", TENSOR: "", **parts}, ("gemm", 1, 70, 70, 70, 0)))[0].flops == 70
    assert read(table({DURATION: "us", **parts}, ("gemm", 1, 70, 70, 0)))[0].flops == 70
    pieces = dict(list(parts.items())[1:])
    assert read(table({DURATION: "us", **pieces}, ("gemm", 1, 70, 5)))[0].flops == 75


@pytest.mark.parametrize(
    ("memory", "compute", "bound"), [(0.9, 0.2, "memory"), (0.3, 0.8, "compute"), (0.4, 0.5, "latency"), (None, 0.9, "")]
)
def test_the_fuller_unit_is_the_bound_and_two_idle_ones_are_latency(memory, compute, bound):
    assert KernelMetrics("k", 1, dram_share=memory, sm_share=compute).bound == bound


UNITS = {DURATION: "ns", DRAM: "byte", SM_SHARE: "%", DRAM_SHARE: "%"}
VALUES = {  # 117344 ns, 27595520 bytes, 65.77 % and 12.5 %, as languages and programs write them
    "English": ("117,344", "27,595,520", "65.77", "12.50"),
    "without thousands": ("117344", "27595520", "65.77", "12.5"),
    "German": ("117.344", "27.595.520", "65,77", "12,50"),
    "French": ("117\u202f344", "27\u202f595\u202f520", "65,77", "12,50"),
    "Swiss": ("117\u2019344", "27'595'520", "65.77", "12.50"),
    "German, three decimals": ("117.344,000", "27.595.520,000", "65,770", "12,500"),
}


@pytest.mark.parametrize("language", VALUES)
def test_the_numbers_of_every_language_are_the_same(read, language):
    (kernel,) = read(table(UNITS, ("k", *VALUES[language])))
    assert kernel == KernelMetrics("k", pytest.approx(117.344), 27595520.0, pytest.approx(0.125), pytest.approx(0.6577))


@pytest.mark.parametrize(
    ("units", "values"),
    [
        ({DURATION: "us"}, ("1.234",)),  # 1.234 or 1234
        ({DURATION: "us", SM_SHARE: "%", DRAM_SHARE: "%"}, ("5", "65.77", "12,50")),
    ],
)
def test_numbers_that_can_be_read_in_two_ways_are_rejected(read, units, values):
    with pytest.raises(ProfileError, match="LC_ALL=C"):
        read(table(units, ("k", *values)))


def test_a_share_above_one_is_impossible(read):
    assert read(table({DURATION: "us", SM_SHARE: "%"}, ("k", "1", "100.4")))[0].sm_share == 1.0
    with pytest.raises(ProfileError, match="a share of 6,577 %"):
        read(table({DURATION: "us", SM_SHARE: "%"}, ("k", "1", "6577")))


@pytest.mark.parametrize(("separator", "encoding"), [(",", "utf-8-sig"), (";", "utf-8-sig"), ("\t", "utf-16")])
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path, separator, encoding, quoting):
    rows = csv.reader(io.StringIO(table(UNITS, ("void add<4, float>(int)", *VALUES["German"]), before="")))
    saved = io.StringIO()
    csv.writer(saved, delimiter=separator, quoting=quoting, lineterminator="\r\n").writerows(rows)
    path = tmp_path / "kernels.csv"
    path.write_bytes(saved.getvalue().encode(encoding))
    (kernel,) = read_ncu(path)
    assert (kernel.name, kernel.dram_share) == ("void add<4, float>(int)", pytest.approx(0.125))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no table"),
        ("hello\n", "has no table"),
        ("==ERROR== Failed to find metric x\n", "ncu said: ==ERROR== Failed to find metric x"),
        ("==WARNING== No kernels were profiled.\n", "ncu said: ==WARNING== No kernels were profiled."),
        (table({DRAM: "byte"}, ("k", "1")), "no durations"),
        (table({DURATION: "us"}, ("k" * 200_000, "1")), "damaged"),
        ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","x","us","1"\n', "--page raw"),
    ],
)
def test_what_is_no_such_table_is_rejected_in_one_line(read, tmp_path, text, said):
    with one_line(ProfileError, said):
        read(text)
    with one_line(ProfileError, "cannot read"):
        read_ncu(tmp_path / "absent.csv")


WHOLE = table(
    {DURATION: "ns", DRAM: "byte", SM_SHARE: "%"}, ("void a<1, 2>(int)", "2,000", "1,048", "5"), ("b", "n/a", "1", "2")
)


@given(st.integers(0, len(WHOLE)), st.text(alphabet=st.characters(codec="utf-8"), max_size=40), st.integers(0, len(WHOLE)))
def test_damaged_tables_give_kernels_or_one_clear_error(tmp_path_factory, cut, noise, resume):
    path = tmp_path_factory.mktemp("damaged") / "kernels.csv"
    path.write_bytes((WHOLE[:cut] + noise + WHOLE[resume:]).encode())
    try:
        assert all(kernel.duration_us >= 0 for kernel in read_ncu(path))
    except ProfileError as error:
        assert "\n" not in str(error)


# the roofline

PEAK, BANDWIDTH = 1e15, 4e12  # the ridge is at 250 operations a byte
ADD = KernelMetrics("void add<4>(float*)", 100, 4e8, 0.95, 0.1, 0.8, 1e8)
GEMM = KernelMetrics("gemm", 1400, 5e8, 0.2, 0.9, 0.2, 1.1e12)
COPY = KernelMetrics("copy_kernel", 100, 3.6e8, 0.9, 0.1, 0.8, 0.0)
SMALL = KernelMetrics("small", 3, 4e4, 0.01, 0.02, 0.1, 2e4)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_roofline_states_each_kernels_bound_and_share_of_its_roof():
    figure = roofline([ADD, GEMM, COPY, SMALL], PEAK, BANDWIDTH)
    assert legend(figure) == [
        "1  add\n100 % of its roof; memory-bound",
        "2  gemm\n79 % of its roof; compute-bound",
        "3  copy_kernel\nno operations, 3.6 TB/s; memory-bound",
        "4  small\n0.33 % of its roof; latency-bound",
    ]
    assert (
        figure.get_suptitle()
        == "1 memory-bound, 1 compute-bound, 1 latency-bound; memory sets the pace below 250 FLOP per byte"
    )
    assert style.png(figure).startswith(b"\x89PNG")


def test_without_shares_the_side_of_the_ridge_tells_the_bound_and_what_is_not_counted_is_listed():
    figure = roofline([KernelMetrics("left", 1, 1e6, flops=1e6), KernelMetrics("right", 1, 1e6, flops=1e9)], PEAK, BANDWIDTH)
    assert [text.rpartition("; ")[2] for text in legend(figure)] == ["memory-bound", "compute-bound"]
    figure = roofline([KernelMetrics("k", 5.0), KernelMetrics("idle", 1e6, 100.0)], PEAK, BANDWIDTH)
    assert legend(figure) == ["1  k\nnot counted", "2  idle\nno operations, 100 B/s"]
    assert figure.get_suptitle().startswith("No operations counted")
    for kernels, peak, said in (([], PEAK, "no kernels"), ([ADD], 0, "positive"), ([ADD], -1.0, "positive")):
        with pytest.raises(ValueError, match=said):
            roofline(kernels, peak, BANDWIDTH)
