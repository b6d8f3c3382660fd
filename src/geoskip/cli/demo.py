"""``geoskip demo``: MoNet with and without skips, trained on faces in a few minutes."""

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import typer

from geoskip.cli.console import print_table
from geoskip.cli.options import AsJson
from geoskip.registry import check_choice


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per model.")] = 1,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 10,
    data: Annotated[str, typer.Option(help="faces, spheres, or auto: faces if they can be generated.")] = "auto",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for runs and pictures.")] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Generate faces, train MoNet, Res-MoNet and Aff-MoNet on them, compare them, and write a page with the results."""
    from geoskip.paper.demo_runs import demo_runs, demo_set, write_demo_pictures
    from geoskip.records.samples import read_samples
    from geoskip.report.page import Page, write_report
    from geoskip.report.runs import find_runs
    from geoskip.training.progress import choose_progress
    from geoskip.training.run import SAMPLES

    check_choice("data", data, ("faces", "spheres", "auto"))
    what = "spheres" if data == "spheres" else "faces, which takes about two minutes the first time"
    typer.echo(f"Generating {what}.", err=True)
    generated = demo_set(data)
    if generated.note:
        typer.echo(generated.note, err=True)
    runs: list[dict[str, Any]] = []
    for run in demo_runs(generated.shapes, output, seeds, epochs, choose_progress):
        record = run.record
        entries = {"name": record.name, "skip": run.config.skip, "seed": record.seed, "params": record.parameters}
        figures = {"error_mm": record.metrics["mean_mm"], "seconds": record.seconds}
        runs.append({**entries, **figures, "folder": str(run.folder)})
        message = f"{record.name}, seed {record.seed}: {figures['error_mm']:.2f} mm after {record.seconds:.0f} s"
        typer.echo(message, err=True)
    first: Any = {run["name"]: read_samples(Path(run["folder"]) / SAMPLES) for run in runs if run["seed"] == 0}
    pictures, largest = write_demo_pictures(output / "pictures", first)
    page = Page("geoskip: the demo", (), ())
    report = write_report(find_runs([output]).runs, output / "report", page, figures=False).page
    if as_json:
        typer.echo(json.dumps(runs, indent=1))
        return
    _show_table(runs, f"Autoencoders of {generated.about}", seeds, epochs)
    errors = {(run["skip"], run["seed"]): run["error_mm"] for run in runs}
    better = sum(errors["affine", seed] < errors["none", seed] for seed in range(seeds))
    typer.echo(f"Aff-MoNet beats MoNet with {better} of {seeds} {'seeds' if seeds > 1 else 'seed'}.")
    typer.echo(f"Input, reconstruction, and error up to {largest:.1f} mm, of four test shapes:")
    for path in pictures:
        typer.echo(f"  {path}")
    typer.echo(f"Interactive page: {report}")


def _show_table(runs: list[dict[str, Any]], title: str, seeds: int, epochs: int) -> None:
    rows = []
    for name in dict.fromkeys(run["name"] for run in runs):
        same = [run for run in runs if run["name"] == name]
        errors = [run["error_mm"] for run in same]
        spread = f" ± {stdev(errors):.2f}" if seeds > 1 else ""
        seconds = fmean(run["seconds"] for run in same)
        rows.append((name, f"{same[0]['params']:,}", f"{fmean(errors):.2f}{spread}", f"{seconds:.0f}"))
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    header = ("method", "parameters", "error, mm", "time, s")
    print_table(header, rows, title=title, caption=f"{over}; {epochs} epochs on one CPU thread")
