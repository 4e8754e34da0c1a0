"""Makers of submissions for labs 06, 09, 13 and 14 that cheat: the labs' tests have what they hand in. A judge could miss each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from course_lib.labs.lab06_qat.graph_file import MODEL
from tests.attacks.scene import Scene
from tests.labs.submissions import lab06, lab09, lab13, lab14
from tests.labs.submissions.lab13 import Parts

Maker = Callable[[Path, Scene | None], None]


def _decoder(graph: Callable[[], onnx.ModelProto]) -> Maker:
    return lambda folder, _: onnx.save(graph(), folder / "decoder.onnx")


def _four_bits(cheat: lab14.Cheat) -> Maker:
    def graph() -> onnx.ModelProto:
        model = lab14.model(lab14.by_hand())
        cheat(model)
        return model

    return _decoder(graph)


def _trained(cheat: lab06.Cheat) -> Maker:
    def make(folder: Path, _: Scene | None) -> None:
        model = onnx.load(folder / MODEL)
        cheat(model)
        onnx.save(model, folder / MODEL)

    return make


def _loop(source: str) -> Maker:
    return lambda folder, _: lab09.write(folder, source)


table_of_answers = _decoder(lab13.table_of_answers)
end_of_a_prompt = _decoder(Parts(mask=lab13.window(150)).graph)
branch_on_position = _decoder(lab13.branch_on_position)
note_in_the_cache = _decoder(Parts(write=lab13.hides_state).graph)
decoys_beside_sums = _decoder(Parts(attend=lab13.by_sums).graph)
decoys_beside_gemm = _decoder(Parts(attend=lab13.by_gemm).graph)
decoys = _decoder(Parts(attend=lab13.decoys).graph)
numbers_beyond_float32 = _decoder(lab13.beyond_float32)

decoy = _four_bits(lab14.decoy)
correction = _four_bits(lab14.correction)
codes_elsewhere = _four_bits(lab14.codes_elsewhere)
table_of_text = _four_bits(lab14.table_of_text)

on_the_host = _loop(lab09.ON_THE_HOST)
uploads_its_answers = _loop(lab09.UPLOADS_ITS_ANSWERS)
drops_waits = _loop(lab09.DROPS_WAITS)
forges_rows = _loop(lab09.FORGES_ROWS)
answers_for_its_process = _loop(lab09.ANSWERS_FOR_ITS_PROCESS)
reads_late = _loop(lab09.changed(lab09.READS_LATE))
shares_its_answers = _loop(lab09.changed(lab09.SHARES_ITS_ANSWERS))
adds_an_empty_row = _loop(lab09.ADDS_AN_EMPTY_ROW)

float_path = _trained(lab06.float_path_beside_decoys)
idle_pairs = _trained(lab06.scales_that_do_nothing)
table_of_labels = _trained(lab06.table_of_labels)
sixteen_bits = _trained(lab06.finer_steps)


def stored_numbers(folder: Path, scene: Scene) -> None:
    (folder / "qat.py").write_text(lab06.with_stored_numbers())
