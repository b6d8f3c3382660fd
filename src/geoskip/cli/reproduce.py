"""``geoskip reproduce``: the rows of a table or figure of the paper, trained and set beside the paper's figures."""

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

if TYPE_CHECKING:
    from geoskip.paper.jobs import Job
    from geoskip.paper.progress import Progress
    from geoskip.paper.running import Outcome
    from geoskip.paper.sheets import Sheet

TABLES = "table1, table2, table3, correspondence, centre_ablation, spline_supplement or superpixel_ablation"
FIGURES = "error_maps, matching_maps, reconstructions or affine_only"
Rows = Annotated[
    list[str] | None, typer.Option(help="Only rows like this, such as 'Aff-*' or '*M=9'; may be repeated.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        help="coma, faust or published-superpixels instead of what stands in for them; tiny; may be repeated."
    ),
]
On = Annotated[str, typer.Option(help="here, or ray: as tasks on a cluster (extra: cluster).")]


def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"{TABLES}; a figure: {FIGURES}.")],
    rows: Rows = None,
    seeds: Annotated[str, typer.Option(help="Such as 0..4, or 0,2,7.")] = "0",
    schedule: Annotated[
        str,
        typer.Option(
            help="full as in the paper, first200: its first 200 epochs (any number), short, or smoke: seconds, on tiny "
            "data."
        ),
    ] = "full",
    data: Data = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where records go, and runs in progress.")] = Path("results"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    jobs: Annotated[int, typer.Option(min=1, help="Rows at the same time on this machine.")] = 1,
    on: On = "here",
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster, such as auto or ray://host:10001.")
    ] = None,
    gpus: Annotated[float, typer.Option(min=0.0, help="The share of a GPU that a row takes on the cluster.")] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what is done and what is to do.")] = False,
) -> None:
    """Train the rows of a table or figure of the paper; what is done is skipped, what was cut off goes on."""
    from geoskip.paper.progress import Progress
    from geoskip.paper.seeds import parse_seeds

    if on not in ("here", "ray"):
        raise typer.BadParameter(f"--on: here or ray, not {on}")
    if on == "here" and (address is not None or gpus):
        raise typer.BadParameter("--address and --gpus are for --on ray")
    progress = Progress.start(experiment, rows or (), parse_seeds(seeds), schedule, data or (), out, jobs)
    console = Console()
    view = _View(console, progress)
    pending = [] if dry_run else progress.pending
    _follow(view, _outcomes(pending, out, device, jobs, on, address, gpus, view) if pending else iter(()))
    if progress.experiment.figure and progress.done and not dry_run:
        from geoskip.paper.drawing import draw

        for path in draw(progress.experiment, progress.done, out):
            console.print(f"drawn: {path}")
    if progress.faults:
        raise typer.Exit(1)


def _outcomes(
    pending: list[Job], out: Path, device: str, jobs: int, on: str, address: str | None, gpus: float, view: _View
) -> Iterator[Outcome]:
    if on == "ray":
        from geoskip.paper.cluster import run_on_ray

        return run_on_ray(pending, out, device, address=address, gpus=gpus)
    if jobs > 1:
        from geoskip.paper.side_by_side import run_side_by_side

        return run_side_by_side(pending, out, device, jobs)
    from geoskip.paper.running import run_here

    return run_here(pending, out, device, view.tell if view.console.is_terminal else None)


class _View:
    """The table as it fills: redrawn on a terminal; elsewhere a line for each row that ends, and the table at last."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self.console, self.progress, self.said = console, progress, ""
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def tell(self, text: str) -> None:
        self.said = text
        self.draw()

    def draw(self) -> None:
        if self.live is not None:
            words = Text("\n".join(filter(None, (self.said, self.progress.words()))))
            self.live.update(Group(_table(self.progress.sheet()), words), refresh=True)

    def add(self, outcome: Outcome) -> None:
        self.said, line = "", self.progress.add(outcome)
        if self.live is None:
            typer.echo(line)
        self.draw()


def _follow(view: _View, outcomes: Iterator[Outcome]) -> None:
    with view.live or nullcontext():
        view.draw()
        for outcome in outcomes:
            view.add(outcome)
    if view.live is None:
        view.console.print(_table(view.progress.sheet()))
        typer.echo(view.progress.words())
    for fault in view.progress.faults:
        typer.echo(f"failed: {fault.job.label}: {fault.fault}", err=True)


def _table(sheet: Sheet) -> Table:
    table = Table(
        title=f"\n{sheet.title}", title_justify="left", caption="\n".join(sheet.notes), caption_justify="left"
    )
    for number, name in enumerate(sheet.header):
        table.add_column(name, justify="right" if number else "left")
    for line in sheet.lines:
        table.add_row(*(Text(cell) for cell in line))
    return table
