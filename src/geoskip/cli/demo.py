"""``geoskip demo``: plain, residual and affine blocks side by side, in about a minute."""

import json
from dataclasses import asdict
from itertools import groupby
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

NAMES = {"gcn": "GCN", "monet": "MoNet"}
PREFIXES = {"none": "", "residual": "Res-", "affine": "Aff-"}


def demo(
    seeds: Annotated[int, typer.Option(help="How often each model is trained.")] = 3,
    epochs: Annotated[int, typer.Option(help="Passes over the training shapes.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print every run as JSON.")] = False,
) -> None:
    """Compare plain, residual and affine blocks on generated shapes."""
    from geoskip.experiments.demo import OPERATORS, SKIPS, demo_runs

    total = len(OPERATORS) * len(SKIPS) * seeds
    terminal = Console(stderr=True)
    runs = list(track(demo_runs(seeds, epochs), "training", total, console=terminal, disable=not terminal.is_terminal))
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in runs], indent=1))
        return
    console = Console()
    console.print(_table(runs, seeds, epochs))
    for operator, group in groupby(runs, key=lambda run: run.operator):
        console.print(_verdict(NAMES[operator], list(group), seeds))


def _table(runs: list[Any], seeds: int, epochs: int) -> Table:
    table = Table(
        title="Autoencoders of deformed spheres (162 vertices, code of 8)",
        caption=f"mean ± standard deviation; seeds: {seeds}, epochs: {epochs}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method")
    for column in ("parameters", "error, % of the radius", "time, s"):
        table.add_column(column, justify="right")
    for (operator, skip), group in groupby(runs, key=lambda run: (run.operator, run.skip)):
        same = list(group)
        error, seconds = _with_spread([100 * run.error for run in same]), fmean(run.seconds for run in same)
        table.add_row(PREFIXES[skip] + NAMES[operator], f"{same[0].params:,}", error, f"{seconds:.1f}")
    return table


def _with_spread(values: list[float]) -> str:
    """Mean ± standard deviation, where there are several."""
    centre = fmean(values)
    if len(values) == 1:
        return f"{centre:.2f}"
    variance = sum((value - centre) ** 2 for value in values) / (len(values) - 1)
    return f"{centre:.2f} ± {variance**0.5:.2f}"


def _verdict(name: str, runs: list[Any], seeds: int) -> str:
    errors = {(run.skip, run.seed): run.error for run in runs}
    better = sum(errors["affine", seed] < errors["none", seed] for seed in range(seeds))
    return f"Aff-{name} beats {name} with {better} of {seeds} seeds."
