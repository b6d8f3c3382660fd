"""Rows as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.table import Table

from benchmarks.measurements import PATHS, Row
from benchmarks.scaling import Growth, Point
from benchmarks.workloads import Problem
from geoskip.blocks import AffineSkip
from geoskip.operators import operator_info


def row_tables(rows: Sequence[Row]) -> list[Table]:
    """One table for each workload."""
    return [_table(name, list(group)) for name, group in groupby(rows, key=lambda row: row.workload)]


def path_tables(rows: Sequence[Row]) -> list[Table]:
    """One table for each workload, with a block per line: the time of every path, and how often the eager block and
    the fastest one are faster than the peer."""
    tables = []
    for name, group in groupby(rows, key=lambda row: row.workload):
        own = list(group)
        paths = [path for path in PATHS if any(row.path == path for row in own)]
        table = Table(title=f"{name}: ms of forward and backward", title_justify="left")
        table.add_column("block", no_wrap=True)
        for column in (*paths, "eager ×", "best ×", "MB", "peer's MB"):
            table.add_column(column, justify="right")
        for _, block in groupby(own, key=lambda row: (row.operator, row.slots, row.skip)):
            table.add_row(*_path_cells({row.path: row for row in block}, paths))
        tables.append(table)
    return tables


def _path_cells(by_path: Mapping[str, Row], paths: Sequence[str]) -> list[str]:
    eager = by_path["geoskip"]
    times = [number(by_path[path].milliseconds) if path in by_path else "–" for path in paths]
    ratios = [row.time_ratio for row in by_path.values() if row.is_ours and row.time_ratio is not None]
    peer = by_path.get(eager.against or "")
    peak = None if peer is None else peer.peak_bytes
    best = ratio(max(ratios)) if ratios else "–"
    return [block_name(eager), *times, ratio(eager.time_ratio), best, megabytes(eager.peak_bytes), megabytes(peak)]


def _table(name: str, rows: list[Row]) -> Table:
    table = Table(title=f"{name}: forward and backward of one block", title_justify="left")
    table.add_column("block", no_wrap=True)
    table.add_column("path", no_wrap=True)
    for column in ("ms", "peak MB", "× faster", "× less memory", "roofline", "error", "repeats"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(block_name(row), row.path, *_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    if row.problem is not None:
        return [f"[red]{row.problem.partition(':')[0]}[/red]", *["–"] * 4, scientific(row.error), "–"]
    mark = "*" if row.peer_does_more else ""
    return [
        number(row.milliseconds, 3),
        megabytes(row.peak_bytes),
        ratio(row.time_ratio) + mark,
        ratio(row.memory_ratio) + mark,
        percent(row.roofline_share),
        scientific(row.error),
        yes_no(row.repeats),
    ]


def scaling_table(points: Sequence[Point], growths: Sequence[Growth]) -> Table:
    table = Table(title="growth with the number of vertices (batch 1, 32 → 32, affine skip)", title_justify="left")
    table.add_column("operator")
    for column in ("vertices", "ms", "peak MB", "error", "repeats"):
        table.add_column(column, justify="right")
    for point in points:
        time = number(point.milliseconds, 3) if point.problem is None else point.problem.partition(":")[0]
        cells = f"{point.vertices:,}", time, megabytes(point.peak_bytes), scientific(point.error), yes_no(point.repeats)
        table.add_row(operator_info(point.operator).title, *cells)
    for growth in growths:
        exponents = number(growth.time, 3), number(growth.memory, 3)
        table.add_row(operator_info(growth.operator).title, "exponent", *exponents, "", "")
    return table


def block_name(row: Row | Problem) -> str:
    kernel = f", M={row.slots}" if operator_info(row.operator).has_kernel_size else ""
    return f"{AffineSkip.skip_prefix if row.skip else ''}{operator_info(row.operator).title}{kernel}"


def number(value: float | None, digits: int = 3) -> str:
    """With ``digits`` significant digits."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 10 ** (digits - 1) else f"{value:#.{digits}g}"


def megabytes(num_bytes: int | None) -> str:
    return "–" if num_bytes is None else number(num_bytes / 1e6)


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def scientific(value: float | None) -> str:
    return "–" if value is None else f"{value:.0e}"


def yes_no(value: bool | None) -> str:
    return "–" if value is None else ("yes" if value else "no")


def line(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
