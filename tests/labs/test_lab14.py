"""Lab 14 against its reference, another right answer, and mistakes that learners make."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from course_lib import labs
from course_lib.engines import LayerTable
from course_lib.engines.layers import Layer, LayerTensor
from course_lib.errors import CourseError, ExaminerFault
from course_lib.labs import Examiner, withheld
from course_lib.labs.framework import submission
from course_lib.labs.lab14_four_bits import checks, given, reference
from course_lib.labs.lab14_four_bits.checks import FourBitsWork, Kernels
from course_lib.labs.lab14_four_bits.given import BUDGET, PRODUCTS, Fp8, Half, Int4, fp8
from course_lib.labs.lab14_four_bits.lab import FourBits
from course_lib.labs.lab14_four_bits.loss import Lost, Meter
from docs import make_four_bits
from tests.labs.quick import Quick, check_mistake, check_solved, examined
from tests.labs.submissions import lab14 as made

LAB = labs.find("lab14")
assert isinstance(LAB, FourBits)


def test_the_reference_has_full_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "WINDOWS", 16)
    LAB.write_reference(tmp_path)
    found = LAB.examine(tmp_path, Quick(seed=5))
    check_solved(LAB, found)
    assert found.figures["bits_per_weight"] < checks.FULL_BITS


def test_another_right_answer_is_decided_without_the_reference(tmp_path, monkeypatch):
    made.other_forms(tmp_path)
    monkeypatch.setitem(sys.modules, reference.__name__, withheld)
    check_solved(LAB, LAB.examine(tmp_path, Quick(seed=5)))


@pytest.mark.parametrize("name", made.MISTAKES)
def test_a_mistake_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "WINDOWS", 16)
    check_mistake(LAB, tmp_path, made.MISTAKES[name], Quick(seed=3))


def test_recorded_numbers_are_those_of_the_reference():
    numbers, recorded = make_four_bits.numbers(), checks.expected()
    assert numbers["packing"] == recorded["packing"]
    for name, errors in numbers["search"].items():
        assert errors == pytest.approx(recorded["search"][name], rel=0.005)


def test_each_usual_way_is_recognized_by_its_errors(tmp_path):
    for way, words in checks._WAYS.items():
        errors = {name: one[way] for name, one in checks.expected()["search"].items()}
        assert checks._hint(errors, "course") == " ".join(words)


def test_what_is_packed_is_what_onnx_reads():
    for codes in given.packing_arrays()[0].values():
        packed = reference.pack(codes)
        tensor = TensorProto(dims=codes.shape, data_type=TensorProto.INT4, raw_data=packed.tobytes())
        assert (numpy_helper.to_array(tensor).astype(np.int8) == codes).all()
        assert (reference.unpack(packed, codes.shape) == codes).all() and (made.bytes_by_hand(codes) == packed).all()


def test_a_friends_files_are_wrong_under_another_id(tmp_path):
    made.other_forms(tmp_path)
    submission.write(tmp_path / checks.LEARNER, "ben")
    outcomes = {one.task.id: one for one in LAB.examine(tmp_path, Quick(seed=5)).outcomes}
    assert [outcomes[task].points for task in ("search", "size", "plan")] == [0, 0, 0]
    assert "blocks.0.out: relative error 1." in outcomes["size"].message


def test_without_an_id_an_instructor_decides(tmp_path):
    made.other_forms(tmp_path)
    (tmp_path / checks.LEARNER).write_text("{}")
    tiers = [one.tier for one in LAB.examine(tmp_path, Quick(seed=5)).outcomes]
    assert tiers == ["full", *["inconclusive"] * 3]


def test_errors_of_scales_are_those_of_every_learner():
    for name, errors in checks.expected()["search"].items():
        found = checks.weighted_error(name, reference.searched(name, "cleo"), "cleo")
        assert found == pytest.approx(errors["course"], rel=0.005)


# ---- files


def test_arrays_of_another_type_are_wrong(tmp_path):
    made.save_packed(tmp_path, lambda one: one.astype(np.int64))
    outcome = examined(LAB, tmp_path, "packing", Quick())
    assert outcome.tier == "none" and "each: the numbers are right, but their type is int64" in outcome.message
    made.save_packed(tmp_path, lambda one: one[:-1])
    assert "even: other numbers, of the shape (383,)" in examined(LAB, tmp_path, "packing", Quick()).message


def test_scales_that_cannot_be_stored_are_named(tmp_path):
    made.save_scales(tmp_path, lambda weight, _: 0 * made.nearest(weight, _))
    assert "has a scale that is zero" in examined(LAB, tmp_path, "search", Quick()).message
    made.save_scales(tmp_path, lambda weight, _: made.nearest(weight, _).T)
    assert "expected float16 (out, in / block) = (320, 3)" in examined(LAB, tmp_path, "search", Quick()).message


def test_what_is_saved_is_what_is_read(tmp_path):
    forms = made.rows_in_one_block()
    del forms["blocks.1.out"]
    given.save(forms, tmp_path / given.FILE)
    stored = given.read(tmp_path / given.FILE, made.LEARNER)
    assert isinstance(stored["blocks.1.out"], Half) and stored["blocks.1.out"].bits == 16 * 192 * 192
    for name, one in forms.items():
        assert type(stored[name]) is type(one) and stored[name].bits == one.bits
        assert np.array_equal(stored[name].values(), one.values()), name


def test_codes_and_scales_that_do_not_fit_are_named(tmp_path):
    one, eight = made.int4("blocks.1.up", 64), fp8(given.weights()["blocks.1.up"])
    nan = eight.codes.copy()
    nan[0, 0] = 0xFF
    for wrong, words in (
        (Int4(one.packed.astype(np.int64), one.scales), "its packed codes are int64, expected uint8"),
        (Int4(one.packed[:-1], one.scales), "have the shape (55295,), expected one axis with 55296 bytes"),
        (Int4(one.packed, one.scales.T), "its scales have the shape (576, 3), expected (192 / block, 576)"),
        (Fp8(eight.codes, 1e9), "a scale is zero, negative or not finite"),
        (Int4(one.packed, -one.scales), "a scale is zero, negative or not finite"),
        (Fp8(eight.codes.T, eight.scale), "expected uint8 of (in, out) = (192, 576)"),
        (Fp8(nan, eight.scale), "a code is NaN"),
    ):
        with pytest.raises(CourseError) as caught:
            given.save({"blocks.1.up": wrong}, tmp_path / given.FILE)
        assert words in str(caught.value)
    with pytest.raises(CourseError, match="no product 'up'"):
        given.save({"up": one}, tmp_path / given.FILE)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"blocks.1.up.int4": np.zeros(55296, np.uint8)}, "blocks.1.up needs scales"),
        ({"text": np.zeros((9, 9), np.float16)}, "'text' is not an array of a product"),
    ],
)
def test_other_arrays_are_rejected(arrays, words, tmp_path):
    np.savez(tmp_path / given.FILE, **arrays)
    submission.write(tmp_path / checks.LEARNER, made.LEARNER)
    outcome = examined(LAB, tmp_path, "size", Quick())
    assert outcome.tier == "none" and words in outcome.message and outcome.hint


# ---- weights and loss

READINGS = {
    "do not reshape them": lambda codes, scales: (codes, scales.T.reshape(scales.shape)),
    "each byte are exchanged": lambda codes, scales: (codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape), scales),
}


@pytest.mark.parametrize("words", READINGS)
def test_weights_that_are_read_in_another_way_are_named(words, tmp_path):
    made.save_forms(lambda: made.with_codes(READINGS[words]), tmp_path)
    outcome = examined(LAB, tmp_path, "size", Quick())
    assert outcome.tier == "none" and "15 of 16 (blocks.1.up: relative error" in outcome.message and words in outcome.message


def test_another_network_has_none(tmp_path):
    made.save_forms(made.another_network, tmp_path)
    outcomes = LAB.examine(tmp_path, Quick()).outcomes
    assert not any(one.points for one in outcomes)
    assert "products whose stored weight is the given one, rounded is 0 of 16" in outcomes[2].message


def test_points_are_lost_only_above_the_interval():
    assert checks.within_budget(Lost(1.02 * BUDGET, 0.05 * BUDGET))
    assert not checks.within_budget(Lost(1.1 * BUDGET, 0.05 * BUDGET))
    assert not checks.within_budget(Lost(4 * 3 / 64, 1.96 * 4 * (3 / 64 * 61 / 64) ** 0.5 / 8))  # four bits in 3 of 64 windows


def test_the_given_decoder_loses_nothing_and_every_other_one_does():
    meter = Meter(seed=None, windows=4)
    assert abs(meter.lost({}).mean) < 1e-9
    assert meter.lost({"blocks.3.up": 1.02 * given.weights()["blocks.3.up"]}).mean > 0
    assert abs(meter.lost({}).mean) < 1e-9  # the weights are the given ones again
    with pytest.raises(CourseError, match="no product"):
        meter.lost({"head": np.zeros((1, 1))})
    with pytest.raises(CourseError, match=r"expected \(out, in\)"):
        meter.lost({"blocks.0.qkv": np.zeros(PRODUCTS["blocks.0.qkv"])})


def test_neither_the_planted_channels_nor_the_order_of_features_change_anything():
    import torch

    from course_lib.models import decoder

    tokens = torch.from_numpy(Meter(seed=2, windows=2).tokens)
    with torch.inference_mode():
        for learner in ("", "ada"):
            assert torch.allclose(given.model(learner)(tokens), decoder()(tokens), atol=1e-4)


def test_the_loss_of_the_engine_is_that_of_pytorch(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "WINDOWS", 8)
    made.save_forms(made.by_hand, tmp_path)
    with FourBitsWork(LAB, tmp_path, Quick(seed=7)) as work:
        by_engine = work.loss
    by_torch = Meter(7, 8, made.LEARNER).lost({name: one.values().T for name, one in made.by_hand().items()})
    assert by_engine.mean == pytest.approx(by_torch.mean, rel=0.1)  # some processors round the other input to INT8


# ---- the layer table


def _kernel(name: str, dtype: str, inputs: bool = True, part: str = "/MatMul") -> Layer:
    rows, columns = PRODUCTS[name]
    read = (LayerTensor("x", (1, -1, rows), "Half"),) if inputs else ()
    held = (LayerTensor("w", (1, rows, columns), dtype),)
    return Layer("k", "gemm", read, held, onnx_nodes=(f"/{name.replace('.', '/')}{part}",))


def test_a_table_is_read_kernel_by_kernel():
    names, stored = list(PRODUCTS), made.by_hand()
    table = [_kernel(name, stored[name].layer_type) for name in names]
    assert Kernels.of(LayerTable(tuple(table)), stored).as_stored == tuple(sorted(names))
    wider = [_kernel(names[0], "Half"), *table[1:]]  # a constant that was expanded while building
    assert set(names) - set(Kernels.of(LayerTable(tuple(wider)), stored).as_stored) == {names[0]}
    beside = [*table, _kernel(names[0], "FP8", inputs=False, part="/dequantize")]
    kernels = Kernels.of(LayerTable(tuple(beside)), stored)
    assert kernels.expanding == (names[0],) and names[0] not in kernels.as_stored


def test_a_table_without_the_products_is_the_examiners_fault(monkeypatch, tmp_path):
    class Empty:
        layers = LayerTable(())

    monkeypatch.setattr(Examiner, "build", lambda *_: Empty())
    made.save_forms(made.by_hand, tmp_path)
    with FourBitsWork(LAB, tmp_path, Examiner()) as work, pytest.raises(ExaminerFault, match="does not show which kernels"):
        _ = work.kernels
