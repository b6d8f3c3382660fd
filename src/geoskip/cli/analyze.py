"""``geoskip analyze``: what skips learn, and what they change."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoskip.cli.console import CommandGroup, print_table
from geoskip.cli.options import MovedData

if TYPE_CHECKING:
    from geoskip.paper.measures import Source

analyze = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Analyze what skips learn, and what a data set gives away without a network.",
)

TrainedFolder = Annotated[Path, typer.Argument(help="Folder of a trained run or an export.", show_default=False)]
RecordFile = Annotated[Path | None, typer.Option("-o", "--output", help="Write the record to this file.")]
WHEN = {
    "start": "at the start of training",
    "end": "at the end of training",
    "change": "at the end divided by the start of training",
}


@analyze.command()
def baselines(
    data: Annotated[list[str], typer.Argument(help="Data sets, such as mixed-faces or bodies.")],
    split: Annotated[
        str | None,
        typer.Option(help="What the test items are, such as people; for sets with that option.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the records.")] = Path("results/analysis"),
) -> None:
    """What PCA, an MLP, the nearest item, or connectivity alone reach on a data set, without a mesh network."""
    from geoskip.paper.baselines import baselines_of, baselines_path

    for name in data:
        started = time.perf_counter()
        rows, key = baselines_of(name, split)
        figures = [figure for figure in rows[0] if figure != "method"]
        lines = [(row["method"], *(f"{row[f]:.3f}" if f in row else "" for f in figures)) for row in rows]
        print_table(("method", *figures), lines, title=f"Baselines on {name}{'' if split is None else f', {split}'}")
        settings = {"data": name} if split is None else {"data": name, "split": split}
        _write(baselines_path(output, name, split), "baselines", settings, rows, started, key)


@analyze.command()
def parts(
    run: TrainedFolder,
    samples: Annotated[int | None, typer.Option(help="Number of test items.", min=2, show_default="8, or all")] = None,
    data: MovedData = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture (PNG) of the shapes.")] = None,
    output: RecordFile = None,
) -> None:
    """Decode through the skips alone and through the convolutions alone, all blocks at once and block by block."""
    from geoskip.paper.measures import run_parts
    from geoskip.training.run import row_name

    started, opened = time.perf_counter(), _open(run, data)
    rows, shapes = run_parts(opened, samples)
    method, samples = row_name(opened.config), len(shapes.names)
    figures = {"distance_mm": "distance, mm", "variation": "variation left", "bumps": "bumps"}
    lines = [(row["part"], row["layer"], *(f"{row[name]:.2f}" for name in figures)) for row in rows]
    print_table(
        ("reduced to", "block", *figures.values()),
        lines,
        left=["block"],
        title=f"{method}: decoding by parts, {samples} test items",
        caption="Distance from, and variation and bumps relative to, decoding by whole blocks.",
    )
    if picture is not None:
        from geoskip.report.picture_grids import parts_grid
        from geoskip.report.pictures import write_png

        write_png(picture, parts_grid(shapes))
        typer.echo(f"wrote {picture}: a column per sample; rows: {', '.join(shapes.parts)}")
    _write(output, "parts", {**_about(opened), "samples": samples}, rows, started, opened.context.content)


@analyze.command()
def share(
    run: TrainedFolder,
    items: Annotated[int, typer.Option(help="Number of training items.", min=1)] = 32,
    data: MovedData = None,
    output: RecordFile = None,
) -> None:
    """Share of each block's output that comes from its skip: at the start, at the checkpoints of a run, at the end."""
    from geoskip.paper.measures import run_shares
    from geoskip.training.run import row_name

    started, opened = time.perf_counter(), _open(run, data)
    rows, method = run_shares(opened, items), row_name(opened.config)
    steps = dict.fromkeys(f"step {row['step']}" for row in rows)
    layers = dict.fromkeys(row["layer"] for row in rows)
    lines = [(layer, *(f"{row['share']:.2f}" for row in rows if row["layer"] == layer)) for layer in layers]
    print_table(("block", *steps), lines, title=f"{method}: share of the skip in each block's output")
    _write(output, "share", {**_about(opened), "items": items}, rows, started, opened.context.content)


@analyze.command()
def smoothness(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of trained runs or exports: several methods, several seeds of each.")
    ],
    start: Annotated[bool, typer.Option("--start", help="Also measure the initial values; loads the data.")] = False,
    data: MovedData = None,
    output: RecordFile = None,
) -> None:
    """Roughness of learned filters (MoNet, SplineCNN, ChebNet), with and without skips, over seeds."""
    from geoskip.paper.findings import MEASURES, by_method, spread
    from geoskip.paper.measures import run_smoothness
    from geoskip.training.evaluation import task_of

    started, quantities = time.perf_counter(), {**MEASURES, "size": "rms of Θ"}
    opened = [_open(folder, data) for folder in sorted(runs)]
    rows = [run_smoothness(run, task_of(run) if start else None) for run in opened]
    for when in WHEN if start else ["end"]:
        columns = {name: by_method(rows, name, when) for name in quantities}
        lines = [
            (method, str(len(values)), *(spread(c[method]) if method in c else "-" for c in columns.values()))
            for method, values in columns["slope"].items()
        ]
        title = f"Filters {WHEN[when]}, geometric mean of the layers"
        caption = "mean ± standard deviation over seeds; smaller slope and bend: smoother"
        print_table(("method", "seeds", *quantities.values()), lines, title=title, caption=caption)
    keys = {run.context.content for run in opened}
    _write(output, "smoothness", {"runs": len(rows), "start": start}, rows, started, ", ".join(sorted(keys)))


def _open(folder: Path, data: str | None) -> "Source":
    """The run or the exported model in a folder; its data may have moved."""
    from geoskip.training.pretrained import from_pretrained
    from geoskip.training.run import Run, is_exported

    if not is_exported(folder):
        return Run.open(folder, data)
    trained = from_pretrained(folder)
    return trained if data is None else replace(trained, config=replace(trained.config, data=data))


def _about(run: "Source") -> dict[str, Any]:
    """What was trained, for a record."""
    from geoskip.training.run import row_name

    config = run.config
    return {"method": row_name(config), "seed": config.seed, "data": config.data, "epochs": config.optim.epochs}


def _write(
    path: Path | None, analysis: str, settings: dict[str, Any], rows: Any, started: float, data_key: str = ""
) -> None:
    if path is not None:
        from geoskip.paper.findings import record_analysis

        record_analysis(path, analysis, settings, rows, started, data_key=data_key)
        typer.echo(f"wrote {path}")
