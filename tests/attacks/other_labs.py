"""Makers of submissions for labs 10 to 13 that cheat: the labs' tests have what they hand in. Each could be overlooked by a judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from course_lib.labs.lab13_qat.graph_file import MODEL
from tests.attacks.scene import Scene
from tests.labs.submissions import lab10, lab11, lab12, lab13
from tests.labs.submissions.lab10 import Parts

Maker = Callable[[Path, Scene | None], None]


def _decoder(graph: Callable[[], onnx.ModelProto]) -> Maker:
    return lambda folder, _: onnx.save(graph(), folder / "decoder.onnx")


def _four_bits(cheat: lab11.Cheat) -> Maker:
    def graph() -> onnx.ModelProto:
        model = lab11.model(lab11.by_hand())
        cheat(model)
        return model

    return _decoder(graph)


def _trained(cheat: lab13.Cheat) -> Maker:
    def make(folder: Path, _: Scene | None) -> None:
        model = onnx.load(folder / MODEL)
        cheat(model)
        onnx.save(model, folder / MODEL)

    return make


def _loop(source: str) -> Maker:
    return lambda folder, _: lab12.write(folder, source)


table_of_answers = _decoder(lab10.table_of_answers)
end_of_a_prompt = _decoder(Parts(mask=lab10.window(150)).graph)
branch_on_position = _decoder(lab10.branch_on_position)
note_in_the_cache = _decoder(Parts(write=lab10.hides_state).graph)
decoys_beside_sums = _decoder(Parts(attend=lab10.by_sums).graph)
decoys_beside_gemm = _decoder(Parts(attend=lab10.by_gemm).graph)
decoys = _decoder(Parts(attend=lab10.decoys).graph)
numbers_beyond_float32 = _decoder(lab10.beyond_float32)

decoy = _four_bits(lab11.decoy)
correction = _four_bits(lab11.correction)
codes_elsewhere = _four_bits(lab11.codes_elsewhere)
table_of_text = _four_bits(lab11.table_of_text)

on_the_host = _loop(lab12.ON_THE_HOST)
uploads_its_answers = _loop(lab12.UPLOADS_ITS_ANSWERS)
drops_waits = _loop(lab12.DROPS_WAITS)
forges_rows = _loop(lab12.FORGES_ROWS)
answers_for_its_process = _loop(lab12.ANSWERS_FOR_ITS_PROCESS)
reads_late = _loop(lab12.changed(lab12.READS_LATE))
shares_its_answers = _loop(lab12.changed(lab12.SHARES_ITS_ANSWERS))
adds_an_empty_row = _loop(lab12.ADDS_AN_EMPTY_ROW)

float_path = _trained(lab13.float_path_beside_decoys)
idle_pairs = _trained(lab13.scales_that_do_nothing)
table_of_labels = _trained(lab13.table_of_labels)
sixteen_bits = _trained(lab13.finer_steps)


def stored_numbers(folder: Path, scene: Scene) -> None:
    (folder / "qat.py").write_text(lab13.with_stored_numbers())
