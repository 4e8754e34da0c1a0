"""Each lecture begins with its key figure: a committed picture with a text for those who cannot see it, drawn by today's code."""

import re
import sys
from html import unescape
from io import BytesIO
from pathlib import Path

import nbformat
import pytest
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Bbox
from PIL import Image

from course_lib import style
from course_lib.profiling.layer_tables.memory_traffic import RoundTrip, Traffic
from course_lib.teaching.fusion import draw_round_trips
from course_lib.teaching.pictures import bars

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import make_figures  # noqa: E402
import make_report  # noqa: E402

LECTURES = sorted(path for path in ROOT.glob("lectures/*.ipynb") if path.name[:2] != "00")


@pytest.mark.parametrize("lecture", LECTURES, ids=lambda path: path.stem)
def test_the_picture_is_that_of_its_cell(lecture: Path) -> None:
    notebook = nbformat.read(lecture, as_version=4)
    place = make_figures.key_cell(notebook)
    assert place is not None, f"no cell of {lecture.name} has the tag {make_figures.TAG!r}"
    picture = ROOT / "lectures" / "figures" / f"{lecture.name[:2]}.svg"
    source, told = make_figures.made_from(picture)
    current = make_figures.digest(notebook.cells[place].source)
    assert source == current, f"the cell has changed: python docs/make_figures.py {lecture.name[:2]}"
    shown = re.search(rf"!\[([^]]+)\]\(figures/{picture.name}\)", notebook.cells[0].source)
    assert shown, f"the first cell of {lecture.name} does not show figures/{picture.name}"
    assert shown[1] == told
    assert picture.stat().st_size < 100_000


TEXT = re.compile(
    r'<text style="(?P<style>[^"]*)" x="(?P<x>[\d.-]+)" y="(?P<y>[\d.-]+)" transform="rotate\(-0 [^>]*>(?P<words>[^<]*)</text>'
)


def faults(svg: str) -> list[str]:
    """Words of a figure that are beyond its edge, on top of other words, or too small on a phone; all but those that are rotated."""
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    boxes, found = [], ["too wide for a phone"] if width > 72 * style.WIDTH else []
    for text in TEXT.finditer(svg):
        size = float(re.search(r"font-size: ([\d.]+)", text["style"])[1])
        font = FontProperties(size=size, weight="bold" if "font-weight: 700" in text["style"] else "normal")
        long = text_to_path.get_text_width_height_descent(unescape(text["words"]), font, ismath=False)[0]
        anchor = re.search(r"text-anchor: (\w+)", text["style"])[1]
        left = float(text["x"]) - long * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        if left < 0 or left + long > width:
            found.append(f"cut: {text['words']}")
        if size < 7.5:
            found.append(f"small: {text['words']}")
        box = Bbox.from_bounds(left, float(text["y"]) - 0.7 * size, long, 0.7 * size)
        found += [f"{words} is under {text['words']}" for words, other in boxes if Bbox.intersection(box, other) is not None]
        boxes.append((text["words"], box))
    return found


@pytest.mark.parametrize(
    "picture", [*ROOT.glob("lectures/figures/*.svg"), ROOT / "docs" / "results.svg"], ids=lambda path: path.stem
)
def test_no_word_is_cut_small_or_under_another(picture: Path) -> None:
    svg = picture.read_text(encoding="utf-8")
    assert faults(svg) == []
    if picture.parent.name == "figures":
        assert svg.count("font-weight: 700; font-size: 10px") == 1, "a title has one line"
        sizes = [float(size) for size in re.findall(r'<text style="[^"]*font-size: ([\d.]+)', svg)]
        assert 358 * min(sizes) / float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1]) >= 10.5, "pixels of text on a phone"


def test_a_word_that_is_cut_and_one_under_another_are_found() -> None:
    figure = style.figure(2, width=3)
    axes = figure.add_subplot(title="one")
    for x, words in ((0.5, "first word"), (0.55, "second word"), (2.0, "beyond the edge")):
        axes.text(x, 0.5, words).set_in_layout(False)
    assert faults(style.svg(figure)) == ["first word is under second word", "cut: beyond the edge"]


def test_names_of_lines_colors_and_marks_stay_apart_and_are_dark_enough_for_text() -> None:
    with pytest.raises(ValueError, match=r"may be 4\.1 inches wide, got 7: stack its panels"):
        style.figure(3, width=7)
    named, marked = style.figure(2), style.figure(2.4)
    axes = named.add_subplot()
    for index in range(4):
        axes.plot([1, 2, 3], [1, 2, 2 + 0.01 * index], color=style.COLORS[index + 2], label=f"name {index}")
    style.name_lines(axes)
    assert [text.get_text() for text in axes.texts] == ["name 0", "name 1", "name 2", "name 3"]
    bars = marked.add_subplot(title="the slowest call decides")
    for index in range(3):
        bars.bar([index], [1], color=style.COLORS[index + 3], label=f"series {index}")
    style.name_colors(bars)
    style.mark_values(bars, {"median, 1.0 ms": 1.0, "slowest of all calls, 2.4 ms": 2.4}, style.COLORS[2:4])
    assert faults(style.svg(named)) == faults(style.svg(marked)) == []
    texts = [*axes.texts, *bars.get_legend().get_texts(), *bars.texts]
    assert all(max(to_rgb(text.get_color())) < 0.75 for text in texts)


def test_a_figure_follows_the_page_into_the_dark() -> None:
    text = style.svg(bars({"a": 1.0, "b": 2.0}, "ms", "b takes twice as long", highlight="b"))
    rules = text[text.index("@media (prefers-color-scheme: dark)") :]
    assert '[style*="fill: #ffffff"] {fill: #171717 !important}' in rules and "svg {fill: #e8e8e8}" in rules
    assert "#patch_1 path {fill: none !important}" in rules, "the page is the paper"
    figure = bars({"a": 1.0, "b": 2.0}, "ms", "")
    title = figure.suptitle("b takes twice as long", fontsize=14)
    book = style.svg(figure, titled=False)  # a page has room for a title
    assert title.get_fontsize() == 14
    assert (
        "<dc:description>b takes twice as long<" in book and ">b takes twice as long</text>" not in book and "</text>" in book
    )


@pytest.mark.parametrize(
    "low, high, labels",
    [
        (3e-7, 0.5, {"1e-6", "1e-4", "1e-2"}),
        (0.3, 4e6, {"1", "100", "10,000", "1,000,000"}),
        (0.3, 4, {"0.5", "1", "2"}),
        (0.5, 3e-7, {"1e-6", "1e-4", "1e-2"}),
    ],
)
def test_a_logarithmic_axis_has_one_notation(low: float, high: float, labels: set[str]) -> None:
    figure, axes = style.subplots(2)
    axes.plot([low, high], [1, 2], "o-")
    axes.set(xscale="log", xlim=(low, high))
    assert ':is(use, defs path, path[style*="fill: none"])' in style.svg(figure), "a marker has no dark rim"
    assert labels <= {label.get_text() for label in axes.get_xticklabels()}


@pytest.mark.parametrize("height, width", [(1.2, 4.1), (3.0, 2.0)])
def test_a_figure_in_a_notebook_is_a_white_card_with_round_corners(height: float, width: float) -> None:
    figure = style.figure(height, width=width)
    figure.add_subplot(title="a").plot([1, 2])
    picture = Image.open(BytesIO(style.png(figure)))
    columns, rows = (range(size) for size in picture.size)
    assert {picture.getpixel((x, y))[3] for x in columns[:: len(columns) - 1] for y in rows[:: len(rows) - 1]} == {0}
    middles = {picture.getpixel((len(columns) // 2, y)) for y in (0, -1)} | {
        picture.getpixel((x, len(rows) // 2)) for x in (0, -1)
    }
    assert middles == {(255, 255, 255, 255)} and not figure.artists


def test_the_pictures_of_a_report_are_those_of_its_templates() -> None:
    for picture in make_report.PICTURES.values():
        with Image.open(picture) as opened:
            assert opened.info["Source"] == make_report.digest(), "the report has changed: python docs/make_report.py"


def test_the_megabytes_of_kernels_add_up() -> None:
    """The boxes that are drawn, the line for the others, and the sums."""
    before = [RoundTrip(name, "Conv", {"x": 400_000}, 100_000, {"y": 2_500_000}, (name,)) for name in "abcd"]
    after = [RoundTrip("layout", "", {"x": 300_000}, 0, {}), RoundTrip("k", "Conv + Conv", {"x": 2_000_000}, 0, {}, ("b", "a")),
             RoundTrip("l", "Conv + Conv", {"x": 8_000}, 0, {}, ("c", "d"))]  # fmt: skip
    figure = draw_round_trips(Traffic(tuple(before)), Traffic(tuple(after)), operators=2)
    assert figure.axes[0].get_title() == "TensorRT's fused kernels move 81 % fewer bytes"
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["new layout", "0.3 MB", "Conv + Conv", "2.0 MB", "Conv", "3.0 MB", "Conv", "3.0 MB",
                     "and 2 more", "6.0 MB", "4 kernels, unfused", "12.0 MB",
                     "and 1 more", "8 kB", "3 kernels of TensorRT", "2.3 MB"]  # fmt: skip
