"""The run: losses compared over some steps, then a step timed, ours and the peer's side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from geoskip.bench.records import Row
from geoskip.bench.run import TRIAL_SECONDS, failed, with_ratios
from geoskip.bench.timing import release, time_steps
from geoskip.bench.training.trainers import Trainer, Way, losses, ours, peer, ways
from geoskip.bench.training.workloads import Run, Training, tf32
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
        reference = _losses(lambda: peer(compared, settings.device, Way()), settings, allowed=False)
        way, trials = fastest_way(timed, settings, run.training.tf32)
        theirs = replace(theirs, tried=trials)
        theirs = _timed(theirs, lambda: peer(timed, settings.device, way), settings, run.training.tf32)
    except Exception as error:
        # A peer may raise anything at all; ours is measured nevertheless.
        reference, theirs = None, replace(theirs, problem=failed(error))
    mine = compare(mine, lambda: ours(compared, settings.device), reference, settings)
    if mine.problem is None:
        mine = _timed(mine, lambda: ours(timed, settings.device), settings, run.training.tf32)
    return [mine, theirs]


def compare(row: Row, make: Callable[[], Trainer], reference: list[float] | None, settings: Settings) -> Row:
    """With the largest relative difference of a loss from the reference, and whether two runs agree bitwise."""
    first, second = (_losses(make, settings, allowed=False) for _ in range(2))
    row = replace(row, repeats=first == second)
    if reference is None:
        return row
    differences = [abs(a - b) / abs(b) if math.isfinite(a) else math.inf for a, b in zip(first, reference, strict=True)]
    worst = max(range(len(differences)), key=differences.__getitem__)
    row = replace(row, error=differences[worst], worst=f"loss of step {worst + 1}")
    if row.error is not None and row.error <= LOSS_TOLERANCE:
        return row
    return replace(row, problem=f"other losses: {row.worst} is off by {differences[worst]:.1e}")


def fastest_way(task: Task, settings: Settings, allowed: bool) -> tuple[Way, dict[str, float | None]]:
    """The peer's fastest way in short trials, one choice after the other, and the milliseconds of each way tried."""
    best, trials = Way(), dict[str, float]()
    for field, values in ways(task.config.task, settings.device):
        times = {value: _trial(task, replace(best, **{field: value}), settings, allowed) for value in values}
        trials |= {replace(best, **{field: v}).text(task.config.task): t for v, t in times.items()}
        best = replace(best, **{field: min(times, key=times.__getitem__)})
    return best, {text: time if math.isfinite(time) else None for text, time in trials.items()}


def _trial(task: Task, way: Way, settings: Settings, allowed: bool) -> float:
    """Milliseconds; infinitely many if it fails."""
    try:
        with tf32(allowed):
            trainer = peer(task, settings.device, way)
            return time_steps([trainer.step], settings.device, TRIAL_SECONDS, least=1).milliseconds
    except Exception:
        return math.inf
    finally:
        release(settings.device)


def _losses(make: Callable[[], Trainer], settings: Settings, allowed: bool) -> list[float]:
    with tf32(allowed):
        found = losses(make(), settings.steps)
    release(settings.device)
    return found


def _timed(row: Row, make: Callable[[], Trainer], settings: Settings, allowed: bool) -> Row:
    """Peak is all that training holds on the device: data, weights, moments, and a step."""
    try:
        with tf32(allowed):
            before = _start_peak(settings.device)
            trainer = make()
            row = replace(row, path=trainer.path, call=trainer.call)
            timing = time_steps([trainer.step], settings.device, settings.seconds)
            peak = None if before is None else torch.cuda.max_memory_allocated(settings.device) - before
    except Exception as error:
        return replace(row, problem=failed(error))
    quartiles = timing.low, timing.high
    return replace(row, milliseconds=timing.milliseconds, quartiles=quartiles, samples=timing.samples, peak_bytes=peak)


def _start_peak(device: torch.device) -> int | None:
    """Bytes in use; there is no such count on the CPU."""
    release(device)
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
