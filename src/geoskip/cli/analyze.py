"""``geoskip analyze``: what skips learn, and what they change."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from geoskip.cli.console import CommandGroup

analyze = typer.Typer(
    cls=CommandGroup, help="Analyze blocks: their parts, their kernels, depth, the graphs they can distinguish."
)

RunFolder = Annotated[Path, typer.Argument(help="Folder of a trained run.")]
Data = Annotated[str | None, typer.Option(help="The data folder, if it has moved.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the record to this file.")]
Seeds = Annotated[int, typer.Option(help="How many random networks.", min=1)]
QUANTITIES = {
    "slope": "slope",
    "bend": "bend",
    "edge_slope": "slope at edges",
    "basis_slope": "slope of the basis",
    "size": "rms of Θ",
}
WHEN = {
    "start": "at the start of training",
    "end": "at the end of training",
    "change": "at the end over the start of training",
}


@analyze.command()
def depth(
    seeds: Seeds = 10,
    vertices: Annotated[int, typer.Option(help="Least number of vertices of the sphere.", min=12)] = 642,
    json_path: Json = None,
) -> None:
    """Laplacian smoothing: what 2 to 64 layers of GCN, Res-GCN and Aff-GCN leave of random features."""
    from dataclasses import asdict

    from geoskip.paper.depth import DEPTHS, SKIPS, depth_curves, expected_frequency, sphere_graph

    started = time.perf_counter()
    graph = sphere_graph(vertices)
    rows = [asdict(point) for point in depth_curves(graph, range(seeds))]
    for skip in SKIPS:
        expected = expected_frequency(graph, skip).tolist()
        rows += [
            {"skip": skip, "activation": "theory", "depth": layers, "frequency": value}
            for layers, value in zip(DEPTHS, expected, strict=True)
        ]
    for quantity, title in (
        ("frequency", f"Mean frequency (0: smooth) on a sphere of {graph.num_vertices} vertices"),
        ("rank", "Effective rank of 32 channels"),
    ):
        _print_depths(rows, quantity, title)
    _keep(json_path, "depth", {"seeds": seeds, "vertices": graph.num_vertices, "width": 32}, rows, started)


@analyze.command()
def power(seeds: Seeds = 20, json_path: Json = None) -> None:
    """Discriminative power: the pairs of graphs that random networks distinguish, compared with 1-WL."""
    from dataclasses import asdict

    from geoskip.paper.power import graph_pairs, power_table

    started = time.perf_counter()
    rows = [asdict(row) for row in power_table(range(seeds))]
    pairs = {pair.name: pair for pair in graph_pairs()}
    table = Table(title=f"Networks, of {seeds}, that tell the pair apart", title_justify="left")
    table.add_column("method")
    for number, pair in enumerate(pairs.values(), 1):
        table.add_column(f"{number}" if pair.wl else f"({number})", justify="right")
    for method in dict.fromkeys(row["method"] for row in rows):
        table.add_row(method, *(str(row["told_apart"]) for row in rows if row["method"] == method))
    console = Console()
    console.print(table)
    for number, pair in enumerate(pairs.values(), 1):
        wl = "" if pair.wl else " 1-WL does not tell them apart."
        console.print(f"{number}. {pair.name}: {pair.about}{wl}")
    _keep(json_path, "power", {"seeds": seeds, "layers": 3, "width": 16, "same_below": 1e-10}, rows, started)


@analyze.command()
def parts(
    run: RunFolder,
    samples: Annotated[int | None, typer.Option(help="How many test items; 8 if there are so many.", min=2)] = None,
    data: Data = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture (PNG) of the shapes.")] = None,
    json_path: Json = None,
) -> None:
    """Decode through the skips alone and through the convolutions alone, all blocks at once and block by block."""
    from geoskip.paper.analyses import method_of, run_parts
    from geoskip.training.run import Run

    started, opened = time.perf_counter(), Run.open(run, data)
    rows, shapes = run_parts(opened, samples)
    samples = len(shapes.names)
    table = Table(title=f"{method_of(opened)}: decoding by parts, {samples} test items", title_justify="left")
    for column in ("reduced to", "block", "distance, mm", "variation left", "bumps"):
        table.add_column(column, justify="left" if column in ("reduced to", "block") else "right")
    for row in rows:
        numbers = (f"{row[name]:.2f}" for name in ("distance_mm", "variation", "bumps"))
        table.add_row(row["part"], row["layer"], *numbers)
    console = Console()
    console.print(table)
    console.print("Distance from, and variation and bumps relative to, decoding by whole blocks.")
    if picture is not None:
        from geoskip.report.pictures import write_png
        from geoskip.report.sheets import parts_sheet

        write_png(picture, parts_sheet(shapes))
        console.print(f"wrote {picture}: a column per sample; rows: {', '.join(shapes.parts)}", highlight=False)
    _keep(
        json_path, "parts", {"method": method_of(opened), "seed": opened.config.seed, "samples": samples}, rows, started
    )


@analyze.command()
def share(
    run: RunFolder,
    items: Annotated[int, typer.Option(help="How many training items.", min=1)] = 32,
    data: Data = None,
    json_path: Json = None,
) -> None:
    """Share of each block's output that comes from its skip, over the checkpoints that the run kept."""
    from geoskip.paper.analyses import method_of, run_shares
    from geoskip.training.run import Run

    started, opened = time.perf_counter(), Run.open(run, data)
    rows = run_shares(opened, items)
    steps = list(dict.fromkeys(row["step"] for row in rows))
    table = Table(title=f"{method_of(opened)}: share of the skip in each block's output", title_justify="left")
    table.add_column("block")
    for step in steps:
        table.add_column(f"step {step}", justify="right")
    for layer in dict.fromkeys(row["layer"] for row in rows):
        table.add_row(layer, *(f"{row['share']:.2f}" for row in rows if row["layer"] == layer))
    Console().print(table)
    settings = {"method": method_of(opened), "seed": opened.config.seed, "items": items}
    _keep(json_path, "share", settings, rows, started)


@analyze.command()
def smoothness(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs: methods to compare, seeds of each.")],
    start: Annotated[bool, typer.Option("--start", help="Also the initial values; loads the data.")] = False,
    data: Data = None,
    json_path: Json = None,
) -> None:
    """Roughness of learned filters (MoNet, SplineCNN, ChebNet), with and without skips, over seeds."""
    from geoskip.paper.analyses import run_smoothness, task_of
    from geoskip.training.run import Run

    started = time.perf_counter()
    opened = [Run.open(folder, data) for folder in sorted(runs)]
    rows = [run_smoothness(run, task_of(run) if start else None) for run in opened]
    console = Console()
    for when in WHEN if start else ("end",):
        console.print(_smoothness_table(rows, when))
    _keep(json_path, "smoothness", {"runs": len(rows), "start": start}, rows, started)


@analyze.command()
def study(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder that keeps the runs.")],
    records: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("results/analysis"),
    operator: Annotated[list[str] | None, typer.Option(help="Such as monet=9, name and M; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each method.", min=1)] = 3,
    epochs: Annotated[int, typer.Option(help="Passes over the training items.", min=1)] = 300,
    train_items: Annotated[int | None, typer.Option(help="Training items; all where not given.", min=1)] = None,
    test_items: Annotated[int | None, typer.Option(help="Test items; all where not given.", min=2)] = None,
    batch: Annotated[int, typer.Option(help="Items of a step.", min=1)] = 32,
    coarse: Annotated[str, typer.Option(help="Coarsen the faces by these factors, such as 4,2.")] = "",
    channels: Annotated[str, typer.Option(help="Of the encoder, such as 16,16,32; the paper's if not given.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
) -> None:
    """Train generated faces with and without skips over seeds; then smoothness, shares and parts of every run.

    Finished runs are not trained again, so the command can be interrupted and repeated.
    """
    from geoskip.data.faces import faces
    from geoskip.paper.small_sets import coarsened, stored
    from geoskip.paper.study import Study, run_study

    started, console = time.perf_counter(), Console()
    chosen = Study(
        seeds=seeds,
        epochs=epochs,
        train_items=train_items,
        test_items=test_items,
        batch=batch,
        device=device,
        model={"channels": _numbers(channels, "--channels")} if channels else {},
        coarse=tuple(_numbers(coarse, "--coarse")) if coarse else (),
    )
    chosen = chosen.with_operators(operator) if operator else chosen
    data = faces()
    if chosen.coarse:
        data = stored(coarsened(data, chosen.coarse))
    measured = []
    for run in run_study(chosen, data, folder):
        measured.append(run)
        console.print(f"{run.name}: {run.smoothness['metrics']['mean_mm']:.3f} mm", highlight=False)
    for when in WHEN:
        console.print(_smoothness_table([run.smoothness for run in measured], when))
    settings = {**chosen.settings(), "vertices": data.template.num_vertices}
    device = ", ".join(sorted({run.device for run in measured}))
    _keep(records / "smoothness.json", "smoothness", settings, [run.smoothness for run in measured], started, device)
    for analysis in ("shares", "parts"):
        rows = [{"run": run.name, **row} for run in measured for row in getattr(run, analysis)]
        _keep(records / f"{analysis}.json", analysis, settings, rows, started, device)
    for run in measured:
        if run.shapes is not None:
            from geoskip.records.samples import write_samples

            write_samples(folder / run.name / "parts.safetensors", run.shapes)


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
        if min(numbers) < 1:
            raise ValueError(f"{min(numbers)} is below 1")
    except ValueError as error:
        message = f"{text} is not a list of whole numbers from 1 on, such as 4,2"
        raise typer.BadParameter(message, param_hint=option) from error
    return numbers


def _smoothness_table(rows: list[dict[str, Any]], when: str) -> Table:
    from geoskip.paper.analyses import side_by_side
    from geoskip.paper.findings import spread

    columns = {name: side_by_side(rows, name, when) for name in QUANTITIES}
    table = Table(title=f"Filters {WHEN[when]}, geometric mean of the layers", title_justify="left")
    table.caption = "mean ± standard deviation over seeds; smaller slope and bend: smoother"
    table.add_column("method", no_wrap=True)
    table.add_column("seeds", justify="right")
    for title in QUANTITIES.values():
        table.add_column(title, justify="right")
    for method, values in columns["slope"].items():
        cells = (columns[name].get(method) for name in QUANTITIES)
        table.add_row(method, str(len(values)), *(spread(cell) if cell else "-" for cell in cells))
    return table


def _print_depths(rows: list[dict[str, Any]], quantity: str, title: str) -> None:
    from geoskip.blocks import skip_prefix

    # No lines between the columns: 80 characters must hold them.
    table = Table(title=f"{title}, by number of layers", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    depths = sorted({row["depth"] for row in rows})
    for column in ("method", "activation", *map(str, depths)):
        table.add_column(column, justify="right" if column.isdecimal() else "left", no_wrap=True)
    kinds = dict.fromkeys((row["skip"], row["activation"]) for row in rows if quantity in row)
    for skip, activation in kinds:
        same = [row for row in rows if (row["skip"], row["activation"]) == (skip, activation)]
        cells = ([row[quantity] for row in same if row["depth"] == layers] for layers in depths)
        table.add_row(f"{skip_prefix(skip)}GCN", activation, *(f"{sum(cell) / len(cell):.2g}" for cell in cells))
    Console().print(table)


def _keep(
    path: Path | None, analysis: str, settings: dict[str, Any], rows: Any, started: float, device: str = "cpu"
) -> None:
    if path is not None:
        from geoskip.paper.findings import make_record, write_analysis

        write_analysis(path, make_record(analysis, settings, rows, time.perf_counter() - started, device))
        typer.echo(f"wrote {path}")
