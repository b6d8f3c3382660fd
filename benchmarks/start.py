"""Time to the first training step in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

BEGAN = perf_counter()
PROGRAM, LOOP, PEER = "geoskip train", "geoskip, plain loop", "PyG"


def measure_starts(task: str, operator: str, device: str) -> Iterator[dict[str, Any]]:
    """The training program and a plain loop with Triton's cache empty and then filled, and PyTorch Geometric; each in a
    process of its own."""
    from benchmarks.training.plain_loop import LOOPS

    sides = [(side, state) for side in (PROGRAM, LOOP) for state in ("empty", "filled")]
    with tempfile.TemporaryDirectory() as folder:
        for side, state in [*sides, (PEER, "unused")]:
            if side == LOOP and task not in LOOPS:
                continue
            command = [sys.executable, "-m", "benchmarks.start", task, operator, device, side]
            environment = {**os.environ, "TRITON_CACHE_DIR": os.path.join(folder, side)}
            completed = subprocess.run(command, env=environment, capture_output=True, text=True)
            if completed.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{completed.stderr[-4000:]}")
            row = json.loads(completed.stdout.splitlines()[-1])
            yield {"task": task, "operator": operator, "side": side, "cache": state, **row}


def first_step(task: str, operator: str, device: str, side: str) -> dict[str, Any]:
    """Seconds of the imports with the start of CUDA; of the first step, from data in the CPU's memory on; of the next
    step; and, inside of the first, those of tracing and of compiling."""
    import torch

    from benchmarks.training.trainers import Way, ours, peer
    from benchmarks.training.trainings import TRAININGS, Run
    from geoskip.training import compiling
    from geoskip.training.devices import arithmetic, own_device
    from geoskip.training.tasks import make_task

    where = own_device(device)

    def wait() -> None:
        if where.type == "cuda":
            torch.cuda.synchronize()

    torch.zeros(1, device=where)
    wait()
    imports = perf_counter() - BEGAN
    inside: dict[str, Any] = {"trace": 0.0, "compile": 0.0, "kernels": 0}
    for name, times in (("traced_launches", "trace"), ("model_launches", "trace"), ("compile_traced", "compile")):
        setattr(compiling, name, _timed(getattr(compiling, name), inside, times))
    training = TRAININGS[task]
    run = Run(training, operator, True)
    prepared = make_task(run.config(False), training.make_data())
    with arithmetic(prepared.config):
        began = perf_counter()
        if side == LOOP:
            step = _step_of_a_loop(prepared, where)
        else:
            step = (ours(prepared, where) if side == PROGRAM else peer(prepared, where, Way())).step
        step()
        wait()
        first = perf_counter() - began
        step()
        wait()
    inside["compile"] -= inside["trace"]
    return {"imports": imports, "first_step": first, "second_step": perf_counter() - began - first, **inside}


def _step_of_a_loop(task: Any, device: Any) -> Callable[[], Any]:
    """With geoskip.compile_ahead."""
    from torch import nn

    import geoskip
    from benchmarks.training.plain_loop import make_step, our_loop

    loop = our_loop(task, device)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = loop.model

        def forward(self, *batch: Any) -> Any:
            return loop.loss(self.model, *batch)

    geoskip.compile_ahead(Loss(), *loop.batches[0])
    return make_step(loop, "geoskip", task)


def _timed(function: Callable[..., list[Any]], times: dict[str, Any], name: str) -> Callable[..., list[Any]]:
    def timed(*arguments: Any) -> list[Any]:
        began = perf_counter()
        result = function(*arguments)
        times[name] += perf_counter() - began
        if name == "compile":
            times["kernels"] += len(result)
        return result

    return timed


if __name__ == "__main__":
    print(json.dumps(first_step(*sys.argv[1:])))
