"""Rows of trainings as a table for a terminal, and as a section of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from benchmarks.measurements import Row, rows_of
from benchmarks.terminal_tables import block_name, line, megabytes, number, ratio, scientific, yes_no

COLUMNS = ("ms", "peak MB", "× faster", "× less memory", "loss difference", "repeats")


def training_table(rows: Sequence[Row]) -> Table:
    table = Table(title="one training step, including batch and optimizer", title_justify="left")
    for column in ("task", "network", "path"):
        table.add_column(column, no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.workload, block_name(row), row.path, *_cells(row))
    return table


def training_section(record: dict[str, Any]) -> Iterator[str]:
    """A training record as Markdown."""
    yield (
        "A training step: get the batch, forward, backward, Adam. PyG trains the same network with its own loader, "
        "from the same weights on the same batches, in the fastest of the ways named below. **Loss difference** is the "
        f"largest relative difference between the losses of the two over {record['steps']} steps, in float32 without "
        "dropout. **repeats** says whether two runs of geoskip agree bitwise in all steps. **peak MB** is all memory "
        "that training uses on the device."
    )
    yield ""
    for task, group in groupby(rows_of(record), key=lambda row: row.workload):
        rows = list(group)
        yield f"### {task}: {record['tasks'][task]}"
        yield ""
        yield line(["network", "path", *COLUMNS])
        yield line(["---", "---", *["---:"] * len(COLUMNS)])
        for row in rows:
            yield line([block_name(row), row.path, *_cells(row)])
        yield ""
        yield from _notes(rows)


def _cells(row: Row) -> list[str]:
    checked = [scientific(row.error), yes_no(row.repeats)]
    if row.problem is not None:
        return [row.problem.partition(":")[0], *["–"] * 3, *checked]
    return [
        number(row.milliseconds),
        megabytes(row.peak_bytes),
        ratio(row.time_ratio),
        ratio(row.memory_ratio),
        *checked,
    ]


def _notes(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if row.problem is not None:
            yield f"- {block_name(row)}, {row.path}: {row.problem}"
        elif row.call:
            yield f"- {block_name(row)}, {row.path}: {row.call}"
    yield ""
