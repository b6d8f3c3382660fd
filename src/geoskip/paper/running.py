"""Jobs: a row with data, schedule and seed. Where its record is stored, whether it is finished, how to train it.

.. code-block:: text

    results/runs/EXPERIMENT/ROW/DATA-SCHEDULE-SEED.json      the record, small enough for git
    results/runs/…/DATA-SCHEDULE-SEED.safetensors            the error of each test item, also small
    results/work/EXPERIMENT/ROW/DATA-SCHEDULE-SEED-KEY/      checkpoints, weights, samples, ignored by git

The key is a hash of all settings that can change the result. A run or record that was made with other settings under
the same name is therefore neither resumed nor accepted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from geoskip.data.locks import hold_lock
from geoskip.paper.experiments import find_row, is_comparable
from geoskip.paper.rows import TINY, PaperRow
from geoskip.records import RunRecord, read_record, write_record
from geoskip.records.files import add_to_manifest, atomic_write, remove_from_manifest
from geoskip.training.config import Config
from geoskip.training.progress import Lines, Progress
from geoskip.training.signals import Interrupted

# Settings that cannot change the result.
IGNORED_SETTINGS = ("device", "evaluate_every", "checkpoint_every", "keep")
# The records of each row, by seed.
Runs = Mapping[PaperRow, Mapping[int, RunRecord]]


@dataclass(frozen=True)
class Job:
    """One model to train."""

    row: PaperRow
    data: str
    schedule: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.row.label}, seed {self.seed}"

    def config(self, device: str = "auto") -> Config:
        return self.row.config(self.data, self.schedule, self.seed, device)

    def record_path(self, out: Path) -> Path:
        return out / "runs" / self.row.home / self.row.slug / f"{self._stem}.json"

    def items_path(self, out: Path) -> Path:
        return self.record_path(out).with_suffix(".safetensors")

    def folder(self, out: Path) -> Path:
        return out / "work" / self.row.home / self.row.slug / f"{self._stem}-{config_key(self.config())[:8]}"

    @property
    def _stem(self) -> str:
        return f"{self.data}-{self.schedule}-{self.seed}"

    def to_json(self) -> dict[str, Any]:
        row = {"experiment": self.row.home, "row": self.row.label}
        return {**row, "data": self.data, "schedule": self.schedule, "seed": self.seed}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Job:
        row = find_row(entries["experiment"], entries["row"])
        return cls(row, entries["data"], entries["schedule"], entries["seed"])


def config_key(config: Config) -> str:
    """A hash of the settings that the result depends on."""
    entries = {key: value for key, value in config.to_json().items() if key not in IGNORED_SETTINGS}
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def finished(job: Job, out: Path) -> RunRecord | None:
    """The record of a finished job; None if there is none, or if it was made with other settings."""
    try:
        record = read_record(job.record_path(out))
        same = config_key(Config.from_json(record.config)) == config_key(job.config())
    except ValueError:  # no record, a damaged one, or one of an incompatible version
        return None
    return record if same else None


def stored_runs(rows: Iterable[PaperRow], out: Path) -> dict[tuple[str, str], dict[PaperRow, dict[int, RunRecord]]]:
    """The records of the rows in a folder, by data set and schedule."""
    groups: dict[tuple[str, str], dict[PaperRow, dict[int, RunRecord]]] = {}
    for row in rows:
        jobs = []
        for path in (out / "runs" / row.home / row.slug).glob("*-*-*.json"):
            data, schedule, seed = path.stem.rsplit("-", 2)
            if seed.isdigit():
                jobs.append(Job(row, data, schedule, int(seed)))
        for job in sorted(jobs, key=lambda job: (job.data, job.schedule, job.seed)):
            if record := finished(job, out):
                groups.setdefault((job.data, job.schedule), {}).setdefault(row, {})[job.seed] = record
    return dict(sorted(groups.items()))


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a record, or with an error message."""

    job: Job
    record: RunRecord | None
    fault: str = ""


class Busy(RuntimeError):
    """Another process is running the same job."""


def run_job(
    job: Job, out: Path, device: str = "auto", progress: Progress | None = None, concurrency: int = 1
) -> RunRecord:
    """Train the job, unless it is finished, and return its record, which says how many jobs share the device.

    An interrupted run resumes from its last checkpoint. Raises Busy if another process on this machine runs the job.
    """
    ignored_by_git(out / "work")
    folder = job.folder(out)
    lock = out / "work" / "locks" / f"{job.row.home}-{folder.parent.name}-{folder.name}.lock"
    with hold_lock(lock, lambda other: Busy(f"{job.label}: {other} is running it")):
        return finished(job, out) or _train(job, out, device, progress, concurrency)


def _train(job: Job, out: Path, device: str, progress: Progress | None, concurrency: int) -> RunRecord:
    from geoskip.training.loop import train
    from geoskip.training.run import ITEMS, RECORD
    from geoskip.training.tasks import make_task

    config = job.config(device)
    task = make_task(config, data=loaded(config))
    run = train(config, job.folder(out), task=task, progress=progress)
    record = replace(
        run.record,
        name=job.row.method,
        experiment=job.row.home,
        row=job.row.label,
        schedule=job.schedule,
        paper=dict(job.row.paper) if is_comparable(job.data) else {},
        concurrency=concurrency,
    )
    # The same record next to the samples, so that a report recognizes the two as one run.
    remove_from_manifest(run.folder, [RECORD])
    write_record(run.folder / RECORD, record)
    add_to_manifest(run.folder, [RECORD])
    if (run.folder / ITEMS).is_file():
        atomic_write(job.items_path(out), (run.folder / ITEMS).read_bytes())
    write_record(job.record_path(out), record)
    # The final weights stay. A finished run is not resumed, so its checkpoints can go.
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    return record


def loaded(config: Config) -> Any:
    """Load the data set, and keep it for the next row: superpixels take longer to load than some rows take to train."""
    return load_once(config.task, config.data, json.dumps(config.data_options, sort_keys=True))


@lru_cache(maxsize=3)
def load_once(task: str, data: str, options: str) -> Any:
    from geoskip.paper.small_sets import tiny_set
    from geoskip.training.config import resolve
    from geoskip.training.tasks import find_task

    if data == TINY:
        return tiny_set(task)
    return find_task(task).load_data(resolve(task, data=data, data_options=json.loads(options)))


def attempt(
    job: Job, out: Path, device: str = "auto", progress: Progress | None = None, concurrency: int = 1
) -> Outcome:
    """Run a job. An error is returned in the outcome, and its traceback written to ``fault.txt`` in the job's folder.

    Only Interrupted is raised: a signal is meant to stop all jobs.
    """
    try:
        return Outcome(job, run_job(job, out, device, progress, concurrency))
    except Interrupted:
        raise
    except Busy as busy:
        return Outcome(job, None, str(busy))
    except Exception as error:
        atomic_write(job.folder(out) / "fault.txt", traceback.format_exc().encode())
        return Outcome(job, None, f"{type(error).__name__}: {error}")


def run_here(
    jobs: Sequence[Job], out: Path, device: str = "auto", show: Callable[[str], None] | None = None
) -> Iterator[Outcome]:
    """Run the jobs in this process, one after the other. ``show`` gets a status line a few times a second."""
    for job in jobs:
        yield attempt(job, out, device, Lines() if show is None else StatusLine(job.label, show))


class StatusLine(Progress):
    """Training progress as one line: ``MoNet M=9, seed 0: step 1,200 of 11,520, epoch 3, …, 2:01 min left``."""

    first_seconds, seconds = 0.0, 0.5

    def __init__(self, label: str, write: Callable[[str], None]) -> None:
        self.label, self.write = label, write

    def show(self, step: int, status: str, time_left: str) -> None:
        self.write(f"{self.label}: {status}, {time_left}")

    def message(self, text: str) -> None:
        self.write(f"{self.label}: {text}")


def ignored_by_git(folder: Path) -> None:
    """Write a .gitignore into the folder that excludes all of it."""
    if not (folder / ".gitignore").exists():
        atomic_write(folder / ".gitignore", b"*\n")
