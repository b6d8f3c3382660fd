"""``geoskip params``: what each row of the paper's tables costs, counted from the models themselves."""

import json
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def params(
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Count the parameters of every model in the paper's tables."""
    counts = _counts()
    if as_json:
        typer.echo(json.dumps(counts, indent=1, ensure_ascii=False))
        return
    console = Console()
    for experiment, entries in groupby(counts, key=lambda entry: entry["experiment"]):
        console.print(_table(experiment, list(entries)))
    wrong = sum(entry["params"] != entry["paper"] for entry in counts)
    console.print(f"{len(counts) - wrong} of {len(counts)} counts equal those of the paper's architectures.")


def _counts() -> list[dict[str, Any]]:
    from geoskip.paper.experiments import all_rows
    from geoskip.paper.rows import num_parameters, paper_model

    return [
        {
            "experiment": row.home,
            "method": row.method,
            "kernel_size": row.kernel_size,
            "column": row.column,
            "pseudo": row.pseudo,
            "params": num_parameters(paper_model(row)),
            "paper": row.figures["params"],
        }
        for row in all_rows()
    ]


def _table(experiment: str, entries: list[dict[str, Any]]) -> Table:
    """A line per method, a column per M where there are several."""
    from geoskip.paper.experiments import find_experiment

    columns = sorted({entry["column"] for entry in entries if entry["column"] is not None})
    title = find_experiment(experiment).title + (f", M={columns[0]}" if len(columns) == 1 else "")
    table = Table(title=f"\n{title}", title_justify="left")
    table.add_column("method")
    for column in columns:
        table.add_column(f"M={column}" if len(columns) > 1 else "parameters", justify="right")
    lines: dict[str, list[str]] = {}
    for entry in entries:
        name = entry["method"] if entry["pseudo"] is None else f"{entry['method']} ({entry['pseudo']})"
        mark = "" if entry["params"] == entry["paper"] else f" (paper: {entry['paper']:,})"
        lines.setdefault(name, []).append(f"{entry['params']:,}{mark}")
    for name, cells in lines.items():
        table.add_row(name, *cells)
    return table
