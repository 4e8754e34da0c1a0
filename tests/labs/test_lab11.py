"""Lab 11 against its reference, the recorded partitions, mistakes that learners make, and cheats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.torch_trt_parts.networks import Attention, Centered, Island
from course_lib import labs
from course_lib.benchmark import recorded
from course_lib.errors import EngineError
from course_lib.labs import Examiner, Outcome
from course_lib.labs.framework.isolation import Rejected
from course_lib.labs.lab11_torch_tensorrt import network, program, reference, release
from course_lib.labs.lab11_torch_tensorrt.emulated import attention_form, compiled
from course_lib.labs.lab11_torch_tensorrt.judge import rewriting, searching, segmenting, serving
from course_lib.labs.lab11_torch_tensorrt.sandboxed import export_model, run_program
from course_lib.models import classifier, encoder
from course_lib.teaching.torch_tensorrt_record import recorded_partition
from tests.labs import quick
from tests.labs.quick import check_solved, judged_reference
from tests.labs.submissions import lab11 as made
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab11")
H200 = recorded("torch_tensorrt_h200")


def examined(folder: Path, task: str, seed: int = 3) -> Outcome:
    return quick.examined(LAB, folder, task, Examiner(seed=seed))


def run_in_process(monkeypatch) -> None:
    """The module is exported in this process, and its graph runs in it."""

    def transformed(module, asked, **_):
        try:
            return run_program.answer(asked)
        except EngineError as error:
            raise Rejected(str(error)) from None

    quick.call_in_process(monkeypatch, export_model)
    monkeypatch.setattr(rewriting, "transformed", transformed)


# Right answers


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    judged_reference(LAB, tmp_path)


def test_another_right_answer(tmp_path):
    made.another(tmp_path)
    check_solved(LAB, LAB.examine(tmp_path, Examiner(seed=1)))


def test_the_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    found = LAB.examine(tmp_path, Examiner())
    assert found.points == 0
    assert all(one.hint and "still empty" in one.message for one in found.outcomes), [one.message for one in found.outcomes]


@pytest.mark.parametrize(
    "change",
    [
        {'"output_format": "fx"': '"output_format": "graph_module"'},
        {'"ir": "dynamo",': '"ir": "dynamo", "optimization_level": 3, "refit": True, "use_python_runtime": True,'},
        {'"ir": "dynamo",': '"ir": "dynamo", "torch_executed_ops": [],'},
        {'"ir": "dynamo",': '"ir": "dynamo", "workspace_size": 1 << 30, "num_avg_timing_iters": 4, "dla_sram_size": 0,'},
        {"images = np.asarray(images)": "images = np.asarray(images, np.float32)"},
    ],
)
def test_a_service_that_keeps_its_points(change, tmp_path):
    (tmp_path / "service.py").write_text(made.changed("service.py", change))
    assert examined(tmp_path, "service").tier == "full"


@pytest.mark.parametrize(
    ("task", "change"),
    [
        ("search", {"error(kept, 1)": "error(kept, min_block_size=1)"}),
        ("search", {"error(kept, 1)": "error(min_block_size=1, torch_executed_ops=kept)"}),
        ("service", {"run(filled.tolist())": "run(batch=filled.tolist())"}),
    ],
)
def test_a_function_of_the_judge_takes_keywords(task, change, tmp_path):
    (tmp_path / f"{task}.py").write_text(made.changed(f"{task}.py", change))
    assert examined(tmp_path, task).tier == "full"


# The model of 2.2.0 against what the release did on a GPU

RELU = {"torch.ops.aten.relu.default"}
SETTINGS = {
    "island": {},
    "island, min_block_size=1": {"min_block_size": 1},
    "island, min_block_size=8": {"min_block_size": 8},
    "island, min_block_size=100": {"min_block_size": 100},
    "island, require_full_compilation=True": {"require_full_compilation": True},
    "island, torch_executed_ops relu": {"torch_executed_ops": RELU},
    "island, torch_executed_ops relu, min_block_size=1": {"torch_executed_ops": RELU, "min_block_size": 1},
    "classifier": {},
    "classifier with a median": {},
    "classifier with a median, min_block_size=20": {"min_block_size": 20},
    "classifier, torch_executed_ops relu": {"torch_executed_ops": RELU},
    "classifier, torch_executed_ops relu, min_block_size=1": {"torch_executed_ops": RELU, "min_block_size": 1},
    "classifier, torch_executed_ops aten::relu": {"torch_executed_ops": {"aten::relu"}},
}


def _network(case: str) -> tuple[torch.nn.Module, torch.Tensor]:
    if case.startswith("island"):
        return Island(), torch.rand(4, 3, 16, 16)
    small = classifier("small")
    return Centered(small) if "median" in case else small, torch.rand(8, 1, 32, 32)


@pytest.mark.parametrize("case", SETTINGS)
def test_the_segments_are_those_that_were_recorded_on_a_gpu(case):
    found = compiled(*_network(case), **SETTINGS[case])
    blocks = recorded_partition(H200, case).blocks
    assert [(one.in_tensorrt, one.operators) for one in found.segments] == [(one.in_tensorrt, one.operators) for one in blocks]


def test_every_recorded_partition_is_compared_but_that_of_the_other_partitioner():
    cases = {row["case"] for row in H200.section("partition")}
    assert cases - set(SETTINGS) == {"island, use_fast_partitioner=False"}


STYLES = ("fused qkv, unbind", "fused qkv, chunk", "three projections", "fused qkv, written out")


@pytest.mark.parametrize("style", STYLES)
def test_the_attention_is_wrong_in_the_form_that_was_wrong_on_a_gpu(style):
    row = H200.case("attention", f"{style}; all kernels")
    torch.manual_seed(0)
    module, x = Attention(style).eval(), torch.randn(2, 32, 256)
    found = compiled(module, x)
    with torch.inference_mode():
        errors = {order: float((found(x)[0] - module(x, places)).norm() / module(x, places).norm()) for order, places in
                  (("query, key, value", (0, 1, 2)), ("value, key, query", (2, 1, 0)))}  # fmt: skip
    for order, error in errors.items():
        assert (error < 1e-4) == (row["errors"][order] < 1e-4)
    want = [(one["runs_in"] == "TensorRT", sorted(map(_short, one["operators"]))) for one in row["blocks"]]
    assert [(one.in_tensorrt, sorted(one.operators)) for one in found.segments] == want


def test_the_encoder_has_the_operators_that_were_recorded():
    row = H200.case("attention", "the course's encoder")
    found = compiled(encoder(), torch.rand(8, 32, 32))
    assert found.attentions() == [release.RIGHT] * 4
    (segment,), (block,) = found.segments, row["blocks"]
    assert segment.in_tensorrt and sorted(segment.operators) == sorted(map(_short, block["operators"]))


def _short(name: str) -> str:
    return release.ATTENTION if release.ATTENTION in name else name


def test_the_given_model_has_seven_segments_and_a_wrong_attention():
    given, rows = network.reader(), network.inputs(np.random.default_rng(1))
    found = compiled(given, rows)
    assert len(found.segments) == 7 and found.engines == 4 and found.attentions() == [release.EXCHANGED]
    assert [name for name, _ in found.in_pytorch()] == ["aten.cumprod.default", "aten.median.dim", "aten.max.dim"]
    with torch.inference_mode():
        right = given(rows)
    assert torch.allclose(found.values(rows, eager=True)["output"], right, atol=1e-5)
    assert float((found(rows)[0] - right).abs().max() / right.abs().max()) > 0.1


def test_the_table_has_each_converter_of_the_running_release():
    listed = {name for name in H200.case("versions", "installed")["converters"] if name.startswith(("aten", "prims"))}
    assert listed | {"operator.getitem"} == release.converters()


# The judge's own answers


def test_the_graph_in_the_notebook_has_fewer_engines_than_its_neighbors():
    operators = {"a": "relu.default", "b": "cumprod.default", "c": "exp.default", "d": "cumprod.default", "e": "add.Tensor"}
    inputs = {"a": [], "b": ["a"], "c": ["a"], "d": ["c"], "e": ["b", "d"]}
    nodes = [{"name": name, "operator": f"aten.{operators[name]}", "inputs": inputs[name]} for name in operators]
    asked = segmenting.Question(nodes, [], 1)
    counts = [
        (len(found), sum(place for place, _ in found)) for found in (segmenting._neighbors(asked), segmenting.split(asked))
    ]
    assert counts == [(5, 3), (3, 2)]


@pytest.mark.parametrize("text", [reference.SEGMENTS, made.SEGMENTS])
def test_the_rules_of_the_task_are_those_of_pytorchs_splitter(text):
    functions: dict[str, Any] = {}
    exec(text, functions)
    for seed in range(3):
        for asked in segmenting.questions(np.random.default_rng(seed)):
            assert segmenting._same(functions["segments"](*asked.arguments), segmenting.split(asked))


def test_a_search_by_halves_stays_within_the_budget(tmp_path):
    (tmp_path / "search.py").write_text(made.FILES["search.py"])
    for seed in range(5):
        assert examined(tmp_path, "search", seed).tier == "full"


def test_one_compilation_for_each_kind_is_above_the_budget():
    for model in searching.models(np.random.default_rng(1)):
        assert model.budget < len(set(model.chain))


@pytest.mark.parametrize("mistake", run_program.mistakes())
def test_every_known_mistake_has_words_and_other_answers(mistake):
    kind = run_program.mistakes()[mistake]
    rows, weights = network.inputs(np.random.default_rng(2)), network.weights(np.random.default_rng(1))
    right = run_program._answers(network.Reader, weights, rows)
    assert run_program._error(right, run_program._answers(kind, weights, rows)) > 10 * run_program.SAME
    assert mistake in rewriting._RESEMBLES


# Planted mistakes: changes to the reference, words of the message, words of the hint, points


def _unbound(after: str) -> dict[str, str]:
    return {
        "part.reshape(batch, rows, HEADS, -1).permute(0, 2, 1, 3)": f"part{after}",
        "qkv.chunk(3, dim=2)": "qkv.reshape(batch, rows, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)",
    }


MISTAKES = {
    "segments.py": {
        "by_place": (
            {
                'if inside[node["name"]] == place and done': 'if inside[node["name"]] != place:\n                break\n            if done'
            },
            "runs of neighbors in the list",
            "all its inputs already",
            0,
        ),
        "listed_by_hand": (
            {"in converters and not kept": f"in {segmenting.CONVERTERS} and not kept"},
            "the converters of the graph in the notebook",
            "Which parameter lists them",
            0,
        ),
        "two_inputs": (
            {'done.issuperset(node["inputs"])': 'done.issuperset(node["inputs"][:2])'},
            "before its last ones",
            "all its inputs",
            None,
        ),
        "at_most": ({"len(run) >= min_block_size": "len(run) > min_block_size"}, "exactly min_block_size", "smallest size", 0),
        "not_joined": (
            {"if found and not place and not found[-1][0]:": "if False:"},
            "follow each other",
            "small segment",
            1.5,
        ),
        "starts_inside": (
            {'place = all(inside[node["name"]] for node in nodes if not node["inputs"])': "place = True"},
            "Your first segment is in TensorRT",
            "read no other node",
            None,  # 0 or half of the points: the draw decides how many graphs begin in PyTorch
        ),
        "any_form": (
            {
                """f"torch.ops.{node['operator']}" in in_pytorch""": """node['operator'].rpartition(".")[0] + "." in str(
            in_pytorch
        ).replace("::", ".").replace("'", ".")"""
            },
            "another form than torch.ops.NAME",
            "not written in full",
            1.5,
        ),
        "without_overload": (
            {
                """kept = f"torch.ops.{node['operator']}" in in_pytorch
        inside""": """full = f"torch.ops.{node['operator']}"
        kept = full in in_pytorch or full.rpartition(".")[0] in in_pytorch
        inside"""
            },
            "Names without an overload",
            "ends in its overload",
            1.5,
        ),
        "an_empty_segment": ({"return found\n\n\ndef": "return [*found, (True, [])]\n\n\ndef"}, "one is empty", "available", 0),
        "upside_down": (
            {"place = not place\n    found": "place = not place\n    runs.reverse()\n    found"},
            "must be in segment",
            "available",
            0,
        ),
        "reasons": ({'= "kept"': '= "no converter"'}, "The reason of node_", "one reason only", 1.5),
        "kept_first": (
            {
                """if node["operator"] not in converters:
            said[node["name"]] = "no converter"
        elif f"torch.ops.{node['operator']}" in in_pytorch:
            said[node["name"]] = "kept\"""": """if f"torch.ops.{node['operator']}" in in_pytorch:
            said[node["name"]] = "kept"
        elif node["operator"] not in converters:
            said[node["name"]] = "no converter\""""
            },
            "is 'kept', expected 'no converter'",
            "one reason only",
            1.5,
        ),
        "reasons_of_all": ({'if node["name"] not in outside:': "if False:"}, "expected None", "Only nodes in PyTorch", 1.5),
        "a_name_is_missing": ({"return found\n\n\ndef": "return found[1:]\n\n\ndef"}, "each node once", "the same answer", 0),
        "an_error": ({"list(waiting)": "liste(waiting)"}, "NameError", "the same answer", 0),
        "numbers": ({"found.append((place, run))": "found.append((int(place), run))"}, "True or False", "the same answer", 0),
    },
    "model.py": {
        "upper_middle": ({"(ROWS - 1) // 2": "ROWS // 2"}, "one row too high", "lower one", 0),
        "mean_of_middles": (
            {"values[:, (ROWS - 1) // 2].unsqueeze(1)": "values[:, 15:17].mean(1, keepdim=True)"},
            "the mean of two rows",
            "lower one",
            0,
        ),
        "summed": (
            {"torch.exp(torch.cumsum(torch.log(gates), dim=1))": "torch.cumsum(gates, dim=1)"},
            "added up",
            "and back",
            0,
        ),
        "cumprod": (
            {"torch.exp(torch.cumsum(torch.log(gates), dim=1))": "torch.cumprod(gates, dim=1)"},
            "aten.cumprod.default (no converter)",
            "into a sum",
            1.5,
        ),
        "max_with_rows": (
            {"return torch.cat([x.amax(dim=1), x.argmax(dim=1)": "a, b = x.max(dim=1)\n        return torch.cat([a, b"},
            "aten.max.dim (arguments that its converter rejects)",
            "gives values only",
            1.5,
        ),
        "two_borders": (
            {
                "torch.exp(torch.cumsum(torch.log(gates), dim=1))": "torch.cumprod(gates, dim=1)",
                "x.sort(dim=1).values[:, (ROWS - 1) // 2].unsqueeze(1)": "x.median(dim=1, keepdim=True).values",
            },
            "aten.median.dim (no converter)",
            "into a sum",
            0,
        ),
        "unbind": (
            {
                "part.reshape(batch, rows, HEADS, -1).permute(0, 2, 1, 3)": "part",
                "qkv.chunk(3, dim=2)": "qkv.reshape(batch, rows, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)",
            },
            "it exchanges query and value",
            "first to differ",
            0,
        ),
        "select": (
            {
                "part.reshape(batch, rows, HEADS, -1).permute(0, 2, 1, 3)": "part",
                "part in qkv.chunk(3, dim=2)": "part in (qkv.reshape(8, 32, 3, 4, 12).permute(2, 0, 3, 1, 4)[i] for i in (0, 1, 2))",
            },
            "never recorded",
            "attention written out",
            0,
        ),
        "unbind_and_nothing": (_unbound(".permute(0, 1, 2, 3)"), "never recorded", "with permute", 0),
        "unbind_and_back": (_unbound(".permute(0, 2, 1, 3).transpose(1, 2)"), "never recorded", "with permute", 0),
        "unbind_of_another_axis": (
            {
                "part.reshape(batch, rows, HEADS, -1).permute": "part.permute",
                "qkv.chunk(3, dim=2)": "qkv.reshape(batch, rows, 3, HEADS, -1).unbind(2)",
            },
            "never recorded",
            "with permute",
            0,
        ),
        "not_divided": ({" / ROWS": ""}, "not divided by 32", "Read `summary` again", 0),
        "another_weight": (
            {"nn.Linear(WIDTH, 10)": "nn.Linear(WIDTH, 11)"},
            "'head.weight' with the shape [11, 48]",
            "Correct it",
            0,
        ),
        "one_more_weight": (
            {"self.head =": "self.more = nn.Linear(2, 2)\n        self.head ="},
            "'more.weight' with the shape [2, 2], expected None",
            "Correct it",
            0,
        ),
        "a_branch": (
            {"x = torch.relu(self.embed(rows))": "x = self.embed(rows)\n        if x.mean() > 0: x = x + 1"},
            "cannot be exported",
            "Correct it",
            0,
        ),
        "a_tuple": ({"return self.head(": "return 1, self.head("}, "must return one tensor", "Correct it", 0),
        "another_shape": ({"return self.head(": "return self.norm1("}, "expected logits of shape (8, 10)", "Correct it", 0),
        "one_stub": (
            {"return torch.exp(": "raise NotImplementedError\n        return torch.exp("},
            "A method of Rewritten is still empty",
            "Write its body",
            0,
        ),
        "renamed": ({"class Rewritten": "class Better"}, "defines no class Rewritten", "Correct it", 0),
        "random": (
            {"x = torch.relu(self.embed(rows))": "x = torch.relu(self.embed(rows + torch.rand(1)))"},
            "does not run",
            "Correct it",
            0,
        ),
    },
    "search.py": {
        "short_names": ({'f"torch.ops.{kind}"': "kind"}, "ignored the names", "form that it reads", 0),
        "default_size": ({"error(kept, 1)": "error(kept)"}, "min_block_size above 1", "proves nothing", None),
        "no_nan": ({"isnan(engine) or ": ""}, "not found", "NaN", 1),
        "absolute": ({"engine > 10 * eager": "engine > 0.01"}, "not found", "in the same type", 0),
        "too_lax": ({"engine > 10 * eager": "engine > 70 * eager"}, "not found", "in the same type", 0),
        "too_strict": ({"engine > 10 * eager": "engine > eager"}, "follows errors that are rounding", "a few times as much", 0),
        "only_one": ({"+ (among(second) if wrong(second) else [])": ""}, "in a model with 2", "the other one", 1),
        "one_by_one": (
            {"return among(kinds) if wrong(kinds) else []": "return [kind for kind in kinds if wrong([kind])]"},
            "more compilations than the budget",
            "half of the suspects",
            0,
        ),
        "full_names": (
            {"return suspects": 'return ["torch.ops." + kind for kind in suspects]'},
            "a list of the given kinds",
            "Call it in the notebook",
            0,
        ),
    },
    "service.py": {
        "later_keyword": (
            {'"ir": "dynamo",': '"ir": "dynamo", "immutable_weights": False,'},
            "ignores the keyword 'immutable_weights'",
            "keywords.table()",
            0,
        ),
        "ignored_keyword": (
            {'"ir": "dynamo",': '"ir": "dynamo", "require_full_compilation": True,'},
            "'require_full_compilation'",
            "keywords.table()",
            0,
        ),
        "no_name": ({'"name": "rows",': ""}, "has the name 'None', expected 'rows'", "parameter", 0),
        "exchanged_sizes": ({"(best, 32, 32)": "(most, 32, 32)"}, "opt_shape is", "Only the batch", 0),
        "tf32": ({'"disable_tf32": True,': ""}, "TF32 is on", "with and without TF32", 0),
        "small": ({'"min_block_size": 1,': ""}, "4 operators stay in PyTorch", "How many operators", 0),
        "exported": ({'"output_format": "fx",': ""}, "output_format is 'None'", "graph module", 0),
        "kept_in_pytorch": (
            {'"ir": "dynamo",': '"ir": "dynamo", "torch_executed_ops": ["torch.ops.aten.relu.default"],'},
            "expected none: all 4 operators",
            "out of TensorRT",
            0,
        ),
        "a_level_in_words": (
            {'"ir": "dynamo",': '"ir": "dynamo", "optimization_level": "high",'},
            "optimization_level is 'high'",
            "which values",
            0,
        ),
        "a_level_too_high": (
            {'"ir": "dynamo",': '"ir": "dynamo", "optimization_level": 6,'},
            "expected an integer from 0 to 5",
            "values",
            0,
        ),
        "a_byte_of_workspace": (
            {'"ir": "dynamo",': '"ir": "dynamo", "workspace_size": 1,'},
            "workspace_size is '1', expected 0, or",
            "which values",
            0,
        ),
        "no_timing": (
            {'"ir": "dynamo",': '"ir": "dynamo", "num_avg_timing_iters": 0,'},
            "expected an integer from 1",
            "which values",
            0,
        ),
        "bytes_in_no_format": (
            {'"name": "rows",': '"name": "rows", "dtype": "int8", "format": "no such format",'},
            "the keyword 'dtype'",
            "requirement 3",
            0,
        ),
        "a_shape_beside_the_range": (
            {'"name": "rows",': '"name": "rows", "shape": (1, 2, 3),'},
            "the keyword 'shape'",
            "requirement 3",
            0,
        ),
        "a_domain_in_words": (
            {'"name": "rows",': '"name": "rows", "tensor_domain": "all",'},
            "the keyword 'tensor_domain'",
            "requirement 3",
            0,
        ),
        "a_switch_in_words": ({'"ir": "dynamo",': '"ir": "dynamo", "refit": "yes",'}, "refit is 'yes'", "which values", 0),
        "a_type_in_words": (
            {'"ir": "dynamo",': '"ir": "dynamo", "enabled_precisions": {"half"},'},
            "objects of torch",
            "which values",
            0,
        ),
        "another_error": (
            {'raise RuntimeError(f"not one engine: {names}")': 'raise ValueError("no RuntimeError here")'},
            "expected RuntimeError",
            "itself",
            0,
        ),
        "an_error_of_its_own": (
            {
                'raise RuntimeError(f"not one engine: {names}")': """class Divided(RuntimeError): pass
        raise Divided("RuntimeError")"""
            },
            "expected RuntimeError",
            "itself",
            0,
        ),
        "empty_check": (
            {"if len(names) != 1 or": "raise NotImplementedError\n    if"},
            "check is still empty",
            "Write its body",
            0,
        ),
        "no_engine": ({"len(names) != 1 or not": "names and not"}, "check accepts", "runs in PyTorch", 0),
        "nothing_there": (
            {'len(names) != 1 or not names[0].startswith("_run_on_acc")': 'any("gpu" in name for name in names)'},
            "check accepts a module with the segments (none)",
            "no segment at all",
            0,
        ),
        "too_large": (
            {"for first in range(0, len(images), most)": "for first in range(0, 1)", "images[first : first + most]": "images"},
            "went to an engine for",
            "Divide or fill up",
            1,
        ),
        "too_small": ({"max(0, least - len(part))": "0"}, "went to an engine for", "Divide or fill up", 1),
        "filled_rows": ({"[: len(part)])": ")"}, "returned the shape", "only fill up", 1),
        "one_by_one": (
            {"len(images), most)": "len(images), least)", "first + most]": "first + least]"},
            "are needed",
            "as many images",
            1,
        ),
        "a_profile_for_one_batch": (
            {"max(0, least - len(part))": "max(0, least - len(part)) if least < most else 0"},
            "a batch of 1 went to an engine for",
            "another number of rows",
            1,
        ),
        "a_narrow_profile": (
            {"range(0, len(images), most)": "range(0, len(images), most if most > 1 + least else least)"},
            "runs for",
            "as many images",
            1,
        ),
        "the_tuple": ({"run(filled.tolist())[0]": "run(filled.tolist())"}, "returned the shape", "a tuple", 1),
    },
}
TASKS = {"segments.py": "segments", "model.py": "model", "search.py": "search", "service.py": "service"}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, several in MISTAKES.items() for name in several])
def test_mistake_is_named(file, name, tmp_path, monkeypatch):
    if file == "model.py":
        run_in_process(monkeypatch)
    changes, words, hint, points = MISTAKES[file][name]
    (tmp_path / file).write_text(made.changed(file, changes))
    outcome = examined(tmp_path, TASKS[file])
    assert words in outcome.message and hint in outcome.hint, (outcome.message, outcome.hint)
    assert outcome.points == points if points is not None else outcome.tier != "full"


# Cheats


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (made.STORES_ANSWERS, "already in PyTorch"),
        (made.FORGES_ITS_GRAPH, "which the grader does not run"),
        (made.TWO_MISTAKES, "right only with the mistake of 2.2.0"),
    ],
)
def test_a_module_that_cheats(source, words, tmp_path):
    (tmp_path / "model.py").write_text(source)
    outcome = examined(tmp_path, "model")
    assert outcome.points == 0 and words in outcome.message


@pytest.mark.parametrize("name", made.NARROW)
def test_a_module_that_is_right_in_fp64_only(name, tmp_path):
    changes, words = made.NARROW[name]
    (tmp_path / "model.py").write_text(made.changed("model.py", changes))
    outcome = examined(tmp_path, "model")
    assert outcome.points == 0 and words in outcome.message, outcome.message


def test_a_cast_that_loses_nothing_is_not_blamed_for_another_mistake(tmp_path):
    changes = {
        "torch.relu(self.embed": "F.gelu(self.embed",
        "x.argmax(dim=1).float() / ROWS": "(x.argmax(dim=1).half() / ROWS).float()",
    }
    (tmp_path / "model.py").write_text(made.changed("model.py", changes))
    outcome = examined(tmp_path, "model")
    assert outcome.points == 0 and "already in PyTorch." in outcome.message and "four methods" in outcome.hint, outcome.message


def test_a_cast_that_loses_nothing_keeps_its_points(tmp_path):
    (tmp_path / "model.py").write_text(
        made.changed("model.py", {"x.argmax(dim=1).float() / ROWS": "x.argmax(dim=1).half().float() / ROWS"})
    )
    assert examined(tmp_path, "model").tier == "full"


def test_secret_inputs_do_not_let_rounding_exchange_rows():
    rng = np.random.default_rng(5)
    for _ in range(20):
        weights, inputs, want = run_program._drawn(rng)
        model = network.Reader()
        model.load_state_dict(weights)
        with torch.inference_mode():
            assert run_program._error(want, model.eval()(inputs)) < run_program.SAME / 10


@pytest.mark.parametrize("body", made.WORDS_OF_THE_BUDGET)
def test_the_words_of_an_error_are_not_read(body, tmp_path):
    (tmp_path / "search.py").write_text(f"def find_wrong(kinds, error, budget):\n    {body}\n")
    outcome = examined(tmp_path, "search")
    assert outcome.points == 0 and "find_wrong failed" in outcome.message and "in the notebook" in outcome.hint, outcome


@pytest.mark.parametrize("counts", [(0, 1, 1, 1, 2, 2), (1, 0, 1, 2, 1, 2), (2, 2, 1, 1, 1, 0)])
def test_the_number_of_a_call_does_not_say_how_many_kinds_are_wrong(counts, tmp_path):
    (tmp_path / "search.py").write_text(made.KNOWS_THE_COUNTS.replace("COUNTS", str(counts)))
    assert [examined(tmp_path, "search", seed).points for seed in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("name", ["CHECKS_BY_NUMBER", "CHECKS_BY_TURNS", "SETS_ONCE", "ANSWERS_SOME_SIZES"])
def test_a_service_that_counts_its_calls(name, tmp_path):
    added, words, points = getattr(made, name)
    (tmp_path / "service.py").write_text(reference.SERVICE + added)
    outcome = examined(tmp_path, "service")
    assert outcome.points == points and words in outcome.message, outcome.message


@pytest.mark.parametrize("name", made.FITTED)
def test_cheat_rows_that_the_compiled_module_did_not_return(name, tmp_path):
    added, words = made.FITTED[name]
    (tmp_path / "service.py").write_text(reference.SERVICE + added)
    outcome = examined(tmp_path, "service")
    assert outcome.points == 1 and words in outcome.message, outcome.message


@pytest.mark.parametrize("name", made.NAMED_ALIKE)
def test_cheat_an_error_that_is_only_called_so(name, tmp_path):
    (tmp_path / "service.py").write_text(made.changed("service.py", {"def check": f"{made.NAMED_ALIKE[name]}\n\n\ndef check"}))
    outcome = examined(tmp_path, "service")
    assert outcome.points == 0 and "expected RuntimeError itself" in outcome.message, outcome.message
    assert "Python's own class" in outcome.hint


def test_a_service_without_a_check(tmp_path):
    (tmp_path / "service.py").write_text(made.changed("service.py", {"def check": "def checked"}))
    outcome = examined(tmp_path, "service")
    assert outcome.points == 0 and "check failed: it defines no function check" in outcome.message, outcome.message


def test_nothing_of_the_models_is_in_the_learners_process(tmp_path):
    (tmp_path / "search.py").write_text(made.LOOKS_AROUND)
    assert examined(tmp_path, "search").points == 0


def test_the_reference_cannot_be_imported(tmp_path):
    (tmp_path / "segments.py").write_text(made.TAKES_THE_REFERENCE)
    outcome = examined(tmp_path, "segments")
    assert outcome.points == 0 and "may import numpy and Python's own modules" in outcome.message


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("segments.py", "segments"),
        ("segments.py", "reasons"),
        ("search.py", "find_wrong"),
        ("service.py", "settings"),
        ("service.py", "check"),
        ("service.py", "answer"),
    ],
)
@pytest.mark.parametrize(
    "value",
    ["None", "float('nan')", "[]", "{}", "[[1]]", "1e400", "'x' * 1000", "{'a': float('inf')}", "[(True, [[]])]", "object()"],
)
def test_any_answer_gets_a_verdict(file, function, value, tmp_path):
    (tmp_path / file).write_text(made.FILES[file] + f"\n\ndef {function}(*_):\n    return {value}\n")
    outcome = examined(tmp_path, TASKS[file])
    assert outcome.tier in ("none", "partial") and outcome.message.isprintable()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True: pass", "did not finish within"),
        ("import os; os._exit(0)", "its process ended without an answer"),
        ("import sys; sys.exit('no')", "SystemExit no"),
        ("[error([], 1) for _ in kinds]", "more compilations than the budget"),
        ("error('aten', 1)", "expected a list of names"),
        ("error([], 'x')", "expected a list of names"),
        ("error([], True)", "expected a list of names"),
        ("return ['x' * (1 << 22)]", "more than 1,048,576 bytes"),
    ],
)
def test_what_a_function_may_do_to_its_judge(body, words, tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.labs.framework.guest.TIME_LIMIT_S", 2.0 if "pass" in body else 30.0)
    (tmp_path / "search.py").write_text(f"def find_wrong(kinds, error, budget):\n    {body}\n")
    outcome = examined(tmp_path, "search")
    assert outcome.points == 0 and words in outcome.message, outcome.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("while True: pass", "no answer within 5 s"),
        ("import os; os._exit(0)", "ended without an answer"),
        ("raise SystemExit('no')", "SystemExit no"),
        ("self.big = torch.rand(1 << 20); return self.big.sum() * rows", "does not run"),
        ("return torch.full((8, 10), float('nan')) + rows.sum()", "already in PyTorch"),
        ("return 1e38 * rows[:, 0, :10].exp() ** 80", "already in PyTorch"),
        ("return rows[:, 0, :10].argmax(1)", "expected logits of shape (8, 10)"),
    ],
)
def test_what_a_module_may_do_to_its_judge(line, words, tmp_path, monkeypatch):
    monkeypatch.setattr(rewriting, "TIME_LIMIT_S", 5.0 if "True" in line else 60.0)
    (tmp_path / "model.py").write_text(made.changed("model.py", {"x = torch.relu(self.embed(rows))": line}))
    outcome = examined(tmp_path, "model")
    assert outcome.points == 0 and words in outcome.message, outcome.message


def _node(operator: str, *args: object, **kwargs: object) -> list[dict[str, object]]:
    given = {"name": "x", "kind": "input"}
    called = {"name": "y", "kind": "call", "operator": operator, "args": list(args), "kwargs": kwargs}
    return [given, called, {"name": "out", "kind": "output", "args": [{"node": "y"}]}]


X = {"node": "x"}
HOSTILE = {
    "a file": _node("aten.from_file.default", "/etc/hostname"),
    "in place": _node("aten.relu_.default", X),
    "random": _node("aten.bernoulli.default", X),
    "another package": _node("os.system.default", "ls"),
    "dunder": _node("aten.__class__.default", X),
    "no operator": _node("aten", X),
    "unknown node": _node("aten.relu.default", {"node": "z"}),
    "wrong types": _node("aten.relu.default", "x"),
    "a deep list": _node("aten.relu.default", json.loads("[" * 50 + "]" * 50)),
    "a strange type": _node("aten._to_copy.default", X, dtype={"dtype": "load"}),
    "too large": _node("aten.full.default", [1 << 40, 1 << 20], 0),
    "no nodes": [],
    "no kind": [{"name": "x"}],
    "another kind": [{"name": "x", "kind": "_init__"}],
    "two inputs": [{"name": "x", "kind": "input"}, {"name": "y", "kind": "input"}],
    "an unknown weight": [{"name": "x", "kind": "weight", "key": "secret"}],
    "a constant without data": [{"name": "x", "kind": "constant", "value": {}}],
    "a number as output": [{"name": "out", "kind": "output", "args": [1]}],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_graph_is_rejected(name):
    with pytest.raises(EngineError):
        program.built(HOSTILE[name], {}, torch.ones(2, 3))


def test_answers_of_another_form_are_rejected():
    for value in (b"[]", b"{}", b'{"Rewritten": [{}]}', b'{"Rewritten": [{"nodes": 1, "state": {}}]}', b"no"):
        if value != b"{}":
            with pytest.raises(EngineError):
                rewriting.parsed(value, {"Rewritten": 1})


def test_forms_of_attention_that_were_not_recorded():
    x = torch.rand(2, 4, 8, 6)
    for masked in ({"is_causal": True}, {"attn_mask": torch.zeros(8, 8)}):

        class Masked(torch.nn.Module):
            def forward(self, q, options=masked):
                q = q.permute(0, 1, 2, 3) + 1
                return torch.nn.functional.scaled_dot_product_attention(q, q, q, **options)

        nodes = compiled(Masked(), x).graph.graph.nodes
        (node,) = (one for one in nodes if release.name_of(one) == release.ATTENTION)
        assert attention_form(node) == release.UNRECORDED


def test_settings_without_an_engine_are_described():
    assert serving.judged_settings([], (1, 2, 3))[0].startswith("settings returned")
    assert serving.judged_settings({"inputs": []}, (1, 2, 3))[0] == "inputs is not a list with one dictionary"


def test_what_the_export_rejects():
    class Two(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    with pytest.raises(TypeError):
        export_model.described(Two(), torch.ones(2), release.decomposed())


WAYS = {
    "constants": lambda x: x * torch.arange(48) + torch.full((48,), 2.0) + torch.ones(48) + x @ torch.eye(48) + torch.zeros(48),
    "a mask": lambda x: torch.where(x > 0.5, x, 0.0) + x.masked_fill(x > 0.5, 1.0),
    "a mask of constants": lambda x: torch.where(torch.tensor([True, False] * 24), x, 0.0),
    "a slice of the whole tensor": lambda x: torch.stack([x[:, : last + 1].prod(1) for last in range(32)], 1),
    "a triangle": lambda x: torch.exp(torch.tril(torch.ones(32, 32)) @ torch.log(x + 1)),
    "variance": lambda x: x / (x.std(1, keepdim=True) + x.var(dim=(1, 2), keepdim=True)),
    "rows": lambda x: torch.cat([x[:, [3, 1]], x.sort(dim=1).values[:, :1], x.flatten(1).unflatten(1, (32, 48))], 1),
    "functions": lambda x: torch.nn.functional.silu(x) + x.rsqrt() + x.clamp(0, 1) + x.norm(dim=1, keepdim=True) + x**3,
}


@pytest.mark.parametrize("way", WAYS)
def test_usual_operators_are_one_segment_and_keep_their_values(way):
    class Module(torch.nn.Module):
        def forward(self, x):
            return WAYS[way](x)

    x = torch.rand(8, 32, 48, generator=torch.Generator().manual_seed(1)) + 0.1
    found = compiled(Module(), x, min_block_size=1)
    assert [one.in_tensorrt for one in found.segments] == [True], found.in_pytorch()
    assert torch.allclose(found(x)[0], WAYS[way](x), rtol=1e-4)
