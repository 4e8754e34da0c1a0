"""Sphinx's settings for the course's book; `make_book.py` brings the sources together and runs it.

The pages load nothing from elsewhere, so that they can be read without a network, also from `file://`.
"""

from __future__ import annotations

import os
import re
import sys
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils.nodes import Node, document
    from sphinx.application import Sphinx

project = "The TensorRT course"
author = "The TensorRT course"
copyright = "the authors of the TensorRT course, Apache-2.0"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["colon_fence", "dollarmath", "html_image", "tasklist"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write `names` like this

html_theme = "sphinx_book_theme"
html_title = project
html_theme_options = {"show_toc_level": 2, "use_download_button": True, "show_navbar_depth": 1, "navbar_persistent": []}
html_static_path = ["_static"]
html_css_files = ["course.css"]
html_js_files = ["course.js"]
html_last_updated_fmt = None
_SCORER = Path(__file__).with_name("search_scorer.js")  # written by make_book.py
html_search_scorer = str(_SCORER) if _SCORER.is_file() else ""
html_favicon = "_static/favicon.svg"
html_baseurl = os.environ.get("COURSE_BOOK_URL", "")  # where the book is published; set by make_book.py

nb_execution_mode = "cache"  # set to "off" by `make_book.py --no-execute`
# A lab is for its reader to solve; tests leave out lectures, too.
nb_execution_excludepatterns = ["labs/*/*", *os.environ.get("COURSE_BOOK_EXCLUDES", "").split()]
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
# A widget needs a kernel, and a page has none: its static figure is shown.
nb_mime_priority_overrides = [
    ("html", "image/svg+xml", 0),
    ("html", "image/png", 1),
    ("html", "application/vnd.jupyter.widget-view+json", None),
]
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # scripts from elsewhere, for widgets that are not shown
suppress_warnings = ["ref.python"]  # the type `bytes` and attributes of that name
napoleon_attr_annotations = False  # checks of pydantic are not text to read
autodoc_member_order = "bysource"
autodoc_typehints = "signature"


def setup(app: Sphinx) -> None:
    """Corrections of what the extensions make of the course's sources."""
    app.connect("source-read", _report_progress)
    app.connect("doctree-read", _drop_unsolved)
    app.connect("doctree-read", _mark_boxes)
    app.connect("doctree-read", _keep_together)
    app.connect("doctree-read", _describe_figures)
    app.connect("html-page-context", _describe_page)
    app.connect("html-page-context", _let_names_break)
    app.connect("html-page-context", _lead_to_lab)
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)  # before napoleon's 500


def _report_progress(app: Sphinx, page: str, content: list[str]) -> None:
    """Lectures run for minutes."""
    lectures = sorted(name for name in app.env.found_docs if name.startswith("lectures/"))[1:]  # without the start page
    if page in lectures and app.config.nb_execution_mode != "off":
        print(f"lecture {lectures.index(page) + 1} of {len(lectures)}: {page.partition('/')[2]}", file=sys.stderr, flush=True)


_EXERCISE = re.compile(r'^check\("\d+\.\d+"', re.MULTILINE)


def _drop_unsolved(app: Sphinx, tree: document) -> None:
    """An exercise that its reader has to solve prints that it is not solved."""
    from docutils import nodes

    for cell in [part for part in tree.findall(nodes.container) if "cell" in part["classes"]]:
        if _EXERCISE.search(cell.astext()):
            for output in [part for part in cell if "cell_output" in part["classes"]]:
                cell.remove(output)


# What a quotation or a paragraph begins with, and the class that gives it its look in course.css.
_BOXES = {
    "after this lecture": "goals",
    "you will": "goals",
    "question": "question",
    "takeaway": "takeaway",
    "rule": "takeaway",
    "common misconception": "misconception",
    "migration": "migration",
    "pitfall": "pitfall",
    "exercise": "exercise",
}


def _mark_boxes(app: Sphinx, tree: document) -> None:
    """What a lecture or a lab leads to, questions, exercises, takeaways, misconceptions and old code each have their own look."""
    from docutils import nodes

    for paragraph in list(tree.findall(nodes.paragraph)):
        first = next((child for child in paragraph if child.astext()), None)  # MyST begins with an empty text
        if not isinstance(first, nodes.strong):
            continue
        words = first.astext().lower()
        if kind := next((kind for word, kind in _BOXES.items() if words.startswith(word)), None):
            part = paragraph.parent if isinstance(paragraph.parent, nodes.block_quote) else paragraph
            if part is paragraph or part.index(paragraph) == 0:
                siblings, place = part.parent, part.parent.index(part)
                parts = siblings[place : place + 1 + _length_of_answer(siblings[place + 1 :])]
                siblings[place : place + len(parts)] = [nodes.container("", *parts, classes=["course-box", f"course-{kind}"])]


def _length_of_answer(parts: list[Node]) -> int:
    """How many of the parts after a question or an exercise belong to it: its cell, and what is folded."""
    from docutils import nodes

    length, folded = 0, False
    for part in parts:
        if isinstance(part, nodes.raw) and part.astext().startswith(("<details", "</details")):
            folded = "</details" not in part.astext()
        elif not folded and not (isinstance(part, nodes.container) and _EXERCISE.search(part.astext())):
            break
        length += 1
    return length


def _keep_together(app: Sphinx, tree: document) -> None:
    """A line does not begin with the comma after a formula."""
    from docutils import nodes

    for formula in list(tree.findall(nodes.math)):
        after = formula.next_node(descend=False, siblings=True)
        if isinstance(after, nodes.Text) and (mark := re.match(r"[,.;:!?)]+", after)):
            together = nodes.inline("", "", formula.deepcopy(), nodes.Text(mark[0]), classes=["course-together"])
            formula.parent.replace(after, nodes.Text(after[mark.end() :]))
            formula.replace_self(together)


def _describe_figures(app: Sphinx, tree: document) -> None:
    """The alt text and the title of a figure that a cell draws are those that `course_lib.style` writes into its SVG file."""
    from docutils import nodes

    for image in list(tree.findall(nodes.image)):
        file = Path(app.srcdir, image["uri"].lstrip("/"))
        if "alt" in image or file.suffix == ".png" or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8")
        if alt := re.search(r"<dc:title>(.*?)</dc:title>", text, re.DOTALL):
            image["alt"] = unescape(alt[1])
        if title := re.search(r"<dc:description>(.*?)</dc:description>", text, re.DOTALL):
            caption = nodes.paragraph("", "", nodes.strong("", unescape(title[1])), classes=["course-title"])
            image.parent.insert(image.parent.index(image), caption)


def _describe_page(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: document | None) -> None:
    """The card that a link to a page unfolds into elsewhere (https://ogp.me)."""
    from docutils import nodes

    if tree is None:
        return
    paragraphs = (one for one in tree.findall(nodes.paragraph) if not all(isinstance(part, nodes.reference) for part in one))
    first = next(paragraphs, None)  # after the links below the title
    if first and isinstance(first.parent, nodes.block_quote):  # what you can do after a lecture is a list
        first = first.parent
    card = {
        "type": "website",
        "site_name": project,
        "title": context["title"],
        "description": " ".join(first.astext().split())[:200] if first else "",
    }
    if html_baseurl:
        card |= {"url": f"{html_baseurl}{page}.html", "image": f"{html_baseurl}_static/card.png"}
    tags = [f'<meta property="og:{name}" content="{escape(text)}" />' for name, text in card.items() if text]
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[/_.=])(?=\w)")  # of a dotted name, a path or a name in camel case


def _let_names_break(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: document | None) -> None:
    """A long name breaks between its parts: in code, in signatures, in the first heading, and in the index."""
    from markupsafe import Markup, escape

    if "body" in context:
        names = r'(?<=<span class="pre">)[^<]+|(?<=<h1>)[^<]+'
        body = re.sub(names, lambda name: _PARTS.sub("<wbr>", name[0]), context["body"])
        body = re.sub(r'(href="\.\./[^":]+)\.ipynb"', r'\1.html"', body)  # links that cells of the start page print
        if page.endswith("benchmarks"):  # its tables; elsewhere such a text can be in an attribute or in a widget's data
            body = re.sub(r"[\d.]+x \[[\d.-]+\](?![^<]*>)", r'<span class="course-together">\g<0></span>', body)
        context["body"] = body
    if "genindexentries" in context:
        context["genindexentries"] = [
            (letter, [(Markup("<wbr>").join(map(escape, _PARTS.split(name))), known) for name, known in entries])
            for letter, entries in context["genindexentries"]
        ]


def _lead_to_lab(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: document | None) -> None:
    """The link to the next page is that of "Next:" in the lecture, most often a lab. A lab leads to the lecture that follows."""
    from docutils import nodes

    from course_lib.labs import _LABS_OF_LECTURES as labs_of_lectures

    target = ""
    if lab := re.match(r"labs/(lab\d+)", page):
        after = min(lecture for lecture, labs in labs_of_lectures.items() if lab[1] in labs) + 1
        target = next((name for name in app.env.found_docs if name.startswith(f"lectures/{after:02}_")), "")
    elif tree is not None and page.startswith("lectures/"):
        paragraphs = (one for one in tree.findall(nodes.paragraph) if one.astext().strip().startswith("Next:"))
        link = next((link for paragraph in paragraphs for link in paragraph.findall(nodes.reference)), None)
        target = os.path.normpath(f"lectures/{link['refuri'].removesuffix('.html')}") if link else ""
    if target:
        context["next"] = {"link": app.builder.get_relative_uri(page, target), "title": escape(app.env.titles[target].astext())}


def _keep_colons(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """The first line of a property's docstring is a sentence. Napoleon takes what comes before its colon for a type."""
    if what in ("property", "attribute", "data") and lines:
        lines[0] = f": {lines[0]}"
