"""Does batch normalization hold GIN-0 back? Its running statistics against those of all training batches.

Trains GIN-0 of the paper's Table 2, and after every epoch measures its accuracy on validation items twice: with the
running statistics, an average over the last few batches, and with the statistics that ``--set recalibrate=true``
computes, the mean over all training batches. Training itself is the same for both. The test set is not used.

    python docs/analyze_recalibration.py [--schedule short] [--items 12800] [-o results/analysis/recalibration.json]
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

from geoskip.cli.console import print_table
from geoskip.paper.experiments import TABLE2, VALIDATED
from geoskip.paper.findings import AnalysisRecord, write_analysis
from geoskip.paper.running import loaded
from geoskip.training.config import Config, override
from geoskip.training.devices import arithmetic, choose_device, device_name
from geoskip.training.loop import commit
from geoskip.training.session import Session
from geoskip.training.tasks import Task, make_task

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
    data = loaded(config.task, config.data)
    with arithmetic(config):
        task = make_task(override(config, ["recalibrate=true"]), data=data).to(choose_device(config.device))
        session = Session(config, task)
        model = session.learner.model
        for epoch in range(1, config.optim.epochs + 1):
            while session.epoch < epoch:
                session.advance()
            *_, (_, metrics) = session.epoch_metrics(wait=True)
            task.epoch = epoch
            accuracies = [_accuracy(task, model)]
            with unchanged(model):
                task.after_training(model)
                accuracies.append(_accuracy(task, model))
            model.train()
            yield RecalibrationPoint(config.seed, epoch, metrics["loss"], metrics["lr"], *accuracies)


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
    parser.add_argument("-o", "--output", type=Path, help="write the record to this file")
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
    last = [point for point in points if point.epoch == config.optim.epochs]
    lines = [(str(p.seed), f"{p.loss:.4f}", f"{p.running_pct:.2f}", f"{p.recalibrated_pct:.2f}") for p in last]
    print_table(("seed", "loss", "running, %", "recalibrated, %"), lines, title="GIN-0 on validation items, last epoch")
    if args.output is not None:
        optim = config.optim
        settings = {"schedule": args.schedule, "epochs": optim.epochs, "batch_size": optim.batch_size}
        settings |= {"items": args.items, "seeds": args.seeds, "data": args.data, "coarsening": dict(config.coarsening)}
        rows, seconds = [asdict(point) for point in points], time.perf_counter() - started
        device = device_name(torch.device(choose_device(args.device)))
        key = getattr(loaded(config.task, config.data), "content", "")
        record = AnalysisRecord("recalibration", settings, rows, seconds, device, commit=commit(), data_key=key)
        write_analysis(args.output, record)


if __name__ == "__main__":
    main()
