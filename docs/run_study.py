"""The study behind what-skips-learn.md: trains autoencoders of generated faces with and without skips, measures all.

    python docs/run_study.py -o runs/study [--operator monet=9 …] [--seeds 3] [--epochs 300] …

Every operator is trained with every skip and seed on the same items. Networks of one operator and seed start with the
same convolutions and differ only in their skips. Finished runs are not trained again, so the command can be interrupted
and repeated. The records smoothness.json, shares.json and parts.json go to results/analysis.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from geoskip.data import MeshSet
from geoskip.paper.findings import AnalysisRecord, write_analysis
from geoskip.paper.measures import COARSE_FACES, DEFAULT_SAMPLES, run_parts, run_shares, run_smoothness, start_alike
from geoskip.paper.rows import SKIPS
from geoskip.paper.small_sets import coarse_faces
from geoskip.records.samples import write_samples
from geoskip.training.config import Config, resolve
from geoskip.training.loop import commit, train
from geoskip.training.tasks import make_task

# Operators whose filters are functions, so that their smoothness can be measured.
MEASURABLE = ("monet", "spline", "cheb")
NUM_CHECKPOINTS = 10  # at equal distances, for the shares over training
Row = dict[str, Any]


def operators(given: Sequence[str]) -> dict[str, int]:
    """Kernel sizes of operators that are written as ``monet=9``."""
    pairs = [text.partition("=") for text in given]
    for name, _, size in pairs:
        if name not in MEASURABLE:
            raise ValueError(f"operator: {name} has no filter to measure; choose from {', '.join(MEASURABLE)}")
        if not size.isdigit():
            raise ValueError(f"operator: {name} needs a kernel size, such as {name}=9")
    return {name: int(size) for name, _, size in pairs}


def configs(args: argparse.Namespace, num_items: int) -> dict[str, Config]:
    """A configuration for each run, by the name of its folder."""
    used = min(args.train_items or num_items, num_items)
    steps = args.epochs * -(-used // args.batch_size)
    return {
        f"{operator}-{skip}-{seed}": resolve(
            "reconstruction",
            data=COARSE_FACES,
            data_options={"factors": args.coarse},
            operator=operator,
            kernel_size=size,
            skip=skip,
            seed=seed,
            optim={"epochs": args.epochs, "batch_size": args.batch_size},
            train_items=args.train_items,
            test_items=args.test_items,
            device=args.device,
            model={"channels": args.channels} if args.channels else {},
            checkpoint_every=max(1, steps // NUM_CHECKPOINTS),
            keep=NUM_CHECKPOINTS + 1,
        )
        for operator, size in operators(args.operator).items()
        for skip in SKIPS
        for seed in range(args.seeds)
    }


def measured(chosen: dict[str, Config], data: MeshSet, folder: Path) -> Iterator[tuple[str, Row, list[Row], list[Row]]]:
    """Train what is not trained yet, one run after the other: its name, device and roughness, shares and parts."""
    for name, config in chosen.items():
        task = start_alike(make_task(config, data=data))
        run = train(config, folder / name, task=task)
        row = run_smoothness(run, task) | {"metrics": dict(run.record.metrics)}
        shares: list[Row] = []
        parts: list[Row] = []
        if config.skip != "none":
            parts, shapes = run_parts(run, min(DEFAULT_SAMPLES, task.num_test), task)
            write_samples(folder / name / "parts.safetensors", shapes)
            shares = run_shares(run, task=task)
        print(f"{name}: {run.record.metrics['mean_mm']:.3f} mm", flush=True)
        named = [[{"run": name, **one} for one in rows] for rows in (shares, parts)]
        yield run.record.device, row, named[0], named[1]


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train and measure autoencoders with and without skips.")
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, help="folder that keeps the runs")
    add("--records", type=Path, default=Path("results/analysis"), help="folder for the records")
    add("--operator", action="append", help="such as monet=9, name and M; may be repeated")
    add("--seeds", type=int, default=3, help="runs of each method")
    add("--epochs", type=int, default=300, help="passes over the training items")
    add("--train-items", type=int, help="number of training items; by default all")
    add("--test-items", type=int, help="number of test items; by default all")
    add("--batch", dest="batch_size", type=int, default=32, help="items per step")
    add("--coarse", type=numbers, default=[], help="coarsen the faces by these factors, such as 4,2")
    add("--channels", type=numbers, help="of the encoder, such as 16,16,32; by default the paper's")
    add("--device", default="auto", help="cpu, cuda, or auto")
    args = parser.parse_args(arguments)
    args.operator = args.operator or ["monet=9", "spline=3", "cheb=6"]
    started, data = time.perf_counter(), coarse_faces(args.coarse)
    devices, roughness, shares, parts = zip(
        *measured(configs(args, len(data.split.train)), data, args.output), strict=True
    )
    settings = {name: value for name, value in vars(args).items() if name not in ("output", "records")}
    settings["vertices"] = data.template.num_vertices
    by_analysis = {"smoothness": roughness, "shares": [*chain(*shares)], "parts": [*chain(*parts)]}
    for analysis, rows in by_analysis.items():
        seconds, device = time.perf_counter() - started, ", ".join(sorted(set(devices)))
        record = AnalysisRecord(analysis, settings, rows, seconds, device, commit=commit(), data_key=data.content)
        write_analysis(args.records / f"{analysis}.json", record)


if __name__ == "__main__":
    main()
