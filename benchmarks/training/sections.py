"""Rows of trainings as sections of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from benchmarks.cells import block_name, line, megabytes, number, ratio, scientific, yes_no
from benchmarks.measurements import Row, rows_of

COLUMNS = ("ms", "peak MB", "× faster", "× less memory", "loss difference", "repeats")
LOOP_COLUMNS = ("ms", "first step, s", "peak MB", "× faster", "× less memory", "loss difference")


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
    yield from _tasks(record, COLUMNS)


def loop_section(record: dict[str, Any]) -> Iterator[str]:
    """A record of plain loops as Markdown."""
    yield (
        "A step of a loop that users write themselves: `loss.backward()` and `optimizer.step()` on batches that are on "
        "the device. **geoskip** and **PyG** run eagerly, **compiled** and **reduce-overhead** add one line, "
        '`torch.compile(model)` or `torch.compile(model, mode="reduce-overhead")`, **captured** the line '
        "`step = geoskip.capture(step, model, optimizer)`. **first step** is the time until the first step has "
        "finished, including what is compiled. **peak MB** is all memory that training uses on the device. **Loss "
        f"difference** is the largest relative difference from the losses of geoskip's eager loop over "
        f"{record['steps']} steps, from the same weights on the same batches, without dropout."
    )
    yield ""
    yield from _tasks(record, LOOP_COLUMNS)


def _tasks(record: dict[str, Any], columns: Sequence[str]) -> Iterator[str]:
    """One table for each task of a record."""
    for task, group in groupby(rows_of(record), key=lambda row: row.workload):
        rows = list(group)
        yield f"### {task}: {record['tasks'][task]}"
        yield ""
        yield line(["network", "path", *columns])
        yield line(["---", "---", *["---:"] * len(columns)])
        for row in rows:
            yield line([block_name(row), row.path, *_cells(row, columns)])
        yield ""
        yield from _notes(rows)


def _cells(row: Row, columns: Sequence[str]) -> list[str]:
    """A row whose step failed, or computed something else, has its problem instead of a time."""
    checked = {"loss difference": scientific(row.error), "repeats": yes_no(row.repeats)}
    if row.problem is not None:
        return [row.problem.partition(":")[0], *(checked.get(column, "–") for column in columns[1:])]
    cells = checked | {
        "ms": number(row.milliseconds),
        "first step, s": number(row.first_seconds),
        "peak MB": megabytes(row.peak_bytes),
        "× faster": ratio(row.time_ratio),
        "× less memory": ratio(row.memory_ratio),
    }
    return [cells[column] for column in columns]


def _notes(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if row.problem is not None:
            yield f"- {block_name(row)}, {row.path}: {row.problem}"
        elif row.call:
            yield f"- {block_name(row)}, {row.path}: {row.call}"
    yield ""
