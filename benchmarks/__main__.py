"""``python -m benchmarks``: geoskip against PyTorch Geometric, in one run on one machine."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.console import MainGroup


class BlocksByDefault(MainGroup):
    """Options alone are those of ``blocks``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and args[0] in (*self.commands, "-h", "--help")
        return super().parse_args(ctx, args if named else ["blocks", *args])


HELP = """Compare geoskip with PyTorch Geometric (PyG), both measured in one run on this machine.

Your own size, here 8 meshes of 20,000 vertices, 64 → 64 channels, M = 9:
python -m benchmarks blocks --operator monet --own 8,20000,64,64,9

Without a command it is blocks. Options that choose, such as --operator, may be repeated."""

app = typer.Typer(
    cls=BlocksByDefault,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=HELP,
)

Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")]
Operators = Annotated[list[str] | None, typer.Option("--operator", help="Only this operator.")]
PeerOperators = Annotated[list[str] | None, typer.Option("--operator", help="This operator, monet by default.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task.")]
OneThread = Annotated[
    bool,
    typer.Option("--one-thread", help="Run all backward passes on the calling thread; for CUDA, torch has another."),
]
RecordFile = Annotated[Path | None, typer.Option("-o", "--output", help="Write the results to this JSON file.")]


@app.command()
def blocks(
    device: Device = "auto",
    workload: Annotated[list[str] | None, typer.Option(help="Only this one: faces, bodies or superpixels.")] = None,
    own: Annotated[
        str | None,
        typer.Option(metavar="BATCH,VERTICES,IN,OUT,M", help="A mesh of this size instead, such as 8,20000,64,64,9."),
    ] = None,
    operator: Operators = None,
    quick: Annotated[
        bool | None,
        typer.Option("--quick/--full", help="Batches of 4 and one M, or everything; quick by default on the CPU."),
    ] = None,
    smallest: Annotated[bool, typer.Option("--smallest", help="Only the smallest M of each workload.")] = False,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Measure PyG, too.")] = True,
    compiled: Annotated[bool, typer.Option("--compiled", help="Also torch.compile, of both, with a skip.")] = False,
    seconds: Annotated[float, typer.Option(help="How long each way is timed.")] = 0.3,
    one_thread: OneThread = False,
    output: RecordFile = None,
) -> None:
    """One block, forward and backward: time, peak memory, error, share of the roofline."""
    from benchmarks.measure_blocks import Settings, chosen_device, measure_workload
    from benchmarks.measurements import busy, machine
    from benchmarks.roofline import measure_ceilings
    from benchmarks.workloads import checked_operators, chosen_workloads, own_workload

    _set_threads(one_thread)
    where = chosen_device(device)
    quick = where.type == "cpu" if quick is None else quick
    chosen = [own_workload(own)] if own else chosen_workloads(workload, quick, smallest)
    operators = checked_operators(operator)
    settings = Settings(where, seconds, peers, compiled)
    record: dict[str, Any] = {"kind": "blocks", "machine": machine(where)}
    _say(f"{record['machine']['device']}; {record['machine']['versions']}; {record['machine']['precision']}")
    load = [busy()] * 2
    ceilings = measure_ceilings(where)
    record |= {"ceilings": asdict(ceilings), "workloads": {w.name: w.about for w in chosen}, "load": load}
    measured = (row for w in chosen for row in measure_workload(w, operators, settings, ceilings))
    rows = _measure(record, measured, _line, output)
    if any(row.peer_does_more for row in rows):
        typer.echo("* PyTorch Geometric cannot leave out MoNet's root weight: its time includes the skip.")
    _fail_if_wrong(rows)


@app.command()
def training(
    device: Device = "auto",
    task: Tasks = None,
    operator: PeerOperators = None,
    skip: Annotated[list[str] | None, typer.Option(help="none (the default) or affine.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Batches of 4 at most.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="Over how many steps losses are compared.")] = 20,
    seconds: Annotated[float, typer.Option(help="How long each side is timed.")] = 1.0,
    output: RecordFile = None,
) -> None:
    """A training step of the paper's networks, and of the same network with PyG's layers and loader."""
    from benchmarks.measure_blocks import chosen_device
    from benchmarks.training.measure_steps import Settings, measure_training
    from benchmarks.training.trainings import chosen_operators, chosen_skips, chosen_trainings

    settings = Settings(chosen_device(device), seconds, steps)
    chosen, ways = chosen_trainings(task, quick), (chosen_operators(operator), chosen_skips(skip))
    _measure_tasks("training", chosen, lambda one: measure_training(one, *ways, settings), settings, output)


@app.command()
def loop(
    device: Device = "auto",
    task: Tasks = None,
    operator: PeerOperators = None,
    skip: Annotated[list[str] | None, typer.Option(help="none or affine (the default).")] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(help="Only this way: geoskip (eager), compiled, reduce-overhead, captured, PyG, …"),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Over how many steps losses are compared.")] = 20,
    seconds: Annotated[float, typer.Option(help="How long each way is timed.")] = 0.5,
    one_thread: OneThread = False,
    output: RecordFile = None,
) -> None:
    """A training loop as users write it: eager, with torch.compile, with geoskip.capture; and PyG's."""
    from benchmarks.measure_blocks import chosen_device
    from benchmarks.training.measure_steps import Settings
    from benchmarks.training.plain_loop import chosen_loops, chosen_paths, measure_loop
    from benchmarks.training.trainings import chosen_operators, chosen_skips

    _set_threads(one_thread)
    settings = Settings(chosen_device(device), seconds, steps)
    chosen, paths = chosen_loops(task), chosen_paths(path, settings.device)
    ways = chosen_operators(operator), chosen_skips(skip or ["affine"]), paths
    _measure_tasks("loop", chosen, lambda one: measure_loop(one, *ways, settings), settings, output)


def _set_threads(one: bool) -> None:
    import torch

    torch.autograd.set_multithreading_enabled(not one)


def _measure_tasks(
    kind: str, chosen: list[Any], measure: Callable[[Any], Iterable[Any]], settings: Any, path: Path | None
) -> None:
    from benchmarks.measurements import busy, machine

    record: dict[str, Any] = {"kind": kind, "machine": machine(settings.device), "steps": settings.steps}
    record |= {"tasks": {task.name: task.about for task in chosen}, "load": [busy()] * 2}
    _fail_if_wrong(_measure(record, (row for task in chosen for row in measure(task)), _line, path))


@app.command()
def scaling(
    device: Device = "auto",
    operator: Operators = None,
    max_vertices: Annotated[
        int | None, typer.Option(help="Largest size; 4,194,304 on CUDA and 131,072 on the CPU by default.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long each size is timed.")] = 0.5,
    output: RecordFile = None,
) -> None:
    """How time and peak memory grow with the number of vertices, from 1,024 up."""
    from benchmarks.measure_blocks import chosen_device
    from benchmarks.measurements import machine, save
    from benchmarks.scaling import LARGEST, growth, measure_scaling, sizes_up_to
    from benchmarks.workloads import checked_operators

    where, operators = chosen_device(device), checked_operators(operator or ["monet"])
    sizes = sizes_up_to(max_vertices or (LARGEST if where.type == "cuda" else 1 << 17))
    points: list[Any] = []
    record: dict[str, Any] = {"kind": "scaling", "machine": machine(where)}
    for name in operators:
        for point in measure_scaling(name, sizes, where, seconds):
            points.append(point)
            _say(f"{name} {point.vertices:,}: {point.problem or f'{point.milliseconds:.3g} ms'}")
            fits = [growth(name, points) for name in operators]
            record |= {"points": [asdict(point) for point in points], "growth": [asdict(fit) for fit in fits]}
            if output is not None:
                save(output, record)
    _show(record)
    if any(point.problem is not None for point in points):
        raise typer.Exit(1)


@app.command()
def accelerate(
    device: Device = "auto",
    model: Annotated[list[str] | None, typer.Option(help="Only this model.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each side is timed.")] = 1.0,
    output: RecordFile = None,
) -> None:
    """PyG's own models before and after geoskip.accelerate: time, peak memory, difference."""
    from benchmarks.accelerated_models import measure_models
    from benchmarks.measure_blocks import chosen_device
    from benchmarks.measurements import machine

    def told(row: Any) -> str:
        return f"{row.model}: {row.time_ratio:.1f} times faster, {row.memory_ratio:.1f} times less memory"

    where = chosen_device(device)
    _measure({"kind": "acceleration", "machine": machine(where)}, measure_models(where, seconds, model), told, output)


@app.command()
def products(
    seconds: Annotated[float, typer.Option(help="How long each way is timed.")] = 1.0, output: RecordFile = None
) -> None:
    """Matrix products of the correspondence network on a GPU: float32, TF32, and split in two halves."""
    from benchmarks.matrix_products import measure_products
    from benchmarks.measure_blocks import chosen_device
    from benchmarks.measurements import machine

    where = chosen_device("cuda")
    record = {"kind": "products", "machine": machine(where)}
    _measure(record, measure_products(where, seconds), lambda row: f"{row.way}: {row.products_ms:.3f} ms", output)


@app.command()
def start(
    task: Tasks = None,
    operator: PeerOperators = None,
    device: Device = "auto",
    output: RecordFile = None,
) -> None:
    """Seconds to the first training step in a fresh process, without and with compiled kernels; and PyG's."""
    from benchmarks.measure_blocks import chosen_device
    from benchmarks.measurements import machine
    from benchmarks.start import measure_starts
    from benchmarks.training.trainings import chosen_operators, chosen_trainings

    where = chosen_device(device)
    pairs = [(one.name, name) for one in chosen_trainings(task) for name in chosen_operators(operator)]
    rows = (row for pair in pairs for row in measure_starts(*pair, where.type))
    _measure({"kind": "start", "machine": machine(where)}, rows, _start_line, output)


def _start_line(row: dict[str, Any]) -> str:
    line = f"{row['task']} {row['operator']}, {row['side']}, cache {row['cache']}: {row['first_step']:.2f} s"
    if not row["kernels"]:
        return line
    return f"{line}; {row['kernels']} kernels traced in {row['trace']:.2f} s, compiled in {row['compile']:.2f} s"


@app.command()
def table(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Results of the other commands; by default results/bench/*.json.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page to write. Pages of named results are printed.")
    ] = None,
) -> None:
    """Write docs/benchmarks.md from results/bench/*.json, or print the page of other results."""
    from benchmarks.document import PAGE, RECORDS, document, load
    from geoskip.records.files import atomic_write

    page = document([(path.stem, load(path)) for path in records or sorted(RECORDS.glob("*.json"))])
    output = output or (None if records else PAGE)
    if output is None:
        typer.echo(page, nl=False)
    else:
        atomic_write(output, page.encode())
        _say(f"wrote {output}")


def _measure(record: dict[str, Any], rows: Iterable[Any], line: Callable[[Any], str], path: Path | None) -> list[Any]:
    """Measure the rows. After each row, print its line and save the record; at the end, print the tables."""
    from benchmarks.measurements import busy, save

    measured = []
    record["rows"] = []
    for row in rows:
        measured.append(row)
        record["rows"].append(row if isinstance(row, dict) else asdict(row))
        if "load" in record:
            record["load"][1] = busy()
        _say(line(row))
        if path is not None:
            save(path, record)
    _show(record)
    return measured


def _line(row: Any) -> str:
    from benchmarks.cells import block_name, megabytes, number, ratio

    name = f"{row.workload} {block_name(row)}, {row.path}: "
    if row.problem is not None:
        return name + row.problem
    return f"{name}{number(row.milliseconds)} ms, {megabytes(row.peak_bytes)} MB, × {ratio(row.time_ratio)}"


def _say(line: str) -> None:
    """Print a line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)


def _show(record: dict[str, Any]) -> None:
    """As on the page of benchmarks."""
    from benchmarks.document import tables

    typer.echo("\n".join(tables(record)))


def _fail_if_wrong(rows: Iterable[Any]) -> None:
    if any(row.is_ours and row.problem is not None for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
