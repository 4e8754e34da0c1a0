"""README and the book's first page as a visitor meets them: what it is, for whom, and what to do next, before any scrolling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.browser.conftest import ARTIFACTS, ROOT
from tests.browser.legible import faults

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

SIZES = {1440: 1000, 390: 844}  # a desk and a telephone, width and height in pixels
# What a repository's page looks like: its width, fonts and colors.
STYLE = """<meta name=viewport content="width=device-width"><style>
body { max-width: 980px; margin: 0 auto; padding: 24px; font: 16px/1.5 sans-serif; overflow-wrap: break-word; color-scheme: light dark; }
body.dark { background: #0d1117; color: #e6edf3; } body.dark a { color: #4493f8; }
img { max-width: 100%; } table { border-collapse: collapse; display: block; overflow: auto; } td, th {
  border: 1px solid #8888; padding: 6px 13px; }
pre { padding: 16px; overflow: auto; background: #8881; } h1, h2 { border-bottom: 1px solid #8886; }</style>"""
PROMISE = re.compile("Learn what NVIDIA.s inference compiler does with your network")  # typesetting bends the apostrophe
AUDIENCE = "engineers who know PyTorch"


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("readme") / "index.html"
    text = MarkdownIt("commonmark").enable("table").render((ROOT / "README.md").read_text(encoding="utf-8"))
    page.write_text(
        f"<!doctype html><html lang=en><head>{STYLE}<base href='{ROOT.as_uri()}/'></head><body>{text}</body></html>"
    )
    return page


def end_of(page, text: str | re.Pattern[str]) -> float:
    """Where the last line of a text ends, in pixels from the top of the page."""
    box = page.get_by_text(text).first.bounding_box()
    return box["y"] + box["height"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("what", ["README", "book"])
def test_the_first_screen_says_what_for_whom_and_what_next(browser, readme, site, what, width, theme):
    page = browser.new_page(viewport={"width": width, "height": SIZES[width]}, color_scheme=theme)
    page.set_default_timeout(10_000)
    page.goto((readme if what == "README" else site / "index.html").as_uri())
    page.evaluate("dark => document.body.classList.toggle('dark', dark)", theme == "dark")
    if what == "book":
        assert page.evaluate("document.documentElement.dataset.theme") == theme
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"first_look_{what}_{width}_{theme}.png")
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth && image.alt)")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1")
    assert page.evaluate("[...document.querySelectorAll('table')].every(table => table.scrollWidth <= table.clientWidth + 1)")
    screen = SIZES[width]
    assert end_of(page, PROMISE) < 0.6 * screen
    assert end_of(page, AUDIENCE) < 0.6 * screen
    following = "make demo" if what == "README" else "I want to learn"
    assert end_of(page, following) < screen
    assert faults(page) == []
    page.close()


def test_a_link_to_a_page_unfolds_into_a_card(site):
    text = (site / "lectures" / "03_graph_optimization_and_fusion.html").read_text(encoding="utf-8")
    card = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]+)"', text))
    assert card["title"] == "3. Graph optimization and fusion" and card["description"].startswith("After this lecture you can")
