"""Whole gradings of the labs with the TensorRT that is here: the reference has to have all points, the unsolved lab none.

    python benchmarks/labs.py OUTPUT.json [--labs lab01 lab07] [--kinds reference untouched] [--times 10] [--target tensorrt@trt8]
        [--seconds 540] [--longest 300] [--host busy] [--gpus 0 1] [--streams 3]

The kinds in `SLOWED` are the reference with one change that makes its engine slower; they are for labs with a model and a recipe.

Each grading is `judge`'s, in the sandbox, in its own process, which is ended after `--longest` seconds. Rounds of all labs follow
each other, so that an interrupted run has something of each; a lab that is named twice is graded twice a round. Started again, the
script goes on where it was. Without the sandbox nothing is graded, unless `--trusted` says to do without. `--gpus` grades on several
GPUs at once and `--streams` so many submissions beside each other on each, as a class is graded: measurements take turns by the
device's lock. Give it GPUs of its own: builds of strangers reach time limits, and speeds cannot be told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from filelock import FileLock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import machine
from benchmarks.recording import Row, one_line, rows_of, save
from course_lib import labs
from course_lib.engines import default_runner
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner
from course_lib.recipe import Profile, Recipe
from tests.labs.untouched import leave_untouched

LABS = tuple(f"lab{number:02d}" for number in range(1, 17))


def _debug_outputs(folder: Path) -> None:
    """Every intermediate result is an output, so the compiler cannot fuse across it."""
    import onnx

    model = onnx.load(folder / "model.onnx")
    known = {value.name for value in (*model.graph.output, *model.graph.input)}
    names = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output if name not in known]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    del model.graph.output[-len(names) :]
    model.graph.output.extend(inferred[name] for name in names if name in inferred)
    onnx.save(model, folder / "model.onnx")


def _without_tf32(folder: Path) -> None:
    recipe = Recipe.load(folder / "recipe.toml")
    recipe.model_copy(update={"flags": tuple(flag for flag in recipe.flags if flag != "tf32")}).save(folder / "recipe.toml")


def _wrong_opt(folder: Path) -> None:
    """Profiles are tuned for the largest shapes that they allow."""
    recipe = Recipe.load(folder / "recipe.toml")
    tuned = [
        Profile({name: {"min": shape.min, "opt": shape.max, "max": shape.max} for name, shape in profile.root.items()})
        for profile in recipe.profiles
    ]
    recipe.model_copy(update={"profiles": tuple(tuned)}).save(folder / "recipe.toml")


def _lowest_level(folder: Path) -> None:
    """The builder tries the fewest tactics."""
    Recipe.load(folder / "recipe.toml").model_copy(update={"optimization_level": 0}).save(folder / "recipe.toml")


SLOWED = {
    "debug_outputs": _debug_outputs,
    "without_tf32": _without_tf32,
    "wrong_opt": _wrong_opt,
    "lowest_level": _lowest_level,
}
KINDS = ("reference", "untouched", *SLOWED)


def main() -> None:
    options = parsed()
    if options.one:
        lab, kind, made = options.one
        print(json.dumps(graded(lab, kind, Path(made), options.target, options.trusted)), flush=True)
        os._exit(0)  # nothing that a library does at the end may change what was said
    with tempfile.TemporaryDirectory() as made:
        grade_all(options, Path(made))


def grade_all(options: argparse.Namespace, made: Path) -> None:
    """Grade what is missing; references are written once, into `made`."""
    rows, ends = rows_of(options.output), time.monotonic() + options.seconds
    known, turns, taking = machine(options.target), missing(rows, options), Lock()

    def grade_on(gpu: str) -> None:
        while (limit := min(options.longest, ends - time.monotonic())) >= options.shortest:
            with taking:
                if (turn := next(turns, None)) is None:
                    return
                load = {"gpu": gpu, "host": options.host, "load": round(os.getloadavg()[0], 1), "streams": options.streams}
            lab, kind = turn
            row = {"lab": lab, "kind": kind, **load, **in_a_process(lab, kind, made, options, limit, gpu)}
            with taking:
                rows.append(row)
                print(json.dumps(row), flush=True)
                save(options.output, known, rows)

    with ThreadPoolExecutor(len(options.gpus) * options.streams) as streams:
        for stream in [streams.submit(grade_on, gpu) for _ in range(options.streams) for gpu in options.gpus]:
            stream.result()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--labs", nargs="+", choices=LABS, default=LABS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=("reference", "untouched"))
    parser.add_argument("--times", type=int, default=1, help="how often each is graded")
    parser.add_argument("--target", default=default_runner(), help="builds and runs the engines")
    parser.add_argument(
        "--seconds", type=float, default=540, help="for all; no grading is begun that could not have --shortest"
    )
    parser.add_argument("--shortest", type=float, default=30)
    parser.add_argument("--longest", type=float, default=300, help="of one grading")
    parser.add_argument("--host", default="quiet", help="what the rows say about the host, such as busy")
    parser.add_argument("--gpus", nargs="+", default=[""], help="numbers as for CUDA_VISIBLE_DEVICES; default: what is visible")
    parser.add_argument("--streams", type=int, default=1, help="gradings beside each other on one GPU")
    parser.add_argument("--trusted", action="store_true", help="without the sandbox")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def missing(rows: list[Row], options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """What is still to be graded, round by round."""
    asked = [(lab, kind) for lab in options.labs for kind in options.kinds]
    done = {pair: sum((row["lab"], row["kind"]) == pair for row in rows) for pair in asked}
    for pair in asked * options.times:
        if done[pair]:
            done[pair] -= 1
        else:
            yield pair


def in_a_process(lab: str, kind: str, made: Path, options: argparse.Namespace, limit: float, gpu: str = "") -> Row:
    command = [sys.executable, __file__, str(options.output), "--one", lab, kind, str(made), "--target", options.target]
    process = subprocess.Popen(
        [*command, *(["--trusted"] if options.trusted else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu} if gpu else None,
    )
    try:
        out, err = process.communicate(timeout=limit)
        return dict(json.loads(out.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"failed": f"not graded within {limit:.0f} s"}
    except (IndexError, ValueError):
        return {"failed": (err.strip().splitlines() or ["it said nothing"])[-1][:300]}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def graded(name: str, kind: str, made: Path, target: str, trusted: bool) -> Row:
    """One grading: what it gave and how long it took, what was handed in being made before.

    Args:
        made: takes the lab's reference, which is written once.
    """
    lab, examiner = labs.find(name), Examiner(builder=target, runner=target)
    try:
        with tempfile.TemporaryDirectory() as folder:
            if kind == "untouched":
                leave_untouched(lab.name, Path(folder))
            else:
                with FileLock(made / f"{name}.lock"):
                    if not (made / name).exists():
                        (made / f"{name}.partial").mkdir(exist_ok=True)
                        lab.write_reference(made / f"{name}.partial", opset=examiner.opset)
                        (made / f"{name}.partial").rename(made / name)
                shutil.copytree(made / name, folder, dirs_exist_ok=True)
            if kind in SLOWED:
                SLOWED[kind](Path(folder))
            started = time.monotonic()
            judged = judge(lab, Path(folder), examiner=examiner, trusted=trusted)
            verdict, of_reference = judged.to_json(), judged.of_reference
    except Exception as error:  # one grading's failure is its own
        return {"failed": one_line(error)}
    tasks = {task["task"]["id"]: {"tier": task["tier"], "message": task["message"]} for task in verdict["tasks"]}
    found = {key: verdict[key] for key in ("score", "max_score", "fault")}
    seconds = round(time.monotonic() - started, 1)
    race = (
        {key: verdict["comparison"][key] for key in ("rounds", "seconds", "clock", "median_ms")}
        if verdict["comparison"]
        else None
    )
    if race and of_reference:
        race["of_reference"] = asdict(of_reference)
    known = verdict["provenance"]
    kept = {
        "device": known.get("device"),
        "timings": known.get("timings"),
        "disturbed": [one["disturbed"] for one in known.get("health", [])],
    }
    return {**found, "seconds": seconds, "tasks": tasks, "figures": verdict["figures"], "race": race, **kept}


if __name__ == "__main__":
    main()
