"""``geoskip analyze``: what skips learn, and what they change."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
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
    "change": "at the end divided by the start of training",
}


@analyze.command()
def depth(
    seeds: Seeds = 10,
    vertices: Annotated[int, typer.Option(help="Least number of vertices of the sphere.", min=12)] = 642,
    json_path: Json = None,
) -> None:
    """Laplacian smoothing: what 2 to 64 layers of GCN, Res-GCN and Aff-GCN leave of random features."""
    from geoskip.blocks import skip_prefix
    from geoskip.paper.depth import DEPTHS, WIDTH, depth_curves, expected_frequency, sphere_graph
    from geoskip.paper.rows import SKIPS

    started = time.perf_counter()
    graph = sphere_graph(vertices)
    rows = [asdict(point) for point in depth_curves(graph, range(seeds))]
    for skip in SKIPS:
        theory = zip(DEPTHS, expected_frequency(graph, skip).tolist(), strict=True)
        rows += [{"skip": skip, "activation": "theory", "depth": k, "frequency": value} for k, value in theory]
    for quantity, title in (
        ("frequency", f"Mean frequency (0: smooth) on a sphere of {graph.num_vertices} vertices"),
        ("rank", f"Effective rank of {WIDTH} channels"),
    ):
        groups: dict[tuple[str, str], dict[int, list[float]]] = {}
        for row in rows:
            if quantity in row:
                by_depth = groups.setdefault((row["skip"], row["activation"]), {})
                by_depth.setdefault(row["depth"], []).append(row[quantity])
        lines = [
            (f"{skip_prefix(skip)}GCN", activation, *(f"{sum(v) / len(v):.2g}" for v in by_depth.values()))
            for (skip, activation), by_depth in groups.items()
        ]
        # No lines between the columns: 80 characters must hold them.
        table = _table(f"{title}, by number of layers", ("method", "activation", *map(str, DEPTHS)), lines, texts=2)
        table.box, table.padding = SIMPLE_HEAD, (0, 1, 0, 0)
        Console().print(table)
    _write(json_path, "depth", {"seeds": seeds, "vertices": graph.num_vertices, "width": WIDTH}, rows, started)


@analyze.command()
def power(seeds: Seeds = 20, json_path: Json = None) -> None:
    """Discriminative power: the pairs of graphs that random networks distinguish, compared with 1-WL."""
    from geoskip.paper.power import LAYERS, METHODS, SAME, WIDTH, graph_pairs, power_table

    started = time.perf_counter()
    rows = [asdict(row) for row in power_table(range(seeds))]
    pairs = graph_pairs()
    header = ("method", *(f"{number}" if pair.wl else f"({number})" for number, pair in enumerate(pairs, 1)))
    lines = [(m, *(str(row["distinguished"]) for row in rows if row["method"] == m)) for m in METHODS]
    console = Console()
    console.print(_table(f"Networks, of {seeds}, that distinguish the pair", header, lines))
    for number, pair in enumerate(pairs, 1):
        wl = "" if pair.wl else " 1-WL does not distinguish them."
        console.print(f"{number}. {pair.name}: {pair.about}{wl}")
    settings = {"seeds": seeds, "layers": LAYERS, "width": WIDTH, "same_below": SAME}
    _write(json_path, "power", settings, rows, started)


@analyze.command()
def baselines(
    data: Annotated[list[str], typer.Argument(help="Data sets, such as mixed-faces or bodies.")],
    records: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("results/analysis"),
) -> None:
    """What PCA, an MLP, the nearest item, or connectivity alone reach on a data set, without a mesh network."""
    from geoskip.paper.baselines import baselines_of, baselines_path

    for name in data:
        started = time.perf_counter()
        rows, key = baselines_of(name)
        figures = [figure for figure in rows[0] if figure != "method"]
        lines = [(row["method"], *(f"{row[f]:.3f}" if f in row else "" for f in figures)) for row in rows]
        Console().print(_table(f"Baselines on {name}", ("method", *figures), lines))
        _write(baselines_path(records, name), "baselines", {"data": name}, rows, started, data_key=key)


@analyze.command()
def parts(
    run: RunFolder,
    samples: Annotated[int | None, typer.Option(help="How many test items; 8 if there are so many.", min=2)] = None,
    data: Data = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture (PNG) of the shapes.")] = None,
    json_path: Json = None,
) -> None:
    """Decode through the skips alone and through the convolutions alone, all blocks at once and block by block."""
    from geoskip.paper.study import run_parts
    from geoskip.training.run import Run, row_name

    started, opened = time.perf_counter(), Run.open(run, data)
    method = row_name(opened.config)
    rows, shapes = run_parts(opened, samples)
    samples = len(shapes.names)
    lines = [
        (row["part"], row["layer"], *(f"{row[name]:.2f}" for name in ("distance_mm", "variation", "bumps")))
        for row in rows
    ]
    header = ("reduced to", "block", "distance, mm", "variation left", "bumps")
    console = Console()
    console.print(_table(f"{method}: decoding by parts, {samples} test items", header, lines, texts=2))
    console.print("Distance from, and variation and bumps relative to, decoding by whole blocks.")
    if picture is not None:
        from geoskip.report.pictures import write_png
        from geoskip.report.sheets import parts_sheet

        write_png(picture, parts_sheet(shapes))
        console.print(f"wrote {picture}: a column per sample; rows: {', '.join(shapes.parts)}", highlight=False)
    _write(json_path, "parts", {"method": method, "seed": opened.config.seed, "samples": samples}, rows, started)


@analyze.command()
def share(
    run: RunFolder,
    items: Annotated[int, typer.Option(help="How many training items.", min=1)] = 32,
    data: Data = None,
    json_path: Json = None,
) -> None:
    """Share of each block's output that comes from its skip, over the checkpoints that the run kept."""
    from geoskip.paper.study import run_shares
    from geoskip.training.run import Run, row_name

    started, opened = time.perf_counter(), Run.open(run, data)
    method = row_name(opened.config)
    rows = run_shares(opened, items)
    steps = dict.fromkeys(f"step {row['step']}" for row in rows)
    layers = dict.fromkeys(row["layer"] for row in rows)
    lines = [(layer, *(f"{row['share']:.2f}" for row in rows if row["layer"] == layer)) for layer in layers]
    Console().print(_table(f"{method}: share of the skip in each block's output", ("block", *steps), lines))
    _write(json_path, "share", {"method": method, "seed": opened.config.seed, "items": items}, rows, started)


@analyze.command()
def smoothness(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs: methods to compare, seeds of each.")],
    start: Annotated[bool, typer.Option("--start", help="Also the initial values; loads the data.")] = False,
    data: Data = None,
    json_path: Json = None,
) -> None:
    """Roughness of learned filters (MoNet, SplineCNN, ChebNet), with and without skips, over seeds."""
    from geoskip.paper.study import run_smoothness, task_of
    from geoskip.training.run import Run

    started = time.perf_counter()
    opened = [Run.open(folder, data) for folder in sorted(runs)]
    rows = [run_smoothness(run, task_of(run) if start else None) for run in opened]
    _print_smoothness(rows, list(WHEN) if start else ["end"])
    _write(json_path, "smoothness", {"runs": len(rows), "start": start}, rows, started)


@analyze.command()
def study(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder that keeps the runs.")],
    records: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("results/analysis"),
    operator: Annotated[list[str] | None, typer.Option(help="Such as monet=9, name and M; may be repeated.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each method.", min=1)] = 3,
    epochs: Annotated[int, typer.Option(help="Passes over the training items.", min=1)] = 300,
    train_items: Annotated[int | None, typer.Option(help="Number of training items; by default all.", min=1)] = None,
    test_items: Annotated[int | None, typer.Option(help="Number of test items; by default all.", min=2)] = None,
    batch_size: Annotated[int, typer.Option("--batch", help="Items per step.", min=1)] = 32,
    coarse: Annotated[str, typer.Option(help="Coarsen the faces by these factors, such as 4,2.")] = "",
    channels: Annotated[str, typer.Option(help="Of the encoder, such as 16,16,32; by default the paper's.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto.")] = "auto",
) -> None:
    """Train autoencoders of generated faces with and without skips; measure smoothness, shares and parts of every run.

    Finished runs are not trained again, so the command can be interrupted and repeated.
    """
    from geoskip.paper.small_sets import coarse_faces
    from geoskip.paper.study import Study, run_study
    from geoskip.records.samples import write_samples

    started = time.perf_counter()
    chosen = Study(
        seeds=seeds,
        epochs=epochs,
        train_items=train_items,
        test_items=test_items,
        batch_size=batch_size,
        device=device,
        model={"channels": _numbers(channels, "--channels")} if channels else {},
        coarse=tuple(_numbers(coarse, "--coarse")) if coarse else (),
    )
    chosen = chosen.with_operators(operator) if operator else chosen
    data = coarse_faces(list(chosen.coarse))
    measured = []
    for run in run_study(chosen, data, folder):
        measured.append(run)
        if run.shapes is not None:
            write_samples(folder / run.name / "parts.safetensors", run.shapes)
        Console().print(f"{run.name}: {run.smoothness['metrics']['mean_mm']:.3f} mm", highlight=False)
    roughness = [run.smoothness for run in measured]
    _print_smoothness(roughness, list(WHEN))
    settings = {**chosen.settings(), "vertices": data.template.num_vertices}
    device = ", ".join(sorted({run.device for run in measured}))
    _write(records / "smoothness.json", "smoothness", settings, roughness, started, device)
    for analysis in ("shares", "parts"):
        rows = [{"run": run.name, **row} for run in measured for row in getattr(run, analysis)]
        _write(records / f"{analysis}.json", analysis, settings, rows, started, device)


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
        if min(numbers) < 1:
            raise ValueError(f"{min(numbers)} is below 1")
    except ValueError as error:
        message = f"{text} is not a list of whole numbers from 1 on, such as 4,2"
        raise typer.BadParameter(message, param_hint=option) from error
    return numbers


def _table(title: str, header: Sequence[str], lines: Iterable[Sequence[str]], texts: int = 1) -> Table:
    """A table whose first columns are text; the others are numbers."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(header):
        table.add_column(column, justify="left" if number < texts else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    return table


def _print_smoothness(rows: list[dict[str, Any]], times: Sequence[str]) -> None:
    from geoskip.paper.findings import by_method, spread

    for when in times:
        columns = {name: by_method(rows, name, when) for name in QUANTITIES}
        lines = [
            (method, str(len(values)), *(spread(c[method]) if method in c else "-" for c in columns.values()))
            for method, values in columns["slope"].items()
        ]
        header = ("method", "seeds", *QUANTITIES.values())
        table = _table(f"Filters {WHEN[when]}, geometric mean of the layers", header, lines)
        table.caption = "mean ± standard deviation over seeds; smaller slope and bend: smoother"
        Console().print(table)


def _write(
    path: Path | None,
    analysis: str,
    settings: dict[str, Any],
    rows: Any,
    started: float,
    device: str = "cpu",
    data_key: str = "",
) -> None:
    if path is not None:
        from geoskip.paper.findings import AnalysisRecord, write_analysis
        from geoskip.training.loop import commit

        seconds = time.perf_counter() - started
        record = AnalysisRecord(analysis, settings, rows, seconds, device, commit=commit(), data_key=data_key)
        write_analysis(path, record)
        typer.echo(f"wrote {path}")
