"""``geoskip reproduce``: train the rows of a table or figure of the paper, and compare them with its figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from geoskip.cli.console import make_table
from geoskip.cli.options import Device

if TYPE_CHECKING:
    from geoskip.paper.reproduction import Reproduction
    from geoskip.paper.running import Job, Outcome
    from geoskip.paper.text_tables import TextTable

TABLES = (
    "table1, table2, table3, correspondence, center_ablation, spline_supplement, superpixels, superpixel_ablation or "
    "correspondence_ablation"
)
FIGURES = "error_maps, matching_maps, reconstructions or affine_only"


def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"{TABLES}; a figure: {FIGURES}.")],
    rows: Annotated[
        list[str] | None, typer.Option(help="Only rows that match, such as 'Aff-*' or '*M=9'; may be repeated.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0..4 or 0,2,7.")] = "0",
    schedule: Annotated[
        str,
        typer.Option(
            help="full: as in the paper; first200: its first 200 epochs; in60: all of its rates in 60 epochs (any "
            "numbers); short; or smoke: seconds, on tiny data."
        ),
    ] = "full",
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A data set instead of the task's default, such as coma or mixed-faces; or tiny; may be repeated."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for records and unfinished runs.")] = Path(
        "results"
    ),
    device: Device = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Number of rows to train at the same time on this machine.")] = 1,
    on: Annotated[str, typer.Option(help="here, or ray: as tasks on a cluster (extra: cluster).")] = "here",
    address: Annotated[
        str | None, typer.Option(help="Address of a running Ray cluster, such as auto or ray://host:10001.")
    ] = None,
    gpus: Annotated[float, typer.Option(min=0.0, help="The share of a GPU per row on the cluster.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is done and what is left.")] = False,
) -> None:
    """Train the rows of a table or figure of the paper. Finished rows are skipped, interrupted ones resume."""
    from geoskip.paper.reproduction import Reproduction, parse_seeds

    if on not in ("here", "ray"):
        raise typer.BadParameter(f"expected here or ray, got {on!r}", param_hint="--on")
    if on == "here" and (address is not None or gpus):
        raise typer.BadParameter("--address and --gpus are for --on ray")
    reproduction = Reproduction.start(experiment, rows or (), parse_seeds(seeds), schedule, data or (), output, jobs)
    console = Console()
    view = _View(console, reproduction)
    pending = [] if dry_run else reproduction.pending
    _follow(view, _outcomes(pending, output, device, jobs, on, address, gpus, view) if pending else iter(()))
    if reproduction.experiment.figure and reproduction.done and not dry_run:
        from geoskip.paper.reproduction import draw

        for path in draw(reproduction.experiment, reproduction.done, output):
            console.print(f"drawn: {path}")
    if reproduction.faults:
        raise typer.Exit(1)


def _outcomes(
    pending: list[Job], output: Path, device: str, jobs: int, on: str, address: str | None, gpus: float, view: _View
) -> Iterator[Outcome]:
    if on == "ray":
        from geoskip.paper.parallel import run_on_ray

        return run_on_ray(pending, output, device, address=address, gpus=gpus)
    if jobs > 1:
        from geoskip.paper.parallel import run_side_by_side

        return run_side_by_side(pending, output, device, jobs)
    from geoskip.paper.running import run_here

    return run_here(pending, output, device, view.show if view.console.is_terminal else None)


class _View:
    """The table as it fills: redrawn on a terminal; elsewhere one line per finished row, and the table at the end."""

    def __init__(self, console: Console, reproduction: Reproduction) -> None:
        self.console, self.reproduction, self.status = console, reproduction, ""
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def show(self, text: str) -> None:
        self.status = text
        self.draw()

    def draw(self) -> None:
        if self.live is not None:
            words = Text("\n".join(filter(None, (self.status, self.reproduction.summary()))))
            self.live.update(Group(_table(self.reproduction.table()), words), refresh=True)

    def add(self, outcome: Outcome) -> None:
        self.status, line = "", self.reproduction.add(outcome)
        if self.live is None:
            typer.echo(line)
        self.draw()


def _follow(view: _View, outcomes: Iterator[Outcome]) -> None:
    with view.live or nullcontext():
        view.draw()
        for outcome in outcomes:
            view.add(outcome)
    if view.live is None:
        view.console.print(_table(view.reproduction.table()))
        typer.echo(view.reproduction.summary())
    for fault in view.reproduction.faults:
        typer.echo(f"failed: {fault.job.label}: {fault.fault}", err=True)


def _table(text: TextTable) -> Table:
    return make_table(text.header, text.lines, title=f"\n{text.title}", caption="\n".join(text.notes))
