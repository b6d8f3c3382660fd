"""The one loop: trains any task on any device, keeps checkpoints, and goes on where a run was cut off."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geoskip.data.locks import HeldLock, alone
from geoskip.records.files import add_to_manifest, remove_leftovers
from geoskip.records.os_errors import WRITE_ERRORS, explain_out_of_memory
from geoskip.training.checkpoint import CheckpointNotSaved, State, remove_unfinished, save_checkpoint
from geoskip.training.config import Config
from geoskip.training.devices import Group, arithmetic, choose_device, joined, own_device
from geoskip.training.evaluation import check_same_data
from geoskip.training.progress import Journal, Progress, Silent, Tolerant
from geoskip.training.run import (
    CHECKPOINTS,
    CONTEXT,
    LOCK,
    METRICS,
    Run,
    RunError,
    check_same,
    find_state,
    is_complete,
    is_done,
    is_finished,
)
from geoskip.training.session import Session, finish
from geoskip.training.signals import Interrupted, Interrupts
from geoskip.training.tasks import Task, make_task

# How often several GPUs ask each other whether to stop: to ask is to wait.
AGREE_EVERY = 16
LESS_MEMORY = "Lower optim.batch, train a smaller model, or set precision to bf16"
LESS_DATA = "Train on fewer or smaller items, or on a machine with more memory"


def train(
    config: Config,
    folder: str | Path,
    *,
    task: Task | None = None,
    resume: str | Path = "auto",
    progress: Progress | None = None,
    stop_after: int | None = None,
    capture: bool = True,
    tensorboard: bool = False,
) -> Run:
    """Train, evaluate on the test items, and leave everything in ``folder`` (see :mod:`geoskip.training.run`).

    Args:
        config: what to train, from :func:`~geoskip.training.config.resolve`.
        folder: of the run; made if need be.
        task: with data that are at hand, made for this configuration; otherwise the data are loaded.
        resume: ``"auto"`` goes on from the newest checkpoint in the folder, if there is one; ``"never"`` refuses a
            folder that holds a run; a path is the checkpoint to go on from.
        progress: who is told.
        stop_after: steps after which to stop, with a checkpoint, as if interrupted; the run then has no record.
        capture: whether steps on CUDA are captured.
        tensorboard: whether to write what TensorBoard reads, too.

    Raises:
        Interrupted: after SIGINT, SIGTERM or SIGHUP, with a checkpoint saved, or with the whole run if training had
            ended.
        Diverged: where a loss or gradient is not finite.
    """
    run, device = Run(Path(folder), config), choose_device(config.device)
    with (
        joined(device) as group,
        Interrupts() as interrupts,
        arithmetic(config),
        _told(run.folder),
        explain_out_of_memory(f"with batches of {config.optim.batch}", LESS_MEMORY),
        _alone(run.folder, group) as lock,
    ):
        state = find_state(run.folder, resume)
        if state is not None:
            check_same(config, state, run.folder)
            if is_done(config, state) and is_complete(run.folder):
                return run
        elif resume == "auto" and is_finished(config, run.folder):
            return run
        if task is None:
            with explain_out_of_memory(f"loading {config.data}", LESS_DATA):
                task = make_task(config)
        session = Session(config, task.to(own_device(device, group.local, group.size)), group, capture)
        loop = _Loop(run, session, progress if progress is not None and group.leads else Silent(), lock)
        loop.begin(state, tensorboard)
        try:
            loop.go(interrupts, stop_after)
            loop.end()
        finally:
            loop.close()
    if interrupts.number is not None:
        # Too late to cut off this run, but whoever started several wants no other.
        raise Interrupted(interrupts.number, f"interrupted when training had ended; the run in {run.folder} is whole")
    return run


class _Loop:
    """A session, and everyone who is told of it: checkpoints, the journal, the user."""

    def __init__(self, run: Run, session: Session, progress: Progress, lock: HeldLock | None) -> None:
        self.run, self.session, self.progress, self.lock = run, session, Tolerant(progress), lock
        self.group: Group = session.group
        self.journal: Journal | None = None
        self.loss: float | None = None
        self.metric = ""
        self.saved = -1

    def begin(self, state: State | None, tensorboard: bool) -> None:
        if state is not None:
            self.session.load(state)
            self.saved = state.step
            self.loss = self.session.curve[-1][1] if self.session.curve else None
            if (self.run.folder / CONTEXT).is_file():
                check_same_data(self.run, self.session.task)
        if self.group.leads:
            Run.create(self.run.folder, self.session.config)
            self.run.write_context(self.session.task)
            self.journal = Journal(self.run.folder / METRICS, self.session.step, tensorboard)
        self.progress.start(self.session.total, self.session.step)
        if state is not None:
            self.progress.say(f"going on after step {self.session.step:,} of {self.session.total:,}")

    def go(self, interrupts: Interrupts, stop_after: int | None) -> None:
        session, every = self.session, self.session.config.checkpoint_every
        last = session.total if stop_after is None else min(session.total, session.step + stop_after)
        while session.step < last:
            session.advance()
            self._tell()
            if session.is_due and self.group.leads:
                self._evaluate()
            if self._stops(interrupts):
                self._save()
                raise Interrupted(interrupts.number or signal.SIGTERM, self._how_to_go_on())
            if every and session.step % every == 0:
                self._save()
        self._save()

    def end(self) -> None:
        if self.session.step < self.session.total or not self.group.leads:
            return
        self._check_folder()
        record = finish(self.session, self.run)
        if self.journal is not None and record.metrics:
            self.journal.write(self.session.step, record.metrics)
        add_to_manifest(self.run.folder, [METRICS])

    def close(self) -> None:
        self.progress.close()
        if self.journal is not None:
            self.journal.close()

    def _tell(self, wait: bool = False) -> None:
        for step, figures in self.session.measured(wait):
            self.loss = figures["loss"]
            if self.journal is not None:
                self.journal.write(step, figures)
        self.progress.update(self.session.step, self.session.sampler.epoch, self.loss, self.metric)

    def _evaluate(self) -> None:
        self._tell(wait=True)
        metrics = self.session.evaluate()
        self.metric = ", ".join(f"{name} {value:.4g}" for name, value in list(metrics.items())[:1])
        if self.journal is not None:
            self.journal.write(self.session.step, metrics)

    def _save(self) -> None:
        """A checkpoint of where the session stands, unless there is one."""
        self._tell(wait=True)
        if self.saved == self.session.step:
            return
        self._check_folder()
        state = self.session.state()
        if self.group.leads:
            self.run.discard_evaluation()
            save_checkpoint(self.run.checkpoints, state, self.session.config.keep)
        self.saved = self.session.step

    def _check_folder(self) -> None:
        """RunError if the folder was removed: what is written from now on would be a part of the run only."""
        if self.lock is not None and not self.lock.is_intact:
            raise RunError(
                f"{self.run.folder}: the folder, or {self.lock.file.name} in it, was removed while a run was training "
                f"in it, so training stopped at step {self.session.step:,}. Start the run again"
            )

    def _stops(self, interrupts: Interrupts) -> bool:
        """Whether someone wants to stop; processes agree on the step, since none can go on without the others."""
        wanted, device = interrupts.number is not None, self.session.learner.device
        if self.group.size > 1 and device.type == "cuda" and self.session.step % AGREE_EVERY:
            return False
        return self.group.any(wanted, device)

    def _how_to_go_on(self) -> str:
        return (
            f"interrupted after step {self.session.step:,} of {self.session.total:,}, and saved in {self.run.folder}; "
            "the same command goes on from there"
        )


@contextmanager
def _alone(folder: Path, group: Group) -> Iterator[HeldLock | None]:
    """Lock the folder, and remove what killed processes left in it; only the process that writes in it does so.

    RunError if another process is training in the folder: the two would tear up each other's checkpoints.
    """

    def refusal(other: str) -> RunError:
        return RunError(f"{folder}: {other} is training in it; wait for it, or choose another folder")

    if not group.leads:
        yield None
        return
    with alone(folder / LOCK, refusal) as lock:
        remove_leftovers(folder)
        remove_unfinished(folder / CHECKPOINTS)
        yield lock


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What the system refuses in words that say what to do."""
    try:
        yield
    except CheckpointNotSaved:
        raise
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        explained = OSError(f"{error.filename or folder}: {WRITE_ERRORS[error.errno]} ({error.strerror})")
        explained.errno = error.errno
        raise explained from error
