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


def measure_starts(task: str, operator: str, device: str) -> Iterator[dict[str, Any]]:
    """geoskip with Triton's cache empty and then filled, and PyTorch Geometric; each in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        for side, state in (("geoskip", "empty"), ("geoskip", "filled"), ("PyG", "unused")):
            command = [sys.executable, "-m", "benchmarks.start", task, operator, device, side]
            environment = {**os.environ, "TRITON_CACHE_DIR": cache}
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
    from geoskip.training import compiling, session
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
    compiling.traced_launches = _timed(compiling.traced_launches, inside, "trace")
    session.compile_step = _timed(session.compile_step, inside, "compile")
    training = TRAININGS[task]
    run = Run(training, operator, True)
    prepared = make_task(run.config(False), training.make_data())
    with arithmetic(prepared.config):
        began = perf_counter()
        trainer = ours(prepared, where) if side == "geoskip" else peer(prepared, where, Way())
        trainer.step()
        wait()
        first = perf_counter() - began
        trainer.step()
        wait()
    inside["compile"] -= inside["trace"]
    return {"imports": imports, "first_step": first, "second_step": perf_counter() - began - first, **inside}


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
