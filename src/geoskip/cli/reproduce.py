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
from geoskip.registry import check_choice

if TYPE_CHECKING:
    from geoskip.paper.reproduction import Reproduction
    from geoskip.paper.running import Job, Outcome

TABLES = (
    "table1, table2, table3, correspondence, center_ablation, spline_supplement, superpixels, superpixel_ablation, "
    "correspondence_ablation, gcn_ablation or extrapolation"
)
FIGURES = "error_maps, matching_maps, reconstructions or affine_only"


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help=f"{TABLES}; a figure: {FIGURES}; or all: every run behind docs/results.md.")
    ],
    rows: Annotated[
        list[str] | None, typer.Option(help="Only rows that match, such as 'Aff-*' or '*M=9'; may be repeated.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as 0..4 or 0,2,7.", show_default="0")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="full: as in the paper; first200: its first 200 epochs; in60: all of its rates in 60 epochs (any "
            "numbers); short; or smoke: seconds, on tiny data.",
            show_default="full",
        ),
    ] = None,
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
    from geoskip.paper.reproduction import Reproduction, all_reproductions, draw, parse_seeds

    check_choice("on", on, ("here", "ray"))
    if on == "here" and (address is not None or gpus):
        raise typer.BadParameter("--address and --gpus are for --on ray")
    if experiment == "all":
        given = {"--rows": rows, "--seeds": seeds, "--schedule": schedule, "--data": data}
        if wrong := [name for name, value in given.items() if value]:
            raise typer.BadParameter(f"{', '.join(wrong)}: not with all, whose runs are fixed; name one experiment")
        parts = all_reproductions(output, jobs)
    else:
        chosen = parse_seeds(seeds or "0"), schedule or "full", data or ()
        parts = [Reproduction.start(experiment, rows or (), *chosen, output, jobs)]
    view = _View(Console(), parts)
    pending = [] if dry_run else list(dict.fromkeys(job for part in parts for job in part.pending))
    _follow(view, _outcomes(pending, output, device, jobs, on, address, gpus, view) if pending else iter(()))
    for part in parts:
        if part.experiment.figure and part.done and not dry_run:
            for path in draw(part.experiment, part.done, output):
                view.console.print(f"drawn: {path}")
    if any(part.faults for part in parts):
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
    """The table as it fills: redrawn on a terminal; elsewhere one line per finished row, and the table at the end.

    For several experiments it is a table with a line for each, of what is done.
    """

    def __init__(self, console: Console, parts: list[Reproduction]) -> None:
        self.console, self.parts, self.status = console, parts, ""
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def show(self, text: str) -> None:
        self.status = text
        self.draw()

    def table(self) -> Table:
        from geoskip.paper.reproduction import overview

        text = self.parts[0].table() if len(self.parts) == 1 else overview(self.parts)
        return make_table(text.header, text.lines, title=f"\n{text.title}", caption="\n".join(text.notes))

    def summary(self) -> str:
        from geoskip.paper.reproduction import summary

        return summary(self.parts)

    def draw(self) -> None:
        if self.live is not None:
            words = Text("\n".join(filter(None, (self.status, self.summary()))))
            self.live.update(Group(self.table(), words), refresh=True)

    def add(self, outcome: Outcome) -> None:
        lines = [part.add(outcome) for part in self.parts if outcome.job in part.pending]
        if self.live is None:
            typer.echo(lines[0])
        self.status = ""
        self.draw()


def _follow(view: _View, outcomes: Iterator[Outcome]) -> None:
    with view.live or nullcontext():
        view.draw()
        for outcome in outcomes:
            view.add(outcome)
    if view.live is None:
        view.console.print(view.table())
        typer.echo(view.summary())
    for part in view.parts:
        for fault in part.faults:
            typer.echo(f"failed: {fault.job.label}: {fault.fault}", err=True)
