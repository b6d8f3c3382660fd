"""The state of training: the order of the items, the number of steps so far, and how to save and load it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.shapes import Int
from geoskip.training.checkpoint import State
from geoskip.training.compiling import compile_step
from geoskip.training.config import Config
from geoskip.training.cuda_graphs import CapturedStep, random_states, set_random_states
from geoskip.training.devices import Group
from geoskip.training.learner import Learner
from geoskip.training.tasks import Task


class Diverged(ValueError):
    """A loss or gradient that is not finite; the message names the step and the items of its batch."""


class Sampler:
    """The items of each step: every item once per epoch, in a new order each time.

    The last batch of an epoch is smaller if the items do not divide evenly. The order of the current epoch is stored on
    ``device``, so that taking a batch moves nothing.
    """

    def __init__(self, num_items: int, batch_size: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.num_items, self.batch_size, self.seed = num_items, min(batch_size, num_items), seed
        self.device = torch.device(device)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    @property
    def num_batches(self) -> int:
        """Batches per epoch."""
        return -(-self.num_items // self.batch_size)

    def batch(self, step: int) -> Int[Tensor, " items"]:
        """The items of a step of the run, counted from 0."""
        epoch, position = divmod(step, self.num_batches)
        if self._epoch != epoch:
            order = self.order(epoch)
            on_cuda = self.device.type == "cuda"
            self._order = order.pin_memory().to(self.device, non_blocking=True) if on_cuda else order.to(self.device)
            self._epoch = epoch
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]

    def order(self, epoch: int) -> Int[Tensor, " items"]:
        """All items in the order of an epoch, on the CPU."""
        seed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0])
        return torch.randperm(self.num_items, generator=torch.Generator().manual_seed(seed))


def make_step(learner: Learner, capture: bool = True) -> Callable[[Int[Tensor, " items"]], None]:
    """``learner.update``, captured on a single CUDA device; several exchange gradients, which is not captured."""
    captured = capture and learner.device.type == "cuda" and learner.group.size == 1
    return captured_step(learner) if captured else learner.update


def captured_step(learner: Learner, **options: Any) -> CapturedStep:
    """``learner.update``, recorded again when the task's batches change their layout."""
    return CapturedStep(
        learner.update,
        lambda: learner.tensors().values(),
        scaler=learner.scaler,
        layout=lambda items: learner.task.layout(len(items)),
        prepare=lambda items: compile_step(learner, len(items)),
        **options,
    )


class TrainingStatus:
    """The sum of losses, the first bad step and the number of Adam steps of a learner, as they are now.

    The copy to the host runs while training continues.
    """

    def __init__(self, learner: Learner) -> None:
        loss = learner.loss_sum.clone()
        learner.group.sum_all([loss])
        values = loss, learner.first_bad_step, learner.num_adam_steps()
        self._event: torch.cuda.Event | None = None
        if loss.is_cuda:
            stacked = torch.stack([value.double() for value in values])
            self._host = torch.empty(3, dtype=torch.float64, pin_memory=True).copy_(stacked, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._host = torch.stack([value.cpu().double() for value in values])

    @property
    def ready(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> tuple[float, int, int]:
        """The sum of losses over all processes, the first bad step or -1, and the steps that moved the weights."""
        if self._event is not None:
            self._event.synchronize()
        loss, bad_step, adam_steps = self._host.tolist()
        return loss, int(bad_step), int(adam_steps)


class Session:
    """The current state of training.

    Attributes:
        step: number of updates so far.
        total_steps: number of updates of the whole run.
        curve: (completed epochs, mean loss of the last of them), for each epoch.
        measures: for each metric, (completed epochs, value) of every evaluation during training.
        seconds: training time of earlier processes of this run.
    """

    def __init__(self, config: Config, task: Task, group: Group | None = None, capture: bool = True) -> None:
        self.config, self.task, self.group = config, task, group or Group()
        self.learner = Learner(task, task.make_model(), config, self.group)
        self.sampler = Sampler(task.num_items, config.optim.batch_size, config.seed, task.device)
        self.update = make_step(self.learner, capture)
        self.step, self.seconds = 0, 0.0
        self.curve: list[tuple[int, float]] = []
        self.measures: dict[str, list[tuple[int, float]]] = {}
        self.start_time = time.perf_counter()
        self._pending: list[tuple[int, int, TrainingStatus]] = []
        # A resumed run may start in the middle of an epoch.
        self._epoch_prepared = False
        # Each process draws its own dropout; a process alone always draws the same.
        torch.manual_seed(int(np.random.SeedSequence([config.seed, self.group.rank]).generate_state(1)[0]))

    @property
    def total_steps(self) -> int:
        return self.sampler.num_batches * self.config.optim.epochs

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return self.step // self.sampler.num_batches

    @property
    def at_epoch_start(self) -> bool:
        return self.step % self.sampler.num_batches == 0

    @property
    def elapsed(self) -> float:
        """Seconds of training, including those of interrupted processes."""
        return self.seconds + time.perf_counter() - self.start_time

    def advance(self) -> None:
        """Do one update."""
        epoch = self.epoch
        if self.at_epoch_start or not self._epoch_prepared:
            self.learner.set_lr(self.config.optim.rate(epoch))
            self.task.begin_epoch(epoch)
            self._epoch_prepared = True
        self.update(self.sampler.batch(self.step))
        self.step += 1
        if self.learner.device.type == "cpu":
            self._check_finite(int(self.learner.first_bad_step))
        if self.at_epoch_start:
            self._pending.append((epoch, self.step, TrainingStatus(self.learner)))
            self.learner.loss_sum.zero_()

    def epoch_metrics(self, wait: bool = False) -> Iterator[tuple[int, dict[str, int | float]]]:
        """The step and the metrics of each epoch whose values have arrived since the last call. Raises Diverged."""
        while self._pending and (wait or self._pending[0][2].ready):
            epoch, step, status = self._pending.pop(0)
            loss, bad_step, adam_steps = status.wait()
            self._check_finite(bad_step)
            mean = loss / self.sampler.num_items
            self.curve.append((epoch + 1, mean))
            metrics = {"epoch": epoch + 1, "loss": mean, "lr": self.config.optim.rate(epoch), "seconds": self.elapsed}
            yield step, metrics | ({"skipped_steps": step - adam_steps} if self.learner.scaler.is_enabled() else {})

    @property
    def should_evaluate(self) -> bool:
        """Whether to evaluate now: after every ``evaluate_every`` epochs, except the last."""
        every, between_epochs = self.config.evaluate_every, self.at_epoch_start and 0 < self.step < self.total_steps
        has_items = len(self.task.split_items(self.task.monitored_split)) > 0
        return bool(every and between_epochs and has_items and self.epoch % every == 0)

    def evaluate(self) -> dict[str, float]:
        """Metrics on the validation items or, without them, the test items. Training and its time are unaffected."""
        started, model, split = time.perf_counter(), self.learner.model, self.task.monitored_split
        self.task.epoch = self.epoch
        metrics = prefix_metrics(split, self.task.evaluate(model, split).metrics)
        model.train()
        for name, value in metrics.items():
            self.measures.setdefault(name, []).append((self.epoch, value))
        self.start_time += time.perf_counter() - started
        return metrics

    def _check_finite(self, bad_step: int) -> None:
        """Raise Diverged if ``bad_step`` is a step and not -1."""
        if bad_step < 0:
            return
        items = self.sampler.batch(bad_step).tolist()
        names = ", ".join(self.task.names[item] for item in items[:4]) + (", …" if len(items) > 4 else "")
        epoch = bad_step // self.sampler.num_batches
        raise Diverged(
            f"step {bad_step + 1} (epoch {epoch + 1}; {names}): the loss or a gradient is not finite. The last "
            "checkpoint was saved before it. Check these items, lower optim.lr, or set precision to float32"
        )

    def state(self) -> State:
        """Everything needed to resume; waits for the device. Raises Diverged if the weights are not worth keeping."""
        loss, bad_step, adam_steps = TrainingStatus(self.learner).wait()
        self._check_finite(bad_step)
        if adam_steps == 0 and self.step == self.total_steps:
            # So few steps that the loss scale never fell to 1: the weights are still the initial ones.
            self._check_finite(self.step - 1)
        device = self.learner.device
        progress: dict[str, Any] = {
            "config": self.config.to_json(),
            "num_items": self.sampler.num_items,
            "random": {name: self.group.gather(state, device) for name, state in random_states(device).items()},
            "scaler": self.learner.scaler.state_dict(),
            "loss": loss,
            "curve": self.curve,
            "measures": self.measures,
            "seconds": self.elapsed,
        }
        return State(self.step, self.learner.model.state_dict(), self.learner.adam_state(), progress)

    def load(self, state: State) -> None:
        """Resume from a state."""
        progress = state.progress
        if progress["num_items"] != self.sampler.num_items:
            raise ValueError(
                f"the checkpoint belongs to a run with {progress['num_items']} training items, but the data have "
                f"{self.sampler.num_items}; resume the run with its own data"
            )
        self.learner.load(state.model, state.optimizer, state.step)
        # Sums are over all processes, so only one of them starts from the stored sum.
        self.learner.loss_sum.fill_(progress["loss"] if self.group.is_main else 0.0)
        if progress["scaler"]:
            self.learner.scaler.load_state_dict(progress["scaler"])
        self.step, self.seconds = state.step, progress["seconds"]
        self.curve = _points(progress["curve"])
        self.measures = {name: _points(curve) for name, curve in progress["measures"].items()}
        rank = self.group.rank
        states = {name: states[rank] for name, states in progress["random"].items() if len(states) > rank}
        if "cpu" in states:
            set_random_states(states, self.learner.device)


def prefix_metrics(split: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as records and curves name them: ``accuracy_pct`` for the test, ``validation_accuracy_pct``."""
    return {name if split == "test" else f"{split}_{name}": value for name, value in metrics.items()}


def _points(curve: Any) -> list[tuple[int, float]]:
    return [(int(epoch), float(value)) for epoch, value in curve]
