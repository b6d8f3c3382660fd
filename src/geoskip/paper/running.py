"""Train what a job says and keep its record; one job after the other, in this process."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from geoskip.data.locks import alone
from geoskip.paper.jobs import Job, finished
from geoskip.paper.recipe import TINY
from geoskip.paper.tiny import tiny_set
from geoskip.records import RunRecord, write_record
from geoskip.records.atomic import write_whole
from geoskip.records.manifest import list_files, unlist_files
from geoskip.training.progress import Lines, Progress, Silent, described, remaining
from geoskip.training.signals import Interrupted


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its record, or with what went wrong."""

    job: Job
    record: RunRecord | None
    fault: str = ""


class Busy(RuntimeError):
    """Another process is at this very job."""


def run_job(job: Job, out: Path, device: str = "auto", progress: Progress | None = None) -> RunRecord:
    """The record of a job: as it lies there, or after training.

    A run that was cut off goes on from its last checkpoint. Busy while another process on this machine is at the job.
    """
    ignored_by_git(out / "work")
    lock = out / "work" / "locks" / f"{job.recipe.home}-{job.folder(out).parent.name}-{job.folder(out).name}.lock"
    with alone(lock, lambda other: Busy(f"{job.label}: {other} is at it")):
        return finished(job, out) or _train(job, out, device, progress)


def _train(job: Job, out: Path, device: str, progress: Progress | None) -> RunRecord:
    from geoskip.training.loop import train
    from geoskip.training.run import RECORD
    from geoskip.training.tasks import make_task

    config = job.config(device)
    task = make_task(config, data=loaded(config.task, config.data, json.dumps(config.data_options, sort_keys=True)))
    run = train(config, job.folder(out), task=task, progress=progress)
    record = replace(
        run.record,
        name=job.recipe.name,
        experiment=job.recipe.home,
        row=job.recipe.label,
        schedule=job.schedule,
        paper=dict(job.recipe.paper),
    )
    # The same beside the samples, so that a report knows the two for one run.
    unlist_files(run.folder, [RECORD])
    write_record(run.folder / RECORD, record)
    list_files(run.folder, [RECORD])
    write_record(job.record_path(out), record)
    # The weights of the end stay; with the record there, nobody goes on from a checkpoint.
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    return record


@lru_cache(maxsize=3)
def loaded(task: str, data: str, options: str = "{}") -> Any:
    """A data set, kept for the next row: superpixels take longer to load than some rows take to train. ``options`` are
    the loader's, as JSON."""
    from geoskip.training.config import resolve
    from geoskip.training.tasks.loading import load_data

    return tiny_set(task) if data == TINY else load_data(resolve(task, data=data, data_options=json.loads(options)))


def attempt(job: Job, out: Path, device: str = "auto", progress: Progress | None = None) -> Outcome:
    """Run a job; a fault is told, kept in its folder with the traceback, and leaves other jobs alone.

    Only Interrupted goes through: whoever sent the signal wants no other job either.
    """
    try:
        return Outcome(job, run_job(job, out, device, progress))
    except Interrupted:
        raise
    except Busy as busy:
        return Outcome(job, None, str(busy))
    except Exception as error:
        write_whole(job.folder(out) / "fault.txt", traceback.format_exc().encode())
        return Outcome(job, None, f"{type(error).__name__}: {error}")


def run_here(
    jobs: Sequence[Job], out: Path, device: str = "auto", tell: Callable[[str], None] | None = None
) -> Iterator[Outcome]:
    """One after the other; ``tell`` is given a few words on the job at hand, a few times a second."""
    for job in jobs:
        yield attempt(job, out, device, Lines() if tell is None else Told(job.label, tell))


class Told(Silent):
    """Progress in words: ``MoNet M=9, seed 0: step 1,200 of 11,520, epoch 3, loss 0.31, 85 steps/s, 2:01 min left``."""

    EVERY_SECONDS = 0.5

    def __init__(self, label: str, tell: Callable[[str], None]) -> None:
        self.label, self.tell = label, tell

    def start(self, total: int, done: int) -> None:
        self.total, self.first, self.began = total, done, time.monotonic()
        self.next = self.began

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        if (now := time.monotonic()) >= self.next:
            self.next = now + self.EVERY_SECONDS
            rate = (step - self.first) / (now - self.began) if now > self.began else 0.0
            told = described(step, self.total, epoch, loss, metric)
            self.tell(f"{self.label}: {told}, {remaining(self.total - step, rate)}")

    def say(self, text: str) -> None:
        self.tell(f"{self.label}: {text}")


def ignored_by_git(folder: Path) -> None:
    """A folder that git leaves alone, wherever it lies."""
    if not (folder / ".gitignore").exists():
        write_whole(folder / ".gitignore", b"*\n")
