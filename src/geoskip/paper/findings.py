"""Records of analyses as JSON, and numbers that several tables and figures show of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from geoskip.records.files import atomic_write
from geoskip.records.reading import read_json
from geoskip.training.loop import versions

FORMAT = 1
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class AnalysisRecord:
    """The result of one analysis.

    Attributes:
        analysis: ``"depth"``, ``"power"``, ``"plateau"``, ``"smoothness"``, ``"share"``, ``"parts"`` or
            ``"baselines"``; ``"shares"`` for a study.
        settings: the settings of the analysis.
        rows: the results.
        seconds: the time it took.
        device: where the networks were trained, or where the analysis ran if it trained none.
        versions: of Python and the main packages.
        commit: as in :class:`~geoskip.records.RunRecord`.
        data_key: likewise, if the analysis is of one data set.
    """

    analysis: str
    settings: dict[str, Any]
    rows: Rows
    seconds: float
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=versions)
    commit: str = ""
    data_key: str = ""


def write_analysis(path: Path, record: AnalysisRecord) -> None:
    """Write a record atomically, with one row per line and numbers rounded to seven digits."""
    entries = {"format": FORMAT, **_rounded(asdict(record)), "seconds": round(record.seconds, 2)}
    rows = entries.pop("rows")
    head = json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False)
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False, allow_nan=False)}" for row in rows)
    atomic_write(path, f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n'.encode())


def read_analysis(path: Path) -> AnalysisRecord:
    """Read a record; ValueError names the file if that fails."""
    try:
        entries = read_json(path)
        if entries.pop("format") != FORMAT:
            raise ValueError(f"the format is not {FORMAT}")
        return AnalysisRecord(**entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a readable record of an analysis ({error})") from error


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value


def by_method(rows: Iterable[dict[str, Any]], quantity: str, when: str = "end") -> dict[str, list[float]]:
    """One overall number of a smoothness analysis by method, one value per seed.

    when: ``"start"``, ``"end"``, or ``"change"``: the end divided by the start, which cancels the effect of the
        initial values.
    """
    columns: dict[str, list[float]] = {}
    for row in rows:
        start, end = (row[time]["overall"].get(quantity) if time in row else None for time in ("start", "end"))
        value = {"start": start, "end": end, "change": end / start if start and end is not None else None}[when]
        if value is not None:
            columns.setdefault(row["method"], []).append(value)
    return columns


def changes(rows: Rows, operator: str, skip: str) -> list[float]:
    """Roughness after training divided by roughness before, one value per seed."""
    chosen = [row for row in rows if (row["operator"], row["skip"]) == (operator, skip)]
    return next(iter(by_method(chosen, quantity_of(operator), "change").values()), [])


def quantity_of(operator: str) -> str:
    """What roughness means: at the edges of the mesh; for ChebNet, over the spectrum."""
    return "slope" if operator == "cheb" else "edge_slope"


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation if there are several values."""
    return _number(fmean(values), 3) + (f" ± {_number(stdev(values), 2)}" if len(values) > 1 else "")


def _number(value: float, digits: int) -> str:
    """Rounded to significant digits, but 2,330 instead of 2.33e+03."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
