"""The run: losses compared over some steps, then a step timed, ours and the peer's side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.measure_blocks import TRIAL_SECONDS, failed, with_ratios
from benchmarks.measurements import Row
from benchmarks.timing import release, time_steps
from benchmarks.training.trainers import Trainer, Way, losses, ours, peer, ways
from benchmarks.training.trainings import Run, Training
from geoskip.training.config import Config
from geoskip.training.devices import arithmetic
from geoskip.training.tasks import Task, make_task

# Float32 over 20 steps: Adam turns the rounding of gradients near 0 into whole steps.
LOSS_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Settings:
    """How to measure: where, how long each is timed, over how many steps losses are compared."""

    device: torch.device
    seconds: float = 1.0
    steps: int = 20


def measure_training(
    training: Training, operators: Sequence[str], skips: Sequence[bool], settings: Settings
) -> Iterator[Row]:
    """All rows of a task."""
    data = training.make_data()
    for operator in operators:
        for skip in skips:
            yield from with_ratios(_measure(Run(training, operator, skip), data, settings))
            release(settings.device)


def _measure(run: Run, data: Any, settings: Settings) -> list[Row]:
    """Ours and the peer; ours has a time only where it trained as the peer did."""
    named = run.training.name, run.operator, run.slots, run.skip
    mine, theirs = Row(*named, "geoskip", ""), Row(*named, "PyG", "")
    compared, timed = (make_task(run.config(compared), data) for compared in (True, False))
    try:
        reference = _losses(lambda: peer(compared, settings.device, Way()), compared.config, settings)
        way, trials = fastest_way(timed, settings)
        theirs = replace(theirs, tried=trials)
        theirs = _timed(theirs, lambda: peer(timed, settings.device, way), timed.config, settings)
    except Exception as error:
        # A peer may raise anything at all; ours is measured nevertheless.
        reference, theirs = None, replace(theirs, problem=failed(error))
    mine = _compared(mine, lambda: ours(compared, settings.device), reference, compared.config, settings)
    if mine.problem is None:
        mine = _timed(mine, lambda: ours(timed, settings.device), timed.config, settings)
    return [mine, theirs]


def _compared(
    row: Row, make: Callable[[], Trainer], reference: list[float] | None, config: Config, settings: Settings
) -> Row:
    try:
        first, second = (_losses(make, config, settings) for _ in range(2))
    except Exception as error:
        return replace(row, problem=failed(error))
    row = replace(row, repeats=first == second)
    return row if reference is None else compare(row, first, reference)


def compare(row: Row, measured: Sequence[float], reference: Sequence[float], tolerance: float | None = None) -> Row:
    """With the largest relative difference of a loss from the reference; NaN never passes."""
    pairs = zip(measured, reference, strict=True)
    differences = [abs(mine - theirs) / abs(theirs) if math.isfinite(mine) else math.inf for mine, theirs in pairs]
    error = max(differences)
    row = replace(row, error=error, worst=f"loss of step {differences.index(error) + 1}")
    if error <= (LOSS_TOLERANCE if tolerance is None else tolerance):
        return row
    return replace(row, problem=f"other losses: {row.worst} is off by {error:.1e}")


def fastest_way(
    task: Task, settings: Settings, choices: Iterable[tuple[str, list[Any]]] | None = None
) -> tuple[Way, dict[str, float | None]]:
    """The peer's fastest way in short trials, one choice after the other, and the milliseconds of each way tried."""
    best, trials = Way(), dict[str, float]()
    for field, values in ways(task.config.task, settings.device) if choices is None else choices:
        times = {value: _trial(task, replace(best, **{field: value}), settings) for value in values}
        trials |= {replace(best, **{field: v}).text(task.config.task): t for v, t in times.items()}
        best = replace(best, **{field: min(times, key=times.__getitem__)})
    return best, {text: time if math.isfinite(time) else None for text, time in trials.items()}


def _trial(task: Task, way: Way, settings: Settings) -> float:
    """Milliseconds; infinitely many if it fails."""
    try:
        with arithmetic(task.config):
            trainer = peer(task, settings.device, way)
            return time_steps([trainer.step], settings.device, TRIAL_SECONDS, least=1).milliseconds
    except Exception:
        return math.inf
    finally:
        release(settings.device)


def _losses(make: Callable[[], Trainer], config: Config, settings: Settings) -> list[float]:
    with arithmetic(config):
        values = losses(make(), settings.steps)
    release(settings.device)
    return values


def _timed(row: Row, make: Callable[[], Trainer], config: Config, settings: Settings) -> Row:
    """Peak is all that training holds on the device: data, weights, moments, and a step."""
    try:
        with arithmetic(config):
            before = start_peak(settings.device)
            trainer = make()
            row = replace(row, path=trainer.path, call=trainer.call)
            timing = time_steps([trainer.step], settings.device, settings.seconds)
            peak = None if before is None else torch.cuda.max_memory_allocated(settings.device) - before
    except Exception as error:
        return replace(row, problem=failed(error))
    quartiles = timing.low, timing.high
    return replace(row, milliseconds=timing.milliseconds, quartiles=quartiles, samples=timing.samples, peak_bytes=peak)


def start_peak(device: torch.device) -> int | None:
    """Bytes in use; there is no such count on the CPU."""
    release(device)
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
