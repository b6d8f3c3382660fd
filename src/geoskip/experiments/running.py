"""Train what a job says and keep its record; one job after the other, in this process."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from geoskip.data.locks import exclusive, owner
from geoskip.experiments.jobs import Job, finished
from geoskip.experiments.recipe import TINY
from geoskip.experiments.tiny import tiny_set
from geoskip.records import RunRecord, write_record
from geoskip.records.atomic import write_whole


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with its record, or with what went wrong."""

    job: Job
    record: RunRecord | None
    fault: str = ""


class Busy(RuntimeError):
    """Another process is at this very job."""


def run_job(job: Job, out: Path, device: str = "auto") -> RunRecord:
    """The record of a job: as it lies there, or after training.

    A run that was cut off goes on from its last checkpoint. Busy while another process on this machine is at the job.
    """
    ignored_by_git(out / "work")
    lock = out / "work" / "locks" / f"{job.recipe.home}-{job.folder(out).parent.name}-{job.folder(out).name}.lock"
    with exclusive(lock, patience=0.0) as held:
        if not held and (other := owner(lock)):
            raise Busy(f"{job.label}: {other} is at it")
        return finished(job, out) or _train(job, out, device)


def _train(job: Job, out: Path, device: str) -> RunRecord:
    from geoskip.training.loop import train
    from geoskip.training.tasks import make_task

    config = job.config(device)
    run = train(config, job.folder(out), task=make_task(config, data=loaded(config.task, config.data)))
    record = replace(
        run.record,
        name=job.recipe.name,
        experiment=job.recipe.home,
        row=job.recipe.label,
        schedule=job.schedule,
        paper=dict(job.recipe.paper),
    )
    write_record(job.record_path(out), record)
    return record


@lru_cache(maxsize=3)
def loaded(task: str, data: str) -> Any:
    """A data set, kept for the next row: superpixels take longer to load than some rows take to train."""
    from geoskip.training.config import resolve
    from geoskip.training.tasks.loading import load_data

    return tiny_set(task) if data == TINY else load_data(resolve(task, data=data))


def attempt(job: Job, out: Path, device: str = "auto") -> Outcome:
    """Run a job; a fault is told, kept in its folder with the traceback, and leaves other jobs alone."""
    try:
        return Outcome(job, run_job(job, out, device))
    except Busy as busy:
        return Outcome(job, None, str(busy))
    except Exception as error:
        write_whole(job.folder(out) / "fault.txt", traceback.format_exc().encode())
        return Outcome(job, None, f"{type(error).__name__}: {error}")


def run_here(jobs: Sequence[Job], out: Path, device: str = "auto") -> Iterator[Outcome]:
    """One after the other."""
    for job in jobs:
        yield attempt(job, out, device)


def ignored_by_git(folder: Path) -> None:
    """A folder that git leaves alone, wherever it lies."""
    if not (folder / ".gitignore").exists():
        write_whole(folder / ".gitignore", b"*\n")
