"""Training in progress: the learner, its place among the items, and what has been measured so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from geoskip.training.checkpoint import State
from geoskip.training.config import Config
from geoskip.training.distributed import Group
from geoskip.training.sampler import Sampler
from geoskip.training.steps import Learner, make_step
from geoskip.training.steps.reading import Reading
from geoskip.training.steps.snapshot import random_states, set_random_states
from geoskip.training.tasks import Task


class Diverged(ValueError):
    """A loss or gradient that is not finite; the message names the step and the items of its batch."""


def named_for(part: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as records and curves name them: ``accuracy_pct`` of the test, ``validation_accuracy_pct``."""
    return {name if part == "test" else f"{part}_{name}": value for name, value in metrics.items()}


class Session:
    """A run as it stands.

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
        found = named_for(part, self.task.evaluate(model, part).metrics)
        model.train()
        for name, value in found.items():
            self.measures.setdefault(name, []).append((self.sampler.epoch, value))
        self.began += time.perf_counter() - began
        return found

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
        """Everything that is needed to go on; waits for the device. Diverged if there is nothing good to keep."""
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
        """Go on from a state."""
        progress = state.progress
        self.sampler.load_state(progress["sampler"])
        self.learner.load(state.model, state.optimiser, state.step)
        self.learner.set_rate(self.config.optim.rate(self.sampler.epoch))
        # Sums are over all processes, so one of them carries on with what there was.
        self.learner.loss.fill_(progress["loss"] if self.group.leads else 0.0)
        if progress["scaler"]:
            self.learner.scaler.load_state_dict(progress["scaler"])
        self.step, self.seconds = state.step, progress["seconds"]
        self.curve = [(int(epoch), float(loss)) for epoch, loss in progress["curve"]]
        measures = progress.get("measures", {})
        self.measures = {name: [(int(epoch), float(y)) for epoch, y in found] for name, found in measures.items()}
        states = {
            name: found[self.group.rank] for name, found in progress["random"].items() if len(found) > self.group.rank
        }
        if "cpu" in states:
            set_random_states(states, self.learner.device)
