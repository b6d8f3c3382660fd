"""Records of analyses as JSON, and the sentences and tables that pages show of a study."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any

import numpy
import torch

from geoskip import __version__
from geoskip.blocks import skip_prefix
from geoskip.operators import operator_info
from geoskip.paper.rows import SKIPS
from geoskip.records.files import atomic_write
from geoskip.records.reading import read_json

FORMAT = 1
# Roughness is measured at the edges of the mesh; for ChebNet, over the spectrum.
QUANTITY = {"cheb": "slope"}
Rows = Sequence[dict[str, Any]]


def versions() -> dict[str, str]:
    python = platform.python_version()
    return {"geoskip": __version__, "torch": torch.__version__, "numpy": numpy.__version__, "python": python}


@dataclass(frozen=True)
class AnalysisRecord:
    """The result of one analysis.

    Attributes:
        analysis: ``"depth"``, ``"power"``, ``"smoothness"``, ``"share"`` or ``"parts"``; ``"shares"`` for a study.
        settings: the settings of the analysis.
        rows: the results.
        seconds: the time it took.
        device: where the networks were trained, or where the analysis ran if it trained none.
        versions: of Python and the main packages.
    """

    analysis: str
    settings: dict[str, Any]
    rows: Rows
    seconds: float
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=versions)


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
    return next(iter(by_method(chosen, QUANTITY.get(operator, "edge_slope"), "change").values()), [])


def compare_roughness(without: Sequence[float], with_skip: Sequence[float]) -> str:
    """Filters with and without skips, seed by seed: the geometric mean of the ratios, and how many seeds agree."""
    ratios = [after / before for before, after in zip(without, with_skip, strict=True)]
    mean = geometric_mean(ratios)
    agreeing = sum((ratio > 1) == (mean > 1) for ratio in ratios)
    return f"× {mean:.2f}, {'rougher' if mean > 1 else 'smoother'} with {agreeing} of {len(ratios)} seeds"


def smoothness_table(record: AnalysisRecord) -> str:
    """The roughness of each method before and after training, in Markdown.

    The last column compares the change with that of the plain operator, which started from the same values.
    """
    lines = [
        "| method | seeds | error, mm | roughness before | after | after / before | against no skip |",
        "|---|---|---|---|---|---|---|",
    ]
    for operator in _operators(record):
        quantity, plain = QUANTITY.get(operator, "edge_slope"), changes(record.rows, operator, "none")
        for skip in SKIPS:
            rows = [row for row in record.rows if (row["operator"], row["skip"]) == (operator, skip)]
            if rows:
                change = changes(record.rows, operator, skip)
                numbers = [
                    [row["metrics"]["mean_mm"] for row in rows],
                    *([row[when]["overall"][quantity] for row in rows] for when in ("start", "end")),
                    change,
                ]
                compared = compare_roughness(plain, change) if plain and skip != "none" else ""
                cells = [rows[0]["method"], str(len(rows)), *map(spread, numbers), compared]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def short_answer(record: AnalysisRecord) -> str:
    """The answer to the paper's question, for each operator of the record."""
    answers = []
    for operator in _operators(record):
        plain, affine = (changes(record.rows, operator, skip) for skip in ("none", "affine"))
        if plain and affine:
            answers.append(f"{operator_info(operator).title} {compare_roughness(plain, affine)}")
    return f"**Affine skips compared with none**, change of roughness in training: {'; '.join(answers)}."


def parts_table(record: AnalysisRecord) -> str:
    """What decoders reduced to one part give: mean and standard deviation over seeds, in Markdown."""
    lines = ["| method | decoded through | distance, mm | variation left | bumps |", "|---|---|---|---|---|"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in record.rows:
        if row["layer"] == "all":
            groups.setdefault((row["run"].rsplit("-", 1)[0], row["part"]), []).append(row)
    for (method, part), rows in groups.items():
        operator, skip = method.split("-")
        cells = (spread([row[name] for row in rows]) for name in ("distance_mm", "variation", "bumps"))
        through = "the skips alone" if part == "affine" else "the convolutions alone"
        lines.append(f"| {skip_prefix(skip)}{operator_info(operator).title} | {through} | {' | '.join(cells)} |")
    return "\n".join(lines)


def study_summary(record: AnalysisRecord) -> str:
    """The settings of the study in a sentence, and its answer."""
    s = record.settings
    items = "all training items" if s["train_items"] is None else f"{s['train_items']:,} of the training items"
    seeds = f"{s['seeds']} seed{'s' if s['seeds'] != 1 else ''} of each method"
    return (
        f"Autoencoders of generated faces with {s['vertices']:,} vertices, {items}, {s['epochs']} epochs, batches of "
        f"{s['batch_size']}, {seeds}.\n\n{short_answer(record)}"
    )


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation if there are several values."""
    return _number(fmean(values), 3) + (f" ± {_number(stdev(values), 2)}" if len(values) > 1 else "")


def _number(value: float, digits: int) -> str:
    """Rounded to significant digits, but 2,330 instead of 2.33e+03."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _operators(record: AnalysisRecord) -> Iterable[str]:
    return dict.fromkeys(row["operator"] for row in record.rows)


# Blocks of pages that are filled from the records of a study: the record that each needs, and its text.
FINDINGS: dict[str, tuple[str, Callable[[AnalysisRecord], str]]] = {
    "study": ("smoothness.json", study_summary),
    "roughness": ("smoothness.json", smoothness_table),
    "decoded_parts": ("parts.json", parts_table),
}


def finding(name: str, records: Path) -> str:
    """The Markdown of one of ``FINDINGS``; empty without its record."""
    record, text = FINDINGS[name]
    return text(read_analysis(records / record)) if (records / record).is_file() else ""
