"""The training loop: trains any task on any device, saves checkpoints, and resumes interrupted runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, CalledProcessError, check_output

from safetensors.numpy import save
from torch import Tensor

from geoskip import __version__
from geoskip.data.cache import installed_versions, versions_of
from geoskip.data.locks import HeldLock, hold_lock
from geoskip.records import RunRecord, write_record
from geoskip.records.files import add_to_manifest, atomic_write, remove_leftovers, sync
from geoskip.records.os_errors import explain_out_of_memory
from geoskip.records.samples import write_samples
from geoskip.training.checkpoint import State, prune_checkpoints, remove_unfinished, save_checkpoint
from geoskip.training.compiling import start_device
from geoskip.training.config import Config
from geoskip.training.devices import Group, arithmetic, choose_device, device_name, own_device, process_group
from geoskip.training.evaluation import check_same_data
from geoskip.training.fine_tuning import initial_weights, open_source
from geoskip.training.pretrained import load
from geoskip.training.progress import MetricsWriter, Progress
from geoskip.training.run import (
    CHECKPOINTS,
    CONFIG,
    CONTEXT,
    ITEMS,
    LOCK,
    METRICS,
    MODEL,
    RECORD,
    SAMPLES,
    Run,
    RunError,
    find_state,
    is_finished,
    method_name,
    row_name,
)
from geoskip.training.session import Session, prefix_metrics
from geoskip.training.signals import Interrupted, Interrupts
from geoskip.training.tasks import Evaluation, Task, make_task

# Several GPUs synchronize to agree on stopping, so they do it only every so many steps.
AGREE_EVERY = 16
LESS_MEMORY = "Lower optim.batch_size, train a smaller model, or set precision to bf16"
LESS_DATA = "Train on fewer or smaller items, or on a machine with more memory"
PACKAGES = ("torch", "triton", "numpy")


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
    """Train, evaluate on the test items, and write everything to ``folder`` (see :mod:`geoskip.training.run`).

    If ``config.init_from`` names a run or an exported model, training starts from its weights.

    Args:
        config: what to train, from :func:`~geoskip.training.config.resolve`.
        folder: the folder of the run; it is created if needed.
        task: a task made for this configuration, if its data are already in memory; by default the data are loaded.
        resume: ``"auto"`` resumes from the newest checkpoint in the folder, if there is one; ``"never"`` fails if the
            folder contains a run; a path names the checkpoint to resume from.
        progress: displays the progress; by default it is not displayed.
        stop_after: stop after this number of steps, with a checkpoint, as if interrupted; the run then has no record.
        capture: whether steps on CUDA are captured as CUDA graphs.
        tensorboard: whether to write the metrics for TensorBoard, too.

    Raises:
        Interrupted: after SIGINT, SIGTERM or SIGHUP, with a checkpoint saved, or with the run finished if the signal
            came after the last step.
        Diverged: if a loss or gradient is not finite.
    """
    source = None
    if config.init_from is not None:
        config, source = open_source(config, Path(folder))
    run, device = Run(Path(folder), config), choose_device(config.device)
    with (
        process_group(device) as group,
        Interrupts() as interrupts,
        arithmetic(config),
        explain_out_of_memory(f"with batches of {config.optim.batch_size}", LESS_MEMORY),
        _locked(run.folder, group) as lock,
    ):
        state = find_state(run, resume)
        if is_finished(run, state):
            if task is not None and (run.folder / CONTEXT).is_file():
                check_same_data(run, task)
            return run
        own = own_device(device)
        start_device(own)
        if task is None:
            with explain_out_of_memory(f"loading {config.data}", LESS_DATA):
                task = make_task(config)
        initial: Mapping[str, Tensor] = {}
        if config.init_from is not None:
            initial = state.model if state is not None else initial_weights(task, source or load(config.init_from))
            task.start_from(initial)
        session = Session(config, task.to(own), group, capture)
        if initial:  # all but perhaps the last layer
            session.learner.model.load_state_dict(initial, strict=False)
        loop = _Loop(run, session, progress if progress is not None and group.is_main else Progress(), lock)
        loop.start(state, tensorboard)
        try:
            loop.run_steps(interrupts, stop_after)
            loop.finish()
        finally:
            loop.close()
    if interrupts.number is not None:
        # This run is complete, but a caller with more runs to do must stop.
        raise Interrupted(interrupts.number, f"interrupted after the last step; the run in {run.folder} is complete")
    return run


class _Loop:
    """Advances a session, and writes its checkpoints, metrics and results into the folder of the run."""

    def __init__(self, run: Run, session: Session, progress: Progress, lock: HeldLock | None) -> None:
        self.run, self.session, self.progress, self.lock = run, session, progress, lock
        self.group: Group = session.group
        self.metrics: MetricsWriter | None = None
        self.loss: float | None = None
        self.metric = ""
        self.saved_step = -1

    def start(self, state: State | None, tensorboard: bool) -> None:
        session, folder = self.session, self.run.folder
        if self.group.is_main and any(len(session.task.split_items(name)) for name in ("validation", "test")):
            session.task.before_training()
        if state is not None:
            # Before loading, because the model of other data may have other buffers; `load` compares numbers of items.
            if (folder / CONTEXT).is_file() and state.progress["num_items"] == session.task.num_items:
                check_same_data(self.run, session.task)
            session.load(state)
            self.saved_step = state.step
            self.loss = session.curve[-1][1] if session.curve else None
        if self.group.is_main:
            Run.create(folder, session.config)
            self.run.write_context(session.task)
            self.metrics = MetricsWriter(folder / METRICS, session.step, tensorboard)
        with suppress(OSError):  # of a terminal that was closed, here and below
            self.progress.start(session.total_steps, session.step)
            if state is not None:
                self.progress.message(f"resuming after step {session.step:,} of {session.total_steps:,}")

    def run_steps(self, interrupts: Interrupts, stop_after: int | None) -> None:
        session, every = self.session, self.session.config.checkpoint_every
        last = session.total_steps if stop_after is None else min(session.total_steps, session.step + stop_after)
        while session.step < last:
            session.advance()
            self._report()
            if session.should_evaluate and self.group.is_main:
                self._evaluate()
            if self._should_stop(interrupts):
                self._save()
                raise Interrupted(
                    interrupts.number or signal.SIGTERM,
                    f"interrupted after step {session.step:,} of {session.total_steps:,}, with a checkpoint in "
                    f"{self.run.folder}; the same command resumes the run",
                )
            if every and session.step % every == 0:
                self._save()
        self._save()

    def finish(self) -> None:
        """Evaluate the trained model; write samples, weights, the record and their checksums, in this order.

        A run is complete when its manifest lists the record.
        """
        session, folder = self.session, self.run.folder
        if session.step < session.total_steps or not self.group.is_main:
            return
        self._check_folder()
        seconds, model, task = session.elapsed, session.learner.model, session.task
        task.epoch = session.epoch
        task.after_training(model)
        evaluation, metrics = Evaluation({}), dict[str, float]()
        if len(task.split_items("validation")):
            evaluation = task.evaluate(model, "validation")
            metrics |= prefix_metrics("validation", evaluation.metrics)
        if session.config.test and task.num_test:
            evaluation = task.evaluate(model)
            metrics |= evaluation.metrics
        num_samples = min(task.num_samples, len(task.split_items(task.final_split)))
        samples = task.samples(model, num_samples, task.final_split) if num_samples else None
        optional = []
        if samples is not None:
            write_samples(folder / SAMPLES, samples)
            optional.append(SAMPLES)
        per_item = {name: array for name, array in evaluation.arrays.items() if name.startswith("per_item_")}
        if per_item:
            atomic_write(folder / ITEMS, save(per_item, {"part": task.final_split}))
            optional.append(ITEMS)
        self.run.write_model(model, session.step)
        self._check_files(CONFIG, CONTEXT, METRICS, MODEL, *optional)
        curves = {
            name: [(float(epoch), value) for epoch, value in points]
            for name, points in {"loss": session.curve, **session.measures}.items()
        }
        record = RunRecord(
            name=method_name(session.config),
            row=row_name(session.config),
            config=session.config.to_json(),
            seed=session.config.seed,
            parameters=sum(parameter.numel() for parameter in session.learner.parameters),
            steps=session.step,
            epochs=session.step / session.sampler.num_batches,
            seconds=seconds,
            device=device_name(session.learner.device, self.group.size),
            versions=versions(),
            metrics=metrics,
            curves={**curves, **evaluation.curves},
            commit=commit(),
            data_key=(key := getattr(task.data, "content", "")),
            data_versions=versions_of(key),
            concurrency=1,
        )
        if self.metrics is not None and metrics:
            self.metrics.write(session.step, metrics)
            sync(folder / METRICS)
        write_record(folder / RECORD, record)
        add_to_manifest(folder, [*optional, METRICS, RECORD])

    def close(self) -> None:
        with suppress(OSError):
            self.progress.close()
        if self.metrics is not None:
            self.metrics.close()

    def _report(self, wait: bool = False) -> None:
        """Write the metrics of completed epochs and update the display."""
        for step, values in self.session.epoch_metrics(wait):
            self.loss = values["loss"]
            if self.metrics is not None:
                self.metrics.write(step, values)
        # After the last step the session's epoch is the number of epochs.
        epoch = min(self.session.epoch, self.run.config.optim.epochs - 1)
        with suppress(OSError):
            self.progress.update(self.session.step, epoch, self.loss, self.metric)

    def _evaluate(self) -> None:
        self._report(wait=True)
        values = self.session.evaluate()
        self.metric = ", ".join(f"{name} {value:.4g}" for name, value in list(values.items())[:1])
        if self.metrics is not None:
            self.metrics.write(self.session.step, values)

    def _save(self) -> None:
        """Save a checkpoint, unless there is one of this step."""
        self._report(wait=True)
        if self.saved_step == self.session.step:
            if self.group.is_main:  # the process that saved it may have been killed before it removed the older ones
                prune_checkpoints(self.run.checkpoints, self.session.step, self.session.config.keep)
            return
        self._check_folder()
        state = self.session.state()
        if self.group.is_main:
            self.run.discard_evaluation()
            save_checkpoint(self.run.checkpoints, state, self.session.config.keep)
        self.saved_step = self.session.step

    def _check_folder(self) -> None:
        """RunError if the folder was removed: only a part of the run would be written to the new one."""
        if self.lock is not None and not self.lock.is_intact:
            raise RunError(
                f"{self.run.folder}: the folder, or {self.lock.file.name} in it, was removed while a run was training "
                f"in it, so training stopped at step {self.session.step:,}. Start the run again"
            )

    def _check_files(self, *names: str) -> None:
        """RunError if a file was removed while the run was training."""
        if missing := [name for name in names if not (self.run.folder / name).is_file()]:
            raise RunError(
                f"{self.run.folder}: {', '.join(missing)} was removed while the run was training. Start the same "
                "command again: it resumes from the last checkpoint"
            )

    def _should_stop(self, interrupts: Interrupts) -> bool:
        """Whether a process was interrupted; all processes stop at the same step, since none can run without the
        others."""
        interrupted, device = interrupts.number is not None, self.session.learner.device
        if self.group.size > 1 and device.type == "cuda" and self.session.step % AGREE_EVERY:
            return False
        return self.group.any(interrupted, device)


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that results depend on."""
    # geoskip may be on the path without being installed.
    return {**installed_versions(PACKAGES), "geoskip": __version__}


def commit() -> str:
    """The commit of geoskip's source: ``$GEOSKIP_COMMIT``, for copies of a repository, or what git says, with a + if
    files have been changed since. Empty if unknown."""
    if named := os.environ.get("GEOSKIP_COMMIT"):
        return named
    git = ["git", "-C", str(Path(__file__).parent)]
    with suppress(OSError, CalledProcessError):
        # An installed package may lie in a repository that is not its own.
        run = partial(check_output, stderr=DEVNULL, text=True)
        run([*git, "ls-files", "--error-unmatch", Path(__file__).name])
        return run([*git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]).strip()
    return ""


@contextmanager
def _locked(folder: Path, group: Group) -> Iterator[HeldLock | None]:
    """Lock the folder, and remove what killed processes left in it; only the process that writes there does so.

    RunError if another process is training in the folder: the two would overwrite each other's checkpoints.
    """

    def busy(owner: str) -> RunError:
        return RunError(f"{folder}: {owner} is training in it; wait for it, or choose another folder")

    if not group.is_main:
        yield None
        return
    with hold_lock(folder / LOCK, busy) as lock:
        remove_leftovers(folder)
        remove_unfinished(folder / CHECKPOINTS)
        yield lock
