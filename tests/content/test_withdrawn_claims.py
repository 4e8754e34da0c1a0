"""Statements that were found wrong or too wide, each with the source that corrects it: none of them comes back, on any page."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/**/*.md", "lectures/*.ipynb", "solutions/*/*.ipynb", "course_lib/**/*.py")

# A pattern over text whose line breaks are spaces, and where the correction is from.
WITHDRAWN = {
    r"tactic-replay`?, seen in blogs, never existed": "Polygraphy's CHANGELOG: added in 0.22.0, removed in 0.35.0",
    r"domain\*? plays no part": "TensorRT's CHANGELOG, 10.10.0: the namespace is also read from the node's domain",
    r"Volta and older were dropped with 10\.5": "release notes of 10.5.0 (Volta), of 8.5 and 10.0 (older ones)",
    r"BERT-base 4\.74 ms in INT8|4\.74 ms in INT8": "no row of that engine's layer table is Int8",
    r"28 of 45": "the same record without the engine that is not proved to be INT8",
    r"kernels are too small for this GPU|no kernel of the engine fills": "headline_h200.json: its engines are faster",
    r"Two handicaps were ours": "NvInfer.h of 8.6.0: external tactic sources are off for the core by default",
    r"it warns above 2\.5 %": "sampleReporting.cpp: 1 % up to 10.13, 2.5 % from 10.13.2 on",
    r"neither is the name of the GPU": "TensorRT's warning about another model of a device (issues 2900 and 3829)",
    r"11\.0 to 11\.3 have none; 11\.4\.1": "release notes of 11.4.0: the DLA on Windows on ARM",
    r"newer than that: see your version's release notes": "TensorRT's CHANGELOG, 10.9.0: Python AOT plugins",
    r"TensorRT never measures accuracy": "NVIDIA, Global Performance Tuning: since 11.1, routes beyond a loss are dropped",
    r"systems, including their DLA": "NVIDIA, Jetson migration page of 11.4.1: Thor has no DLA",
    r"compiled when the plan is loaded|on the user's GPU when it loads the plan": "NVIDIA, Working with Runtime Cache",
    r"is the method of TensorRT's entropy calibrator": "calibrators_h200.json: ranges of tensors differ by up to 38 %",
    r"Blackwell \(10\.0 and 12\.0\)": "TensorRT-RTX 1.5 Support Matrix: 12.1, too",
    r"(?<![/\w])TensorRT-LLM\b": "NVIDIA's documentation writes TensorRT LLM",
    r"Attention in one kernel exists for FP16 and BF16\.": "NVIDIA, Attention: the softmax's result in FP8 or INT8",
    r"data-center Blackwell \(10\.0\) \|": "Transformer Engine, support matrix: 10.3 has MXFP8 and NVFP4, too",
    r"`add_moe` \(TensorRT 10\.16 and later\);": "NVIDIA, MoE: on compute capabilities 10.0, 10.3 and 11.0",
    r"builds take much longer \|": "NvInfer.h, TilingOptimizationLevel: slightly longer at kFAST",
    r"deprecated Caffe and UFF, which version 10 removed": "API of 8.2: both were announced to go with 9.0",
    r"4813, 4846 and 4853 report": "issue 4813: batch 1 is the worst of its configurations",
    r"GPU's memory \(lecture 14\)|lecture 8's output allocator": "both are taught in lecture 10",
}

# Words that only the course used, and the field's terms for them.
PRIVATE_WORDS = {
    r"\buntouched releases?\b": "unsolved lab",
    r"\bheads of keys\b": "KV heads",
    r"\bseats?\b": "batch slots",
    r"PyTorch's ways\b": "eager, torch.compile, CUDA graph",
    r"\brequests in hand\b": "waiting requests",
    r"\bnonsense\b": "wrong or random answers",
    r"\bborder of (?:the|a) graph\b|\bgraph's border\b|\bborder is an error\b|\bsuch a border\b": "graph break, partition boundary",
    r"\bborders? of (?:the|a|each|all) bins?\b|\bupper borders?\b": "bin edge",
}


@cache
def pages() -> dict[str, str]:
    found = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    return {str(path.relative_to(ROOT)): " ".join(_text(path).split()) for path in found}


def _text(path: Path) -> str:
    raw = path.read_text(encoding="utf-8")
    return "\n".join("".join(cell["source"]) for cell in json.loads(raw)["cells"]) if path.suffix == ".ipynb" else raw


@pytest.mark.parametrize(("claim", "source"), WITHDRAWN.items(), ids=list(WITHDRAWN.values()))
def test_a_withdrawn_claim_stays_withdrawn(claim: str, source: str) -> None:
    assert [page for page, text in pages().items() if re.search(claim, text)] == [], source


@pytest.mark.parametrize(("word", "term"), PRIVATE_WORDS.items(), ids=list(PRIVATE_WORDS.values()))
def test_a_private_word_stays_replaced_by_the_fields_term(word: str, term: str) -> None:
    assert [page for page, text in pages().items() if re.search(word, text, re.IGNORECASE)] == [], f"write: {term}"
