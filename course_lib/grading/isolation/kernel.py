"""Runs a learner's notebook: in the sandbox, on a copy, with a deadline and a cap on what it prints."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute
from traitlets import Bool, Float, Integer
from typing_extensions import override

from course_lib import labs
from course_lib._util.files import remove_tree, scratch_folder
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import CourseError
from course_lib.grading.batch.archive import TIMES_UNPACKED, Selection
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.judge import artifacts

_LARGEST_MESSAGE = 64 << 20  # a kernel merges what is printed at once, and a flood of that size is still called a flood
_TOO_LONG = "a cell ran longer than it may"


@dataclass(frozen=True)
class FilesOfRun:
    """The files that the run of a notebook left, compared with those that were submitted.

    Attributes:
        filled: files that were not submitted, and were taken from the run.
        differing: files that were submitted, and that the notebook now writes differently. The submitted ones are judged.
        too_large: why a file of the run was not taken although it is a plain file; "" if none was.
    """

    filled: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    too_large: str = ""

    @property
    def notes(self) -> list[str]:
        """Lines for the learner and the instructor."""
        return [f"{name} was not submitted: the file that the notebook wrote was judged" for name in self.filled] + [
            f"the notebook now writes another {name}: the submitted file was judged" for name in self.differing
        ]


class OutputFlood(Exception):
    """A notebook printed more than it may."""


class SandboxedKernelManager(AsyncKernelManager):
    """Starts the kernel through `launch`, which adds the sandbox; None for a trusted kernel."""

    launch: Launcher | None = None
    words: Any = subprocess.DEVNULL  # where the kernel's own standard error goes

    @override
    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", self.connection_file, *(extra_arguments or [])]
        return self.launch(kernel) if self.launch else kernel

    @override
    def client(self, **options: Any) -> Any:
        """A client whose sockets disconnect at a message that is larger than any honest one, before it is in memory."""
        made = super().client(**options)
        made.context.setsockopt(zmq.MAXMSGSIZE, _LARGEST_MESSAGE)
        return made

    @override
    async def start_kernel(self, **options: Any) -> None:
        """Start the kernel without its output outside the notebook, which is not a message of the grader."""
        environment = {**os.environ, "NBGRADER_EXECUTION": "autograde"}
        await super().start_kernel(stdout=subprocess.DEVNULL, stderr=self.words, env=environment, **options)


_STARTS_WITHIN_S, _PAUSE_S = 60.0, 2.0  # what a sandbox needs may be free again in a moment


class SandboxedExecute(Execute):
    """nbgrader's Execute. A dead, hung or flooding kernel ends the run with one failed cell instead of preventing the grade."""

    timeout = Integer(240, help="longest run of one cell, in seconds", allow_none=True).tag(config=True)
    run = Bool(True, help="run the notebook; otherwise its files are judged as they were submitted").tag(config=True)
    trusted = Bool(False, help="run without the sandbox; for the course's own files only").tag(config=True)
    total_timeout_s = Float(300.0, help="longest run of one notebook, in seconds, with its repetition if the kernel died").tag(
        config=True
    )
    max_output_bytes = Integer(5_000_000, help="most that one notebook may print").tag(config=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["kernel_manager_class"] = SandboxedKernelManager
        super().__init__(*args, **kwargs)

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any], km: Any = None) -> tuple[NotebookNode, dict[str, Any]]:
        if not self.run:
            return nb, resources
        if not self.trusted:
            sandbox.require()
        self._started = time.monotonic()  # of all attempts
        done, resources = self._attempt(deepcopy(nb), resources, km)
        while self._failed_start and time.monotonic() - self._started < _STARTS_WITHIN_S:
            self.log.warning("the notebook's sandbox did not start (%s)", self._failed_start)
            time.sleep(_PAUSE_S)
            done, resources = self._attempt(deepcopy(nb), resources, km)
        if self._died and 2 * (time.monotonic() - self._started) <= self.total_timeout_s:
            # Something else, such as a machine without memory, may have killed the kernel. There is time to come as far once more.
            self.log.warning("the kernel died: the notebook is run once more")
            done, resources = self._attempt(deepcopy(nb), resources, km)
        return done, resources

    def _attempt(self, nb: NotebookNode, resources: dict[str, Any], km: Any) -> tuple[NotebookNode, dict[str, Any]]:
        """One run of the notebook in its own sandbox and scratch folder.

        `_died` says whether the kernel ended by itself, and `_failed_start` why its sandbox did not start; empty if it did.
        """
        home = Path(resources["metadata"]["path"])
        self._died = False
        with ExitStack() as stack:
            scratch, self._sockets = (str(stack.enter_context(scratch_folder(name))) for name in ("run-", "ipc-"))
            self._words = stack.enter_context(tempfile.TemporaryFile())
            box = sandbox.Sandbox(
                writable=(Path(scratch), Path(self._sockets)), environment={"NBGRADER_EXECUTION": "autograde"}
            )
            self._launch = None if self.trusted else stack.enter_context(confined(box))
            Selection(home, times=TIMES_UNPACKED).copy_to(Path(scratch))
            self._printed, self._stopped = 0, ""
            resources["metadata"]["path"] = scratch
            try:
                nb, resources = super().preprocess(nb, resources, km)
            except Exception as error:  # whatever a learner's kernel does, the batch goes on
                self.log.error("the notebook could not be run: %r", error)
                self._died = True
                _stopped_at(nb.cells, f"the notebook could not be run: {error}")
            finally:
                self._failed_start = self._launch.take_failed_start() if self._launch else ""
                resources["metadata"]["path"] = str(home)
                resources["from_notebook"] = self._fill(resources["nbgrader"]["assignment"], Path(scratch), home)
        return nb, resources

    @override
    def create_kernel_manager(self) -> SandboxedKernelManager:
        manager = super().create_kernel_manager()
        manager.launch, manager.words = self._launch, self._words
        # the default ipc path is relative to the working directory, which is another one inside the sandbox
        manager.transport, manager.ip = "ipc", f"{self._sockets}/kernel"
        manager.connection_file = f"{self._sockets}/kernel.json"
        return manager

    @override
    def preprocess_cell(self, cell: NotebookNode, resources: dict[str, Any], index: int) -> tuple[NotebookNode, dict[str, Any]]:
        if self._stopped:
            _stopped_at([cell])
            return cell, resources
        if cell.cell_type == "code" and time.monotonic() - self._started > self.total_timeout_s:
            self._stop(f"the notebook ran longer than {self.total_timeout_s:g} s")
            _stopped_at([cell], self._stopped)
            return cell, resources
        try:
            cell, resources = super().preprocess_cell(cell, resources, index)
        except (DeadKernelError, OutputFlood, CellTimeoutError) as error:
            limit = self._limit()
            self._died = isinstance(error, DeadKernelError) and not limit
            too_long = _TOO_LONG if isinstance(error, CellTimeoutError) else ""  # and it ignored the interrupt
            self._stop(limit or too_long or str(error) or "the kernel died")
            _stopped_at([cell], self._stopped)
            return cell, resources
        if any(output.output_type == "error" and output.ename == "CellTimeoutError" for output in cell.get("outputs", [])):
            self._stop(_TOO_LONG)
        return cell, resources

    async def _async_poll_kernel_alive(self) -> None:
        """nbclient continues to poll a cell's kernel when a flood ends the cell. Without a client there is nothing to poll."""
        with suppress(AssertionError):
            await super()._async_poll_kernel_alive()

    @override
    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        self._printed += len(str(msg["content"])) + sum(map(len, msg.get("buffers", ())))  # whatever comes is kept
        if self._printed > self.max_output_bytes:
            raise OutputFlood(f"the notebook printed more than {self.max_output_bytes / 1e6:g} MB")
        return super().process_message(msg, cell, cell_index)

    @override
    def handle_comm_msg(self, outs: list[NotebookNode], msg: dict[str, Any], cell_index: int) -> None:
        """Ignore the state of widgets: no page shows it, and it has no bound."""

    def _get_timeout(self, cell: NotebookNode | None) -> int:
        left = int(self.total_timeout_s - (time.monotonic() - self._started))
        return max(1, min(self.timeout or left, left))

    def _limit(self) -> str:
        """The limit for which the supervisor stopped the kernel, if it did; see `supervise`."""
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - 300))
        last = (self._words.read().decode(errors="replace").strip().splitlines() or [""])[-1]
        return f"the notebook {last.removeprefix('stopped: ')}" if last.startswith("stopped: ") else ""

    def _stop(self, reason: str) -> None:
        self._stopped = reason
        process = getattr(self.km.provisioner, "process", None)
        if process is not None:
            process.kill()

    def _fill(self, assignment: str, scratch: Path, home: Path) -> FilesOfRun:
        """Fill in artifacts that were not submitted with those that the notebook wrote. Submitted files stay as they are."""
        filled, differing, too_large = list[str](), list[str](), ""
        for name, limit in labs.find(assignment).artifacts.items():
            if (home / name).is_file():
                written = scratch / name
                if written.exists() and artifacts.is_plain(written) and not filecmp.cmp(written, home / name, shallow=False):
                    differing.append(name)
                continue
            remove_tree(home / name)  # it may be a folder
            try:
                artifacts.take(scratch / name, home / name, max_bytes=limit)
                filled.append(name)
            except CourseError as error:
                self.log.warning("%s", error)
                too_large = too_large or (str(error) if isinstance(error, artifacts.ArtifactTooLarge) else "")
        return FilesOfRun(tuple(filled), tuple(differing), too_large)


def _stopped_at(cells: Iterable[NotebookNode], reason: str = "") -> None:
    """Leave the cells without outputs, but for the reason in the first code cell."""
    for cell in cells:
        if cell.cell_type == "code":
            text = f"Stopped: {reason}. The cells below did not run."
            cell.outputs = [new_output("error", ename="Stopped", evalue=reason, traceback=[text])] if reason else []
            reason = ""
