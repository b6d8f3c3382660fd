"""A training session: the order of the items, the state of training, and what a run stores when it ends."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip import __version__
from geoskip.records import RunRecord, write_record
from geoskip.records.files import add_to_manifest
from geoskip.records.samples import write_samples
from geoskip.shapes import Int
from geoskip.training.checkpoint import State
from geoskip.training.config import Config
from geoskip.training.devices import Group, device_words
from geoskip.training.learner import Learner
from geoskip.training.run import CONFIG, CONTEXT, METRICS, MODEL, RECORD, SAMPLES, Run, RunError, method_name, row_name
from geoskip.training.steps import Reading, make_step, random_states, set_random_states
from geoskip.training.tasks import Evaluation, Task


class Sampler:
    """Every item once an epoch, in an order of its own each time, ``batch`` items at a time.

    The last batch of an epoch has what is left. The order of an epoch lies on ``device``, so that taking a batch of
    it moves nothing.

    Attributes:
        epoch: epochs done.
        position: items taken of the current one.
    """

    def __init__(self, num_items: int, batch: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.num_items, self.batch, self.seed = num_items, min(batch, num_items), seed
        self.device = torch.device(device)
        self.epoch = self.position = 0
        self._order = self._ordered()

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.num_items // self.batch)

    @property
    def at_end(self) -> bool:
        """Whether all items of the epoch have been taken."""
        return self.position >= self.num_items

    def order(self, epoch: int) -> Int[Tensor, " items"]:
        """All items in the order of an epoch, on the CPU."""
        mixed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0])
        return torch.randperm(self.num_items, generator=torch.Generator().manual_seed(mixed))

    def next(self) -> Int[Tensor, " items"]:
        """The next batch of the epoch; there must be one."""
        items = self._order[self.position : self.position + self.batch]
        self.position += len(items)
        return items

    def next_epoch(self) -> None:
        self.epoch, self.position = self.epoch + 1, 0
        self._order = self._ordered()

    def batch_at(self, step: int) -> Int[Tensor, " items"]:
        """The items of a step of the whole run, counted from 0, on the CPU."""
        epoch, position = divmod(step, self.num_batches)
        return self.order(epoch)[position * self.batch : (position + 1) * self.batch]

    def state(self) -> dict[str, Any]:
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, "num_items": self.num_items}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken; ValueError if that was over another set."""
        if (state["num_items"], state["seed"]) != (self.num_items, self.seed):
            raise ValueError(
                f"the checkpoint is of a run over {state['num_items']} items with seed {state['seed']}; here are "
                f"{self.num_items} with seed {self.seed}, so it cannot go on"
            )
        self.epoch, self.position = state["epoch"], state["position"]
        self._order = self._ordered()

    def _ordered(self) -> Tensor:
        order = self.order(self.epoch)
        if self.device.type == "cuda":
            return order.pin_memory().to(self.device, non_blocking=True)
        return order


class Diverged(ValueError):
    """A loss or gradient that is not finite; the message names the step and the items of its batch."""


def named_for(part: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as records and curves name them: ``accuracy_pct`` of the test, ``validation_accuracy_pct``."""
    return {name if part == "test" else f"{part}_{name}": value for name, value in metrics.items()}


class Session:
    """The current state of training.

    Attributes:
        step: updates so far.
        total: updates in all.
        curve: (epochs done, mean loss of the last of them), for each epoch.
        measures: of each metric, (epochs done, value), as often as it was measured on the way.
        seconds: time of training before this process began.
    """

    def __init__(self, config: Config, task: Task, group: Group | None = None, capture: bool = True) -> None:
        self.config, self.task, self.group = config, task, group or Group()
        self.learner = Learner(task, task.make_model(), config, self.group)
        self.sampler = Sampler(task.num_items, config.optim.batch, config.seed, task.device)
        self.stepper = make_step(self.learner, capture)
        self.step, self.seconds = 0, 0.0
        self.curve: list[tuple[int, float]] = []
        self.measures: dict[str, list[tuple[int, float]]] = {}
        self.began = time.perf_counter()
        self._pending: list[tuple[int, int, Reading]] = []
        # Whether the task is ready for the epoch; that of a resumed run begins in the middle of one.
        self._ready = False
        # Processes drop out different things, a process that goes on alone the same as ever.
        torch.manual_seed(int(np.random.SeedSequence([config.seed, self.group.rank]).generate_state(1)[0]))

    @property
    def total(self) -> int:
        return self.sampler.num_batches * self.config.optim.epochs

    @property
    def elapsed(self) -> float:
        """Seconds of training, those of interrupted processes too."""
        return self.seconds + time.perf_counter() - self.began

    def advance(self) -> None:
        """One update."""
        if self.sampler.position == 0 or not self._ready:
            self.learner.set_rate(self.config.optim.rate(self.sampler.epoch))
            self.task.begin_epoch(self.sampler.epoch)
            self._ready = True
        self.stepper.run(self.sampler.next())
        self.step += 1
        if self.learner.device.type == "cpu":
            self._refuse(int(self.learner.fault))
        if self.sampler.at_end:
            self._pending.append((self.sampler.epoch, self.step, Reading(self.learner)))
            self.learner.loss.zero_()
            self.sampler.next_epoch()

    def measured(self, wait: bool = False) -> Iterator[tuple[int, dict[str, int | float]]]:
        """The step and the figures of each epoch that has become known since; Diverged where one is not finite."""
        while self._pending and (wait or self._pending[0][2].ready):
            epoch, step, reading = self._pending.pop(0)
            loss, fault, taken = reading.wait()
            self._refuse(fault)
            mean = loss / self.sampler.num_items
            self.curve.append((epoch + 1, mean))
            figures = {"epoch": epoch + 1, "loss": mean, "lr": self.config.optim.rate(epoch), "seconds": self.elapsed}
            yield step, figures | ({"skipped_steps": step - taken} if self.learner.scaler.is_enabled() else {})

    @property
    def is_due(self) -> bool:
        """Whether the model is to be measured now: at the end of every so many epochs but the last."""
        every, epoch = self.config.evaluate_every, self.sampler.epoch
        begins = self.sampler.position == 0 and 0 < self.step < self.total
        return bool(every) and begins and epoch % every == 0 and len(self.task.part(self.task.watched)) > 0

    def evaluate(self) -> dict[str, float]:
        """Figures as the model stands, on the validation items or, without them, on the test items. Training goes on as
        if nothing had been; its time leaves this out."""
        began, model, part = time.perf_counter(), self.learner.model, self.task.watched
        self.task.epoch = self.sampler.epoch
        metrics = named_for(part, self.task.evaluate(model, part).metrics)
        model.train()
        for name, value in metrics.items():
            self.measures.setdefault(name, []).append((self.sampler.epoch, value))
        self.began += time.perf_counter() - began
        return metrics

    def _refuse(self, fault: int) -> None:
        if fault < 0:
            return
        items = self.sampler.batch_at(fault).tolist()
        names = ", ".join(self.task.names[item] for item in items[:4]) + (", …" if len(items) > 4 else "")
        epoch = fault // self.sampler.num_batches
        raise Diverged(
            f"step {fault + 1} (epoch {epoch + 1}; {names}): its loss or gradient is not finite. Training stopped; the "
            "last checkpoint is from before it. Look at these items, lower optim.lr, or take precision float32"
        )

    def state(self) -> State:
        """Everything needed to resume; waits for the device. Raises Diverged if the weights are not worth keeping."""
        loss, fault, taken = Reading(self.learner).wait()
        self._refuse(fault)
        if taken == 0 and self.step == self.total:
            # So few steps that the loss scale never fell to 1: the weights are still the initial ones.
            self._refuse(self.step - 1)
        device = self.learner.device
        states = {name: self.group.gather(state, device) for name, state in random_states(device).items()}
        progress: dict[str, Any] = {
            "config": self.config.to_json(),
            "sampler": self.sampler.state(),
            "random": states,
            "scaler": self.learner.scaler.state_dict(),
            "loss": loss,
            "curve": self.curve,
            "measures": self.measures,
            "seconds": self.elapsed,
        }
        return State(self.step, self.learner.model.state_dict(), self.learner.moments(), progress)

    def load(self, state: State) -> None:
        """Resume from a state."""
        progress = state.progress
        self.sampler.load_state(progress["sampler"])
        self.learner.load(state.model, state.optimizer, state.step)
        self.learner.set_rate(self.config.optim.rate(self.sampler.epoch))
        # Sums are over all processes, so one of them carries on with what there was.
        self.learner.loss.fill_(progress["loss"] if self.group.leads else 0.0)
        if progress["scaler"]:
            self.learner.scaler.load_state_dict(progress["scaler"])
        self.step, self.seconds = state.step, progress["seconds"]
        self.curve = [(int(epoch), float(loss)) for epoch, loss in progress["curve"]]
        measures = progress.get("measures", {})
        self.measures = {name: [(int(epoch), float(y)) for epoch, y in curve] for name, curve in measures.items()}
        states = {
            name: states[self.group.rank]
            for name, states in progress["random"].items()
            if len(states) > self.group.rank
        }
        if "cpu" in states:
            set_random_states(states, self.learner.device)


PACKAGES = ("torch", "triton", "numpy")


def finish(session: Session, run: Run) -> RunRecord:
    """Evaluate on the test and validation items; store samples, weights, the record and their checksums, in this order.

    A run is complete when its manifest lists the record. The seconds are those of training alone.
    """
    seconds, model, task = session.elapsed, session.learner.model, session.task
    task.epoch = session.sampler.epoch
    evaluation, metrics = Evaluation({}), dict[str, float]()
    if len(task.part("validation")):
        evaluation = task.evaluate(model, "validation")
        metrics |= named_for("validation", evaluation.metrics)
    if session.config.test and task.num_test:
        evaluation = task.evaluate(model)
        metrics |= evaluation.metrics
    if shown := min(task.num_samples, len(task.part(task.final))):
        write_samples(run.folder / SAMPLES, task.samples(model, shown, task.final))
    run.write_model(model, session.step)
    _check_complete(run, bool(shown))
    record = RunRecord(
        name=method_name(session.config),
        row=row_name(session.config),
        config=session.config.to_json(),
        seed=session.config.seed,
        parameters=sum(parameter.numel() for parameter in session.learner.parameters),
        steps=session.step,
        epochs=session.step / session.sampler.num_batches,
        seconds=seconds,
        device=_words(session),
        versions=versions(),
        metrics=metrics,
        curves={**_curves(session), **evaluation.curves},
    )
    write_record(run.folder / RECORD, record)
    add_to_manifest(run.folder, [*[SAMPLES] * bool(shown), RECORD])
    return record


def _check_complete(run: Run, has_samples: bool) -> None:
    """RunError unless everything but the record is on the disk: files can be removed while a run is training."""
    names = (CONFIG, CONTEXT, METRICS, MODEL, *([SAMPLES] if has_samples else []))
    if missing := [name for name in names if not (run.folder / name).is_file()]:
        raise RunError(
            f"{run.folder}: {', '.join(missing)} was removed while the run was training. Start the same command again: "
            "it continues from the last checkpoint"
        )


def _curves(session: Session) -> dict[str, list[tuple[float, float]]]:
    curves = {"loss": session.curve, **session.measures}
    return {name: [(float(epoch), value) for epoch, value in curve] for name, curve in curves.items()}


def versions() -> dict[str, str]:
    """Of Python and of the packages that figures depend on."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    # On the path without having been installed, it has no metadata.
    return {**installed, "geoskip": __version__}


def _words(session: Session) -> str:
    words = device_words(session.learner.device)
    return words if session.group.size == 1 else f"{session.group.size} × {words}"
