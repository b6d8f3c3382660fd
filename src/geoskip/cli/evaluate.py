"""``geoskip evaluate``: a trained run on its test items."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from geoskip.cli.options import Axis

MATCHES = "matches.png"
TITLES = {
    "mean_mm": "mean error, mm",
    "std_mm": "standard deviation, mm",
    "median_mm": "median error, mm",
    "accuracy_pct": "accuracy, %",
    "geodesic_mean_pct": "mean geodesic error, % of the diameter",
}


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)],
    data: Annotated[str | None, typer.Option(help="Where the data are now, if they moved.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Test items in the pictures.")] = 4,
    pictures: Annotated[bool, typer.Option(help="Whether to draw pictures, in RUN/pictures.")] = True,
    up: Annotated[Axis, typer.Option(help="The axis that points up in the pictures.")] = Axis.y,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Evaluate a trained run on its test items: RUN/evaluation.json and RUN/pictures."""
    from geoskip.training.devices import choose_device
    from geoskip.training.evaluation import evaluate_run
    from geoskip.training.run import EVALUATION, Run

    opened = Run.open(run)
    found = evaluate_run(opened, data_path=data, device=choose_device(device), samples=samples)
    written = [opened.folder / EVALUATION]
    if pictures:
        written += _draw(opened.pictures, found, up)
    if as_json:
        entries = {"metrics": dict(found.evaluation.metrics), "files": [str(path) for path in written]}
        typer.echo(json.dumps(entries, indent=1))
        return
    Console().print(_table(str(run), found))
    for path in written:
        # The picture itself has no words.
        note = " (vertices without a label are blue-grey)" if path.name == MATCHES else ""
        typer.echo(f"wrote {path}{note}")


def _draw(folder: Path, found: Any, up: Axis) -> list[Path]:
    from geoskip.report.sheets import write_pictures

    names = getattr(found.task.data, "class_names", ())
    evaluation = found.evaluation
    return write_pictures(folder, found.samples, evaluation.curves, evaluation.arrays, names, up.value)


def _table(title: str, found: Any) -> Table:
    table = Table(
        title=title, title_justify="left", caption=f"{found.task.num_test} test items", caption_justify="left"
    )
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in found.evaluation.metrics.items():
        table.add_row(TITLES.get(name, name), f"{value:.3f}")
    return table
