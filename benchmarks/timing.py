"""How long a step takes and how much memory it needs."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median, quantiles
from time import perf_counter

import torch

from benchmarks.cases import Contender, Step
from geoskip.kernels.branches import stream_to_capture
from geoskip.training.cuda_graphs import record_once

WARM_UP, MOST_SAMPLES, GROUP_SECONDS = 3, 100, 0.01


@dataclass(frozen=True)
class Timing:
    """Median and quartiles over ``samples``, in milliseconds a step."""

    milliseconds: float
    low: float
    high: float
    samples: int


def time_steps(steps: Sequence[Step], device: torch.device, seconds: float, least: int = 3) -> Timing:
    """Steps one after the other, over the sets of inputs in turn, for about ``seconds``, ``least`` times at least."""
    return _time_cuda(steps, seconds, least) if device.type == "cuda" else _time_cpu(steps, seconds, least)


def _time_cuda(steps: Sequence[Step], seconds: float, least: int) -> Timing:
    """Events around groups of steps, which follow each other as they do in training: launches count where they are
    what takes the time, and the start of the first one does not."""
    turn = cycle(steps)
    for step in islice(turn, max(WARM_UP, len(steps))):
        step()
    torch.cuda.synchronize()
    start = perf_counter()
    for step in islice(turn, WARM_UP):
        step()
    torch.cuda.synchronize()
    one = (perf_counter() - start) / WARM_UP
    size = max(1, round(GROUP_SECONDS / one))
    groups = min(max(least, int(seconds / (size * one))), MOST_SAMPLES)
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(groups)]
    for before, after in marks:
        before.record()
        for step in islice(turn, size):
            step()
        after.record()
    torch.cuda.synchronize()
    return _summary([before.elapsed_time(after) / size for before, after in marks])


def _time_cpu(steps: Sequence[Step], seconds: float, least: int) -> Timing:
    turn = cycle(steps)
    next(turn)()
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < least or (perf_counter() < end and len(times) < MOST_SAMPLES):
        step = next(turn)
        start = perf_counter()
        step()
        times.append(1e3 * (perf_counter() - start))
    return _summary(times)


def peak_bytes(step: Step, device: torch.device) -> int | None:
    """Most memory that a step holds above what was allocated before it: inputs, parameters, graph.

    Of CUDA's allocator; there is no such count on the CPU.
    """
    if device.type != "cuda":
        return None
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def captured(contender: Contender) -> Contender:
    """The same steps as CUDA graphs; a step is then one replay. Its peak is what is in use during a capture."""
    aside = stream_to_capture()
    aside.wait_stream(torch.cuda.current_stream())
    with contender.on_path(), torch.cuda.stream(aside):
        # Beforehand on the same stream, so that no capture has to allocate the workspace of the matrix products.
        for _ in range(WARM_UP):
            contender.steps[0]()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        steps = [record_once(contender.steps[0])]
        peak = torch.cuda.max_memory_allocated() - before
        steps += [record_once(step) for step in contender.steps[1:]]
    torch.cuda.synchronize()
    call = f"{contender.call}, one CUDA graph a step"
    return Contender("captured", call, steps, contender.expected, peak_bytes=peak)


def release(device: torch.device) -> None:
    """Give back what earlier contenders held on the GPU."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _summary(times: list[float]) -> Timing:
    low, _, high = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    return Timing(median(times), low, high, len(times))
