"""The study behind what-skips-learn.md: trains autoencoders of generated faces with and without skips, measures all.

    python docs/run_study.py -o runs/study --jobs 9

Every operator is trained with every skip and seed on the same items, at the paper's size. Networks of one operator and
seed start with the same convolutions and differ only in their skips. Every run is measured when it is trained, and its
checkpoints are then removed; ``runs/study/NAME.json`` has the results. Runs that have results are skipped and
interrupted ones resume, so the command can be repeated.

The records smoothness.json, shares.json and parts.json go to results/analysis. ``--set`` changes any setting of the
runs. A study for a CPU:

    python docs/run_study.py -o runs/small --data geoskip.paper.small_sets:coarse_faces --schedule first20 \\
      --set data_options.factors=[4,2] --set model.channels=[16,16,32] --set optim.batch_size=16 \\
      --set train_items=320 --set test_items=64
"""

import argparse
import json
import shutil
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from geoskip.paper.findings import AnalysisRecord, write_analysis
from geoskip.paper.measures import run_parts, run_progress, run_shares, run_smoothness
from geoskip.paper.parallel import ask_side_by_side, be_worker
from geoskip.paper.rows import SKIPS, shortened
from geoskip.paper.running import config_key, loaded
from geoskip.records.files import atomic_write
from geoskip.records.reading import read_json
from geoskip.training.config import Config, override, resolve
from geoskip.training.devices import choose_device
from geoskip.training.loop import train
from geoskip.training.progress import Lines
from geoskip.training.signals import Interrupted
from geoskip.training.tasks import make_task

TASK = "geoskip.paper.measures:PairedReconstruction"
# Operators whose filters are functions, so that their smoothness can be measured.
MEASURABLE = ("monet", "cheb", "spline")
NUM_CHECKPOINTS = 12
# Test items whose decodings are measured.
NUM_DECODED = 100
Results = dict[str, Any]


def operators(given: Sequence[str]) -> dict[str, int]:
    """Kernel sizes of operators that are written as ``monet=9``."""
    pairs = [text.partition("=") for text in given]
    for name, _, size in pairs:
        if name not in MEASURABLE:
            raise ValueError(f"operator: {name} has no filter to measure; choose from {', '.join(MEASURABLE)}")
        if not size.isdigit():
            raise ValueError(f"operator: {name} needs a kernel size, such as {name}=9")
    return {name: int(size) for name, _, size in pairs}


def configs(args: argparse.Namespace) -> dict[str, Config]:
    """A configuration for each run, by its name, such as ``monet-affine-0``."""
    chosen = {
        f"{operator}-{skip}-{seed}": resolve(
            TASK, data=args.data, operator=operator, kernel_size=size, skip=skip, seed=seed, device=args.device
        )
        for operator, size in operators(args.operator).items()
        for seed in range(args.seeds)
        for skip in SKIPS
    }
    return {name: shortened(override(config, args.set), args.schedule) for name, config in chosen.items()}


def measured_epochs(epochs: int, count: int = NUM_CHECKPOINTS) -> list[int]:
    """Up to ``count`` epochs at equal ratios, from the first to the last: the loss falls fast at first."""
    return sorted({round(epochs ** (k / (count - 1))) for k in range(count)})


def measured_run(config: Config, folder: Path) -> Results:
    """Train a run, unless it is trained, and measure it: its results as plain JSON.

    ValueError if it is trained and its checkpoints are gone: without them, roughness at a loss would be a guess.
    """
    data = loaded(config)
    task = make_task(config, data=data)
    epoch, epochs = config.optim.steps_per_epoch(task.num_items), config.optim.epochs
    run = train(replace(config, checkpoint_every=epoch, keep=epochs + 1), folder, task=task, progress=Lines())
    started, record = time.perf_counter(), run.record
    steps = [epoch * number for number in measured_epochs(epochs)]
    task = task.to(choose_device(config.device))
    progress = run_progress(run, task, steps)
    if [point["step"] for point in progress] != [0, *steps]:
        raise ValueError(f"{folder}: the run has lost its checkpoints; remove the folder to train it again")
    roughness = {**run_smoothness(run, task), "metrics": dict(record.metrics), "progress": progress}
    shares, parts = list[Results](), list[Results]()
    if config.skip != "none":
        shares = run_shares(run, task=task, steps=steps)
        parts, _ = run_parts(run, min(NUM_DECODED, task.num_test), task)
    return {
        "config": config.to_json(),
        "vertices": data.template.num_vertices,
        "data_key": record.data_key,
        "device": record.device,
        "versions": dict(record.versions),
        "commit": record.commit,
        "seconds": {"training": record.seconds, "measuring": time.perf_counter() - started},
        "smoothness": roughness,
        "shares": shares,
        "parts": parts,
    }


def answer(request: Mapping[str, Any], out: Path) -> str:
    """Do one run and write its results; the error message, or nothing."""
    name, config = request["name"], Config.from_json(request["config"])
    try:
        results = measured_run(config, out / name) | {"jobs": request["jobs"]}
        atomic_write(out / f"{name}.json", json.dumps(results, allow_nan=False).encode())
        shutil.rmtree(out / name / "checkpoints", ignore_errors=True)
    except Interrupted:
        raise
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def stored_results(name: str, config: Config, out: Path) -> Results | None:
    """The results of a run; None if there are none, or if they were made with other settings."""
    path = out / f"{name}.json"
    results = read_json(path) if path.is_file() else None
    same = results is not None and config_key(Config.from_json(results["config"])) == config_key(config)
    return results if same else None


def write_records(results: Mapping[str, Results], settings: Mapping[str, Any], folder: Path) -> None:
    """The three records of a study. Their seconds are those of the device: runs that share it share its time."""
    first = next(iter(results.values()))
    rows = {
        "smoothness": [run["smoothness"] for run in results.values()],
        **{
            analysis: list(chain(*([{"run": name, **row} for row in run[analysis]] for name, run in results.items())))
            for analysis in ("shares", "parts")
        },
    }
    for analysis, of_analysis in rows.items():
        record = AnalysisRecord(
            analysis,
            {**settings, "vertices": first["vertices"]},
            of_analysis,
            seconds=sum(sum(run["seconds"].values()) / run["jobs"] for run in results.values()),
            device=", ".join(sorted({run["device"] for run in results.values()})),
            versions=first["versions"],
            commit=", ".join(sorted({run["commit"] for run in results.values()})),
            data_key=first["data_key"],
        )
        write_analysis(folder / f"{analysis}.json", record)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train and measure autoencoders with and without skips.")
    add = parser.add_argument
    add("-o", "--output", type=Path, required=True, help="folder of the runs")
    add("--records", type=Path, default=Path("results/analysis"), help="folder of the records")
    add("--operator", action="append", help="such as monet=9, name and M; may be repeated")
    add("--seeds", type=int, default=3, help="runs of each method")
    add("--data", default="mixed-faces", help="data set, or path of a folder of meshes")
    add("--schedule", default="in60", help="full, short, or a number of epochs, such as first20 or in60")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of the runs; may be repeated")
    add("--jobs", type=int, default=1, help="runs at the same time")
    add("--device", default="auto", help="cpu, cuda, or auto")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.worker:
        be_worker(lambda request: answer(request, args.output))
        return 0
    args.operator = args.operator or ["monet=9", "cheb=9", "spline=3"]
    chosen = configs(args)
    missing = [name for name, config in chosen.items() if stored_results(name, config, args.output) is None]
    requests = [{"name": name, "config": chosen[name].to_json(), "jobs": args.jobs} for name in missing]
    command, failed = [sys.executable, __file__, "--worker", "-o", str(args.output)], 0
    if requests:
        with closing(ask_side_by_side(requests, args.output, args.jobs, command)) as answers:
            for number, fault in answers:
                failed += bool(fault)
                print(f"{missing[number]}: {fault or 'done'}", flush=True)
    results = {name: stored_results(name, config, args.output) for name, config in chosen.items()}
    complete = {name: run for name, run in results.items() if run is not None}
    if failed or len(complete) < len(chosen):
        print(f"{len(complete)} of {len(chosen)} runs have results; repeat the command for the others")
        return 1
    optim = next(iter(chosen.values())).optim
    given = ("operator", "seeds", "data", "schedule", "set", "jobs")
    settings = {name: getattr(args, name) for name in given}
    settings |= {"epochs": optim.epochs, "batch_size": optim.batch_size}
    settings["train_items"] = next(iter(chosen.values())).train_items
    write_records(complete, settings, args.records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
