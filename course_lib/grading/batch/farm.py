"""Grade submissions in several processes, on this machine or on a Dask cluster. Other workers take over from lost ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib._util import scratch
from course_lib._util.files import scratch_folder
from course_lib.engines.cuda import driver
from course_lib.errors import CourseError
from course_lib.grading.batch.archive import Archive
from course_lib.grading.batch.submission import Job, Result, examine
from course_lib.grading.isolation.sandbox import SandboxMissing

if TYPE_CHECKING:
    from distributed import Client, Future, SpecCluster

ATTEMPTS = 3  # a submission that has taken so many workers with it is left to an instructor
_CONNECT_S = 15
_QUIET = logging.ERROR
_IN_FLIGHT = 2  # jobs by worker that are sent ahead: submissions are large, and a cluster may grow


def graded(jobs: Iterable[Job], *, workers: int = 1, scheduler: str | None = None) -> Iterator[Result]:
    """Results in the order of completion.

    Args:
        workers: number of processes on this machine. With 1 and no scheduler, this process grades, and the files of a result exist
            until the next result. With GPUs, each process gets one of them in turn.
        scheduler: address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``, which replaces `workers`. Its workers need the course,
            but not a file system shared with this process.

    Raises:
        SandboxMissing: a machine cannot confine submissions.
        CourseError: the scheduler does not answer.
    """
    if workers == 1 and scheduler is None:
        for job in jobs:
            with scratch_folder("grading-") as root:
                yield examined(job, root)
        return
    with ExitStack() as stack:
        yield from _farmed(iter(jobs), stack.enter_context(_client(workers, scheduler)))


def examined_elsewhere(job: Job) -> Result:
    """`examined` in a process of the cluster."""
    with scratch.owned(), scratch_folder("grading-") as root:
        return examined(job, root).packed()


def examined(job: Job, root: Path) -> Result:
    """`examine`, where a failure on one submission becomes its result and the batch continues."""
    try:
        return examine(job, root)
    except SandboxMissing:
        raise
    except Exception as error:
        return _failed(job, f"the grader failed ({type(error).__name__}: {error})")


def _farmed(jobs: Iterator[Job], client: Client) -> Iterator[Result]:
    from distributed import as_completed

    running: dict[Future, Job] = {}

    def send() -> Future | None:
        for job in jobs:
            future = client.submit(examined_elsewhere, job.packed(), pure=False)
            running[future] = job
            return future
        return None

    room = _IN_FLIGHT * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    sent = as_completed([future for _ in range(room) if (future := send())], loop=client.loop)
    for future in sent:
        job = running.pop(future)
        yield _result(future, job)
        future.release()
        if following := send():
            sent.add(following)


def _result(future: Future, job: Job) -> Result:
    error = future.exception()
    if error is None:
        result: Result = future.result()
        return result
    if isinstance(error, SandboxMissing):
        raise error
    return _failed(job, f"its worker ended {ATTEMPTS} times ({type(error).__name__}: {error})")


def _failed(job: Job, said: str) -> Result:
    return Result(job.lab, job.student, job.digest, Archive({}), {}, error=" ".join(said.split())[:500])


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[Client]:
    from distributed import Client

    with ExitStack() as stack:
        where = scheduler or stack.enter_context(_cluster(workers))
        try:
            client = stack.enter_context(Client(where, timeout=_CONNECT_S, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise CourseError(
                f"no Dask scheduler answers at {scheduler} ({error}): expected something like tcp://10.0.0.1:8786"
            ) from None
        yield client


def _cluster(workers: int) -> SpecCluster:
    """A cluster of processes on this machine. A process that dies is started again."""
    import dask
    from distributed import Nanny, Scheduler, SpecCluster

    dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS - 1, "distributed.comm.timeouts.connect": _CONNECT_S})
    devices = gpus()
    pinned = [{"CUDA_VISIBLE_DEVICES": devices[index % len(devices)]} if devices else {} for index in range(workers)]
    here = {"dashboard": False, "host": "127.0.0.1"}  # what comes in at these ports is run: no other machine may reach them
    options = [{"nthreads": 1, "memory_limit": 0, "env": env, "silence_logs": _QUIET, **here} for env in pinned]
    try:
        return SpecCluster(
            workers={index: {"cls": Nanny, "options": one} for index, one in enumerate(options)},
            scheduler={"cls": Scheduler, "options": {"port": 0, **here}},
            silence_logs=_QUIET,
        )
    except RuntimeError as error:  # such as: a process was killed before it had come up
        raise CourseError(
            f"the {workers} processes that grade could not be started ({error}): give the same command again"
        ) from None


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return list(driver.uuids()) if named is None else [name for name in named.split(",") if name]
