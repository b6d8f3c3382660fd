"""Records of analyses as JSON, and numbers that several tables and figures show of them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from geoskip.records.files import atomic_write
from geoskip.records.reading import read_json
from geoskip.records.statistics import summarize
from geoskip.training.loop import commit, versions

FORMAT = 1
# What roughness can mean; see geoskip.paper.smoothness.
MEASURES = {
    "slope": "slope",
    "bend": "bend",
    "edge_slope": "slope at edges",
    "basis_slope": "slope of the basis",
    "basis_bend": "bend of the basis",
}
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


def record_analysis(
    path: Path,
    analysis: str,
    settings: dict[str, Any],
    rows: Rows,
    started: float,
    device: str = "cpu",
    data_key: str = "",
) -> None:
    """Write the record of an analysis that ``started`` at this time of ``time.perf_counter``."""
    seconds = time.perf_counter() - started
    write_analysis(path, AnalysisRecord(analysis, settings, rows, seconds, device, commit=commit(), data_key=data_key))


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


def learned_measures(rows: Rows) -> list[str]:
    """Those of ``MEASURES`` that all of the runs have and that training changes: only MoNet learns its basis."""

    def ends(row: dict[str, Any], name: str) -> list[float | None]:
        return [row[when]["overall"].get(name) for when in ("start", "end")]

    return [
        name
        for name in MEASURES
        if all(None not in ends(row, name) for row in rows) and any(len(set(ends(row, name))) > 1 for row in rows)
    ]


def common_loss(rows: Rows) -> float:
    """The smallest training loss that all of the runs reach."""
    return max(min(point["loss"] for point in row["progress"]) for row in rows)


def at_loss(row: dict[str, Any], quantity: str, loss: float) -> float:
    """A quantity of a run when its training loss falls to ``loss`` for the first time.

    Between two checkpoints the logarithm of the quantity is interpolated linearly in the logarithm of the loss.
    """
    points = row["progress"]
    number = next(number for number, point in enumerate(points) if point["loss"] <= loss)
    if number == 0:
        return points[0][quantity]
    before, after = points[number - 1], points[number]
    share = math.log(before["loss"] / loss) / math.log(before["loss"] / after["loss"])
    return math.exp((1 - share) * math.log(before[quantity]) + share * math.log(after[quantity]))


@dataclass(frozen=True)
class RoughnessRatio:
    """Roughness with a skip divided by roughness without.

    Attributes:
        mean: geometric mean over the seeds.
        interval: its 95 % interval, from Student's t of the logarithms; None for a single seed.
        rougher: the number of seeds whose ratio is above 1.
        seeds: the number of seeds.
    """

    mean: float
    interval: tuple[float, float] | None
    rougher: int
    seeds: int

    @property
    def verdict(self) -> str:
        """``"rougher"`` or ``"smoother"`` if all seeds agree, otherwise nothing."""
        return {self.seeds: "rougher", 0: "smoother"}.get(self.rougher, "")

    def __str__(self) -> str:
        interval = f" [{self.interval[0]:.2f}, {self.interval[1]:.2f}]" if self.interval else ""
        direction, agreeing = ("rougher", self.rougher) if self.mean > 1 else ("smoother", self.seeds - self.rougher)
        return f"× {self.mean:.2f}{interval}, {direction} with {agreeing} of {self.seeds} seeds"


def roughness_ratio(without: Sequence[float], with_skip: Sequence[float]) -> RoughnessRatio:
    """Compare runs seed by seed: those of a seed start with the same filters."""
    ratios = [after / before for before, after in zip(without, with_skip, strict=True)]
    logs = summarize([math.log(ratio) for ratio in ratios])
    interval = None if logs.half is None else (math.exp(logs.mean - logs.half), math.exp(logs.mean + logs.half))
    return RoughnessRatio(math.exp(logs.mean), interval, sum(ratio > 1 for ratio in ratios), len(ratios))


def compare_measures(rows: Rows, operator: str, skip: str) -> dict[str, dict[str, RoughnessRatio]]:
    """The operator with a skip against the plain one, by measure: at the ``"end"`` of training and at ``"equal loss"``,
    which is the :func:`common_loss` of all its runs."""
    of_operator = [row for row in rows if row["operator"] == operator]
    pairs = [sorted((r for r in of_operator if r["skip"] == s), key=lambda r: r["seed"]) for s in ("none", skip)]
    if not all(pairs):
        return {}
    loss = common_loss(of_operator)
    return {
        name: {
            "end": roughness_ratio(*([row["end"]["overall"][name] for row in runs] for runs in pairs)),
            "equal loss": roughness_ratio(*([at_loss(row, name, loss) for row in runs] for runs in pairs)),
        }
        for name in learned_measures(of_operator)
    }


def quantity_of(operator: str) -> str:
    """What roughness means: at the edges of the mesh; for ChebNet, over the spectrum."""
    return "slope" if operator == "cheb" else "edge_slope"


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation if there are several values."""
    return _number(fmean(values), 3) + (f" ± {_number(stdev(values), 2)}" if len(values) > 1 else "")


def _number(value: float, digits: int) -> str:
    """Rounded to significant digits, but 2,330 instead of 2.33e+03."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
