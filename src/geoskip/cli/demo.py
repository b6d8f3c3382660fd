"""``geoskip demo``: MoNet with and without skips, trained on faces in a few minutes."""

import json
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def demo(
    seeds: Annotated[int, typer.Option(help="Number of runs per model.")] = 1,
    epochs: Annotated[int, typer.Option(help="Passes over the training shapes.")] = 10,
    data: Annotated[str, typer.Option(help="faces, spheres, or auto: faces if they can be generated.")] = "auto",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for runs and pictures.")] = Path("runs/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print every run as JSON.")] = False,
) -> None:
    """Generate faces, train MoNet, Res-MoNet and Aff-MoNet on them, compare them, and write a page with the results."""
    from geoskip.paper.demo import demo_runs, demo_set, write_demo_pictures
    from geoskip.training.progress import choose_progress

    for name, value in (("seeds", seeds), ("epochs", epochs)):
        if value < 1:
            raise ValueError(f"{name}: need at least 1, got {value}")
    _say("Making faces; the first time takes about two minutes." if data != "spheres" else "Making spheres.")
    made = demo_set(data)
    if made.note is not None:
        _say(made.note)
    runs = []
    for run in demo_runs(made, output, seeds, epochs, choose_progress):
        runs.append(run)
        _say(f"{run.name}, seed {run.seed}: {run.error_mm:.2f} mm after {run.seconds:.0f} s")
    first = {run.name: run.samples() for run in runs if run.seed == 0}
    pictures, high = write_demo_pictures(output / "pictures", first)
    page = _page(output)
    if as_json:
        typer.echo(json.dumps([asdict(run) | {"folder": str(run.folder)} for run in runs], indent=1))
        return
    console = Console()
    console.print(_table(runs, made.about, seeds, epochs))
    console.print(_verdict(runs, seeds))
    console.print(f"Input, reconstruction, and error up to {high:.1f} mm, of four test shapes:", *pictures, sep="\n  ")
    console.print(f"All of it, with meshes that turn: {page}", soft_wrap=True)


def _page(folder: Path) -> Path:
    """The report of the demo's runs."""
    from geoskip.report.page import Page, write_report
    from geoskip.report.runs import find_runs

    page = Page("geoskip: the demo", (), ())
    return write_report(find_runs([folder]).runs, folder / "report", page, figures=False).page


def _table(runs: list[Any], about: str, seeds: int, epochs: int) -> Table:
    spread = f"mean ± standard deviation over {seeds} seeds; " if seeds > 1 else "one seed; "
    table = Table(
        title=f"Autoencoders of {about}",
        caption=f"{spread}{epochs} epochs on one CPU thread",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method")
    for column in ("parameters", "error, mm", "time, s"):
        table.add_column(column, justify="right")
    for name in dict.fromkeys(run.name for run in runs):
        same = [run for run in runs if run.name == name]
        error, seconds = _with_spread([run.error_mm for run in same]), fmean(run.seconds for run in same)
        table.add_row(name, f"{same[0].params:,}", error, f"{seconds:.0f}")
    return table


def _with_spread(values: list[float]) -> str:
    """Mean ± standard deviation, where there are several."""
    centre = fmean(values)
    if len(values) == 1:
        return f"{centre:.2f}"
    variance = sum((value - centre) ** 2 for value in values) / (len(values) - 1)
    return f"{centre:.2f} ± {variance**0.5:.2f}"


def _verdict(runs: list[Any], seeds: int) -> str:
    errors = {(run.skip, run.seed): run.error_mm for run in runs}
    better = sum(errors["affine", seed] < errors["none", seed] for seed in range(seeds))
    return f"Aff-MoNet beats MoNet with {better} of {seeds} {'seeds' if seeds > 1 else 'seed'}."


def _say(line: str) -> None:
    """Print a status line to standard error."""
    typer.echo(line, err=True)
