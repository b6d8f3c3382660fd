"""Does batch normalization hold GIN-0 back? Its running statistics against those of all training batches.

Trains GIN-0 of the paper's Table 2, and after every epoch measures its accuracy on validation items twice: with the
running statistics, an average over the last few batches, and with the statistics that ``--set recalibrate=true``
computes, the mean over all training batches. Training itself is the same for both. The test set is not used.

    python docs/analyze_recalibration.py [--schedule short] [--items 12800] -o results/analysis/recalibration.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from geoskip.paper.experiments import TABLE2, VALIDATED
from geoskip.paper.findings import record_analysis
from geoskip.paper.measures import trained_epochs
from geoskip.paper.running import loaded
from geoskip.training.config import Config, override
from geoskip.training.devices import choose_device, device_name
from geoskip.training.tasks import Task

SEEDS = 3


@dataclass(frozen=True)
class RecalibrationPoint:
    """The state after an epoch.

    loss: the mean training loss of the epoch.
    rate: its learning rate.
    running_pct: validation accuracy with the running statistics.
    recalibrated_pct: with the statistics of all training batches.
    """

    seed: int
    epoch: int
    loss: float
    rate: float
    running_pct: float
    recalibrated_pct: float


def recalibration_curve(config: Config) -> Iterator[RecalibrationPoint]:
    """Train a configuration; the state after every epoch."""
    for epoch, task, model, metrics in trained_epochs(override(config, ["recalibrate=true"])):
        if epoch:
            running = _accuracy(task, model)
            with unchanged(model):
                task.after_training(model)
                recalibrated = _accuracy(task, model)
            yield RecalibrationPoint(config.seed, epoch, metrics["loss"], metrics["lr"], running, recalibrated)


def _accuracy(task: Task, model: nn.Module) -> float:
    return task.evaluate(model, "validation").metrics["accuracy_pct"]


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """The buffers of the model and torch's random numbers are afterwards as they were before."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng():
        yield
    for name, buffer in model.named_buffers():
        buffer.copy_(kept[name])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="GIN-0 with recalibrated batch normalization.")
    parser.add_argument("--schedule", default="short", help="as of geoskip reproduce")
    parser.add_argument("--items", type=int, help="number of training graphs; by default all")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of runs")
    parser.add_argument("--data", default="superpixels", help="the data set, or tiny")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("-o", "--output", type=Path, required=True, help="write the record to this file")
    args = parser.parse_args(arguments)
    started, points = time.perf_counter(), list[RecalibrationPoint]()
    validated = [f"{name}={value}" for name, value in VALIDATED.items()]
    (row,) = TABLE2.select(["GIN-0"])
    for seed in range(args.seeds):
        config = row.config(args.data, args.schedule, seed, args.device)
        for point in recalibration_curve(override(config, [*validated, f"train_items={args.items}"])):
            points.append(point)
            print(
                f"seed {seed}, epoch {point.epoch}: loss {point.loss:.4f}, running {point.running_pct:.2f} %, "
                f"recalibrated {point.recalibrated_pct:.2f} %",
                flush=True,
            )
    optim = config.optim
    settings = {"schedule": args.schedule, "epochs": optim.epochs, "batch_size": optim.batch_size}
    settings |= {"items": args.items, "seeds": args.seeds, "data": args.data, "coarsening": dict(config.coarsening)}
    device = device_name(torch.device(choose_device(args.device)))
    key = getattr(loaded(config), "content", "")
    record_analysis(args.output, "recalibration", settings, [asdict(point) for point in points], started, device, key)


if __name__ == "__main__":
    main()
