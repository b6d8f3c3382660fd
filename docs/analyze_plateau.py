"""Why does FeaStNet stay at 11.35 % on superpixels, the share of the most frequent digit?

Trains FeaStNet for a few epochs as in the paper's Table 2, and variants with one difference each: no weight decay,
larger initial weights, skips. After every epoch it measures the loss, the accuracy on validation items, and how much
the outputs (logits) differ between graphs. The test set is not used.

    python docs/analyze_plateau.py [--epochs 6] [--items 12800] -o results/analysis/plateau.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from geoskip.operators import FeaStConv
from geoskip.paper.experiments import TABLE2, VALIDATED
from geoskip.paper.findings import record_analysis
from geoskip.paper.measures import trained_epochs
from geoskip.paper.running import loaded
from geoskip.training.config import Config, override
from geoskip.training.devices import choose_device, device_name
from geoskip.training.tasks.classification import Classification

MEASURED = 960  # graphs whose logits are compared


@dataclass(frozen=True)
class Variant:
    """A row of Table 2, other settings, and a factor for the initial Θ, attention vectors and offsets of FeaStNet."""

    row: str
    settings: tuple[str, ...] = ()
    factor: float = 1.0


VARIANTS = {
    "as in the paper": Variant("FeaStNet"),
    "no weight decay": Variant("FeaStNet", ("optim.weight_decay=0.0",)),
    "initial weights × 3": Variant("FeaStNet", factor=3.0),
    "initial weights × 10": Variant("FeaStNet", factor=10.0),
    "residual skips": Variant("Res-FeaStNet"),
    "affine skips": Variant("Aff-FeaStNet"),
}


@dataclass(frozen=True)
class PlateauPoint:
    """The state after ``epoch`` epochs; 0 is the initial state, whose loss is not known.

    spread: standard deviation of the logits over the graphs, root mean square over the classes.
    weights: root mean square of Θ, over all layers.
    """

    variant: str
    epoch: int
    loss: float | None
    accuracy_pct: float
    spread: float
    weights: float


def plateau_curve(name: str, config: Config, factor: float = 1.0) -> Iterator[PlateauPoint]:
    """Train a configuration with scaled initial weights; the state at the start and after every epoch."""
    for epoch, task, model, metrics in trained_epochs(config):
        assert isinstance(task, Classification)
        if epoch == 0:
            scale_weights(model, factor)
        yield PlateauPoint(name, epoch, metrics.get("loss"), *_measured(task, model))


def scale_weights(model: nn.Module, factor: float) -> None:
    """Multiply everything that FeaStNet's layers draw from N(0, 0.1)."""
    with torch.no_grad():
        for conv in _convolutions(model):
            for parameter in (conv.theta, conv.attention, conv.offset):
                parameter.mul_(factor)


def _measured(task: Classification, model: nn.Module) -> tuple[float, float, float]:
    accuracy = task.evaluate(model, "validation").metrics["accuracy_pct"]
    store = task.split_store("validation")
    model.eval()
    with torch.inference_mode():
        batches = torch.arange(min(MEASURED, len(store)), device=task.device).split(task.config.optim.batch_size)
        packed = (store.batch(items) for items in batches)
        logits = torch.cat([model(batch.x, batch.graphs) for batch in packed]).double()
        thetas = torch.cat([conv.theta.flatten() for conv in _convolutions(model)]).double()
    return accuracy, float(logits.var(0, correction=0).mean().sqrt()), float(thetas.square().mean().sqrt())


def _convolutions(model: nn.Module) -> list[FeaStConv]:
    return [module for module in model.modules() if isinstance(module, FeaStConv)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Why FeaStNet does not learn superpixels.")
    parser.add_argument("--epochs", type=int, default=6, help="of the paper's schedule")
    parser.add_argument("--items", type=int, help="number of training graphs; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="superpixels", help="the data set, or tiny")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("-o", "--output", type=Path, required=True, help="write the record to this file")
    args = parser.parse_args(arguments)
    started, points = time.perf_counter(), list[PlateauPoint]()
    validated = [f"{name}={value}" for name, value in VALIDATED.items()]
    for name, variant in VARIANTS.items():
        (row,) = TABLE2.select([variant.row])
        config = row.config(args.data, f"first{args.epochs}", args.seed, args.device)
        config = override(config, [*validated, f"train_items={args.items}", *variant.settings])
        points += plateau_curve(name, config, variant.factor)
        last = points[-1]
        print(f"{name}: loss {last.loss:.4f}, accuracy {last.accuracy_pct:.2f} %, spread {last.spread:.2g}", flush=True)
    settings = {"epochs": args.epochs, "items": args.items, "seed": args.seed, "data": args.data}
    device = device_name(torch.device(choose_device(args.device)))
    rows, key = [asdict(point) for point in points], getattr(loaded(config), "content", "")
    record_analysis(args.output, "plateau", settings, rows, started, device=device, data_key=key)


if __name__ == "__main__":
    main()
