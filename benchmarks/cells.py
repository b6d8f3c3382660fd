"""Cells and rows of the tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measurements import Row
from benchmarks.workloads import Problem
from geoskip.blocks import AffineSkip
from geoskip.operators import operator_info


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
