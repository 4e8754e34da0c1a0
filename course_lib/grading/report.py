"""The report on one hand-in as a single HTML page that loads nothing from anywhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

from course_lib import style
from course_lib.grading.judge import Verdict
from course_lib.labs import Lab

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }}
h1 {{ margin-bottom: 0 }} .score {{ font-size: 2.2rem; font-weight: 700 }} .of {{ color: #555; font-size: 1.1rem; font-weight: 400 }}
.task {{ border-left: 5px solid #d55e00; padding: .2rem 1rem; margin: .8rem 0; background: #f7f7f7 }}
.full {{ border-color: #009e73 }} .partial, .inconclusive {{ border-color: #e69f00 }}
.hint {{ font-style: italic }} img {{ max-width: 100% }} .wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: .8rem }} td, th {{ padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #ddd }}
caption {{ text-align: left; font-weight: 600; padding: .4rem 0 }} footer {{ color: #555; font-size: .8rem; margin-top: 2rem }}
</style></head><body>{body}</body></html>
"""


def page(lab: Lab, verdict: Verdict, student: str) -> str:
    """The whole page."""
    return _PAGE.format(
        title=escape(f"{lab.title}: {student}"), body=f"<h1>{escape(lab.title)}</h1><p>{escape(student)}</p>{body(verdict)}"
    )


def body(verdict: Verdict) -> str:
    """The report without the page around it, for nbgrader's feedback."""
    if verdict.examination is None:
        return f"<p><b>Not graded yet:</b> the examiner itself failed ({escape(verdict.fault)}). An instructor will run it again.</p>"
    found = verdict.examination
    parts = [f'<p class="score">{verdict.score:g} <span class="of">of {verdict.max_score:g} points</span></p>']
    if verdict.needs_instructor:
        parts.append("<p><b>Inconclusive:</b> measuring could not decide a tier. An instructor will look at it.</p>")
    for outcome in found.outcomes:
        hint = f'<br><span class="hint">Hint: {escape(outcome.hint)}</span>' if outcome.hint else ""
        parts.append(
            f'<div class="task {escape(outcome.tier)}"><b>{escape(outcome.task.title)}</b>: {outcome.points:g} of '
            f"{outcome.task.points:g}<br>{escape(outcome.message)}{hint}</div>"
        )
    if found.comparison:
        image = base64.b64encode(style.png(found.comparison.plot(about="yours"))).decode()
        measured = found.comparison
        rounds = len(measured.measurements[measured.baseline].latencies_ms)
        parts.append("<h2>How fast</h2>" + f'<img alt="latencies of the three engines" src="data:image/png;base64,{image}">')
        parts.append(
            f"<p>{rounds} rounds in {measured.seconds:.0f} s, all engines in shuffled order in each, one thread, the way to "
            "the engine's process and back included. "
            f"Stopped because {'the tier was clear' if measured.stopped == 'precise' else 'the time was up'}.</p>"
        )
    if found.plan and found.plan.layers.kernels:
        table = found.plan.layers._repr_html_()
        parts.append(f'<h2>What your network became</h2><div class="wide">{table}</div>')
    parts.append(f"<footer>{_provenance(verdict.provenance)}</footer>")
    return "".join(parts)


def _provenance(known: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in known["backends"].items())
    files = ", ".join(f"{name} {digest[:12]}" for name, digest in known["sha256"].items()) or "no files"
    return escape(
        f"Graded {known['date']} on {known['machine']}; Python {known['python']}, {versions}; built by {known['builder']}, "
        f"run by {known['runner']}; sandbox: {known['sandbox']}; handed in: {files}"
    )
