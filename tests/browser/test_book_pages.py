"""Every page of the book as a reader without a network sees it, on a wide screen and on a telephone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.browser import legible

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

LOCAL = ("file:", "data:", "blob:")
FAULTS = Path(__file__).with_name("book_faults.js").read_text(encoding="utf-8")
CELLS = {
    "bars": "from course_lib import style\nfigure = style.figure()\naxes = figure.add_subplot(title='Twice as fast')\n"
    "axes.set(xlabel='batch', ylabel='ms')\naxes.plot([1, 2])\nfigure",
    "widget": "from course_lib.teaching.widgets import PrecisionExplorer\nPrecisionExplorer()",
    "layers": "from course_lib.engines.layers import Layer, LayerTable, LayerTensor\n"
    "name = '__myl_MulAddMulMinMaxRounCastCastMulMulAddAddMoveReluMeanMulMinMaxRounCast_myl0_25'\n"
    "nodes = ['Conv', 'QuantizeLinear', 'DequantizeLinear', 'Add', 'Relu', 'ReduceMean', 'QuantizeLinear']\n"
    "data = (LayerTensor('data', (-1, 16, 32, 32), 'Float', 'NHWC'),)\n"
    "operators = {f'/block3/{i}': node for i, node in enumerate(nodes)}\n"
    "LayerTable((Layer(name, 'kgen', data, data, data, '', tuple(operators)),), operators)",
    "times": "from course_lib.profiling import LayerTimings\nLayerTimings.from_rows([(f'{name}_{i}', 1.0) for i in range(3)])",
    "long": "print('x' * 500)",
    "scoreboard": "from course_lib.teaching import scoreboard\nscoreboard.after(12)",
    "machine": "from course_lib.cli.machine import this_machine\nthis_machine()",
    "exercise": "from course_lib.exercises import check\ncheck('1.1', lambda *arguments: None)",
    "check": "from course_lib import labs\nlabs.find('lab01').zero_outcomes('`model.onnx` is missing.', 'Run the cell of task 1.')[0]",
    "table": "import html\nfrom IPython.display import HTML\n"
    "HTML('<table><tr>' + '<td>a wide cell of a table</td>' * 40 + '</tr></table>')",
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small book with the same settings whose one notebook has run: a figure, a widget, wide outputs."""
    source = tmp_path_factory.mktemp("executed")
    shutil.copy(ROOT / "docs" / "conf.py", source)
    shutil.copytree(ROOT / "docs" / "_static", source / "_static")
    text = "# Outputs\n\n- [ ] a task\n- [x] a task that is done\n\nInline $\\sqrt{x^2}$, and\n\n$$\\frac{a}{b}$$"
    cells = [nbformat.v4.new_code_cell(cell, id=name) for name, cell in CELLS.items()]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="text"), *cells])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, source / "index.ipynb")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-D", "nb_execution_mode=force", str(source), str(source / "html")]
    environment = {**os.environ, "COURSE_FIGURES": "book", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return source / "html"


def faults(browser, site: Path, width: int) -> list[str]:
    """What is wrong on the pages of a site at a width in pixels; every request that leaves the machine is one."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    outside: list[str] = []
    page.route(lambda url: not url.startswith(LOCAL), lambda route: (outside.append(route.request.url), route.abort()))
    found = []
    pages = [file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts]
    assert pages
    for file in pages:
        page.goto(file.as_uri())
        page.evaluate("async () => { if (window.MathJax?.startup) await MathJax.startup.promise; }")
        found += [f"{file.relative_to(site)}: {fault}" for fault in page.evaluate(FAULTS, width > 1000)]
    page.close()
    return found + [f"loaded from elsewhere: {url}" for url in outside]


@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_has_a_fault(browser, site, width):
    assert faults(browser, site, width) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_no_output_has_a_fault(browser, executed, width):
    assert faults(browser, executed, width) == []


def test_figures_are_sharp_and_described_and_tasks_are_boxes(browser, executed):
    page = browser.new_page()
    page.goto((executed / "index.html").as_uri())
    images = page.locator(".bd-article img")
    assert all(image.get_attribute("src").endswith(".svg") for image in images.all())
    titles = [image.get_attribute("alt").partition(".")[0] for image in images.all()]
    assert titles == page.locator(".course-title").all_inner_texts() == ["Twice as fast"]
    widget = page.locator(".bd-article svg[role=img]")  # drawn in the page, without a kernel
    assert "FP16 turns 0" in widget.get_attribute("aria-label")
    assert page.locator(".bd-article li input[type=checkbox]").count() == 2
    page.close()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_cells_print_is_legible_in_both_themes(browser, executed, theme, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.add_init_script(f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}')")
    page.goto((executed / "index.html").as_uri())
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.locator(".cell_output caption").count() >= 2
    assert legible.faults(page) == []
    cards = page.eval_on_selector_all(
        ".cell_output img", "all => all.map(e => getComputedStyle(e)).map(s => [s.filter, s.backgroundColor])"
    )
    assert cards and cards == [["none", "rgba(0, 0, 0, 0)"]] * len(cards)  # a figure has colors for both themes
    page.close()


TEACHES = {
    "calibration": "06_int8_quantization",
    "plugin": "09_plugins",
    "optimization profile": "08_dynamic_shapes",
    "timing cache": "04_kernel_auto_tuning",
    "fusion": "03_graph_optimization_and_fusion",
    "FP16": "05_reduced_precision",
    "CUDA graph": "10_the_runtime",
    "roofline": "12_profiling",
    "straight-through": "07_quantization_aware_training",
    "dynamo": "13_torch_tensorrt",
}


@pytest.mark.parametrize("word", TEACHES)
def test_search_finds_the_lecture_first_that_teaches_a_word(word, browser, site):
    page = browser.new_page()
    page.goto(f"{(site / 'search.html').as_uri()}?q={word.replace(' ', '+')}")
    first = page.locator("#search-results li a").first
    first.wait_for()
    assert TEACHES[word] in first.get_attribute("href")
    page.close()


def test_questions_and_misconceptions_have_a_look(browser, site):
    page = browser.new_page()
    page.goto((site / "lectures" / "05_reduced_precision.html").as_uri())
    looks = page.eval_on_selector_all(".course-box", "all => all.map(e => [e.className, getComputedStyle(e).borderLeftColor])")
    assert len(looks) > 5 and len({name for name, _ in looks}) == len({color for _, color in looks}) >= 5
    assert page.locator(".course-box > details").count() > 5 and page.locator(".course-box + details").count() == 0
    page.close()


def test_links_to_the_next_page_break_between_words(browser, site):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    broken = []
    for file in sorted(site.glob("l*/**/*.html")):
        page.goto(file.as_uri())
        broken += page.evaluate(r"""() => [...document.querySelectorAll(".prev-next-title")].flatMap(title => {
          const text = title.firstChild, words = [...text.data.matchAll(/\w+/g)];
          return words.filter(word => {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            return range.getClientRects().length > 1;
          }).map(word => word[0]);
        })""")
    page.close()
    assert broken == []


BAD = {
    "raw formula": '<span class="math">\\(x\\)</span>',
    "the page scrolls": '<div style="width:3000px">wide</div>',
    "code is cut off": f'<pre style="overflow:hidden;white-space:pre">{"x" * 900}</pre>',
    "no alt text": '<img src="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7">',
    "raw source": "<p>[ ] a task</p>",
    "loaded from elsewhere": '<script src="https://example.com/a.js"></script>',
}


@pytest.mark.parametrize("fault", BAD)
def test_the_check_finds(fault, browser, tmp_path):
    (tmp_path / "index.html").write_text(
        f'<body><article class="bd-article" style="overflow:visible">{BAD[fault]}</article></body>'
    )
    assert any(fault in one for one in faults(browser, tmp_path, 390))
