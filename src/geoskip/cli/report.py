"""``geoskip report`` and ``geoskip params``: what runs achieved, and what the paper's models cost."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.console import print_table
from geoskip.cli.options import AsJson


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, searched recursively, or single run records.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "",
    figures: Annotated[bool, typer.Option(help="Also write charts and pictures as PNG and SVG files.")] = True,
    renders: Annotated[bool, typer.Option(help="Also write large pictures of each mesh.")] = False,
    baselines: Annotated[
        Path | None,
        typer.Option(help="Folder with records of geoskip analyze baselines, to show next to the runs.", exists=True),
    ] = None,
) -> None:
    """Write one HTML page with tables, charts and rotatable meshes. The page works offline."""
    from geoskip.paper.baselines import all_baselines
    from geoskip.paper.claims import claim_rows, published_tables
    from geoskip.report.page import TITLE, Page, write_report
    from geoskip.report.runs import find_runs

    loaded = find_runs(runs)
    for problem in loaded.problems:
        typer.echo(f"left out: {problem}", err=True)
    compared = {} if baselines is None else all_baselines(baselines)
    page = Page(title or TITLE, claim_rows(loaded.runs), loaded.problems, published_tables(), compared)
    written = write_report(loaded.runs, output, page, figures=figures, renders=renders)
    for reason in written.missing:
        typer.echo(f"not written: {reason}", err=True)
    counts = [
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((len(loaded.runs), "run"), (len(written.files), "figure"))
    ]
    typer.echo(f"{counts[0]}: {written.page} ({written.page.stat().st_size / 1e6:.1f} MB), {counts[1]}")


def params(as_json: AsJson = False) -> None:
    """Count the parameters of every model in the paper's tables."""
    from geoskip.paper.experiments import all_rows, find_experiment
    from geoskip.paper.rows import num_parameters, paper_model

    counts = {row: num_parameters(paper_model(row)) for row in all_rows()}
    if as_json:
        entries = [
            {
                "experiment": row.home,
                "method": row.method,
                "kernel_size": row.kernel_size,
                "column": row.column,
                "pseudo": row.pseudo,
                "params": count,
                "paper": row.figures["params"],
            }
            for row, count in counts.items()
        ]
        typer.echo(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    for home in dict.fromkeys(row.home for row in counts):
        _print_counts(find_experiment(home).title, {row: count for row, count in counts.items() if row.home == home})
    right = sum(count == row.figures["params"] for row, count in counts.items())
    typer.echo(f"{right} of {len(counts)} counts equal those of the paper's architectures.")


def _print_counts(title: str, counts: dict[Any, int]) -> None:
    """One line per method, one column per kernel size."""
    sizes = sorted({row.column for row in counts if row.column is not None})
    lines: dict[str, list[str]] = {}
    for row, count in counts.items():
        printed = row.figures["params"]
        lines.setdefault(row.title, []).append(f"{count:,}{'' if count == printed else f' (paper: {printed:,})'}")
    columns = [f"M={size}" for size in sizes] if len(sizes) > 1 else ["parameters"]
    title = title if len(sizes) > 1 else f"{title}, M={sizes[0]}"
    # Operators without a kernel size have one count.
    rows = [[name, *cells, *[""] * (len(columns) - len(cells))] for name, cells in lines.items()]
    print_table(["method", *columns], rows, title=f"\n{title}")
