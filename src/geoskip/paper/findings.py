"""What an analysis found, as JSON: rows, and how they came about."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any

import numpy
import torch

from geoskip import __version__
from geoskip.blocks import skip_prefix
from geoskip.operators import operator_info
from geoskip.paper.analyses import side_by_side
from geoskip.records.atomic import write_whole
from geoskip.records.reading import read_json

FORMAT = 1


@dataclass(frozen=True)
class AnalysisRecord:
    """One analysis.

    Attributes:
        analysis: which one: ``"depth"``, ``"power"``, ``"smoothness"``, ``"share"``, ``"parts"``; ``"shares"`` are
            those of a study's runs.
        settings: what it was run with.
        rows: what was found.
        seconds: how long it took.
        device: where networks were trained, in words, or where the analysis ran if it trained none.
        versions: of the packages that matter, and of Python.
    """

    analysis: str
    settings: dict[str, Any]
    rows: Sequence[dict[str, Any]]
    seconds: float
    device: str
    versions: dict[str, str]


def make_record(
    analysis: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]], seconds: float, device: str = "cpu"
) -> AnalysisRecord:
    versions = {
        "geoskip": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    return AnalysisRecord(analysis, settings, rows, round(seconds, 2), device, versions)


def write_analysis(path: Path, record: AnalysisRecord) -> None:
    """Write a record whole or not at all; numbers are kept to seven digits, and one row to a line."""
    entries = {"format": FORMAT, **_rounded(asdict(record))}
    rows = entries.pop("rows")
    head = json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False)
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False, allow_nan=False)}" for row in rows)
    write_whole(path, f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n'.encode())


def read_analysis(path: Path) -> AnalysisRecord:
    """The record in a file; ValueError, naming the file, if there is none or if it is not one."""
    try:
        entries = read_json(path)
        if entries.pop("format") != FORMAT:
            raise ValueError(f"of another format than {FORMAT}")
        return AnalysisRecord(**entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no record of an analysis can be read there ({error})") from error


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value


Rows = Sequence[dict[str, Any]]
# Where a filter lives: on the edges of the mesh, or, for ChebNet, on the spectrum.
QUANTITY = {"cheb": "slope"}


def compare_roughness(without: Sequence[float], with_skip: Sequence[float]) -> str:
    """How filters with skips compare with those without, seed by seed: the geometric mean of the ratios, and how many
    seeds agree with it."""
    ratios = [after / before for before, after in zip(without, with_skip, strict=True)]
    mean = geometric_mean(ratios)
    agreeing = sum((ratio > 1) == (mean > 1) for ratio in ratios)
    word = "rougher" if mean > 1 else "smoother"
    return f"× {mean:.2f}, {word} with {agreeing} of {len(ratios)} seeds"


def smoothness_table(record: AnalysisRecord) -> str:
    """Each method's roughness before and after training, in Markdown; the last column compares the changes with those
    of the bare operator, which began with the same values."""
    lines = [
        "| method | seeds | error, mm | roughness before | after | after / before | against no skip |",
        "|---|---|---|---|---|---|---|",
    ]
    for operator in dict.fromkeys(row["operator"] for row in record.rows):
        plain = _changes(record.rows, operator, "none")
        for skip in ("none", "residual", "affine"):
            rows = [row for row in record.rows if (row["operator"], row["skip"]) == (operator, skip)]
            if rows:
                change = _changes(record.rows, operator, skip)
                said = compare_roughness(plain, change) if plain and skip != "none" else ""
                lines.append(_line(rows, QUANTITY.get(operator, "edge_slope"), change, said))
    return "\n".join(lines)


def short_answer(record: AnalysisRecord) -> str:
    """The paper's question answered in a sentence for each operator, as far as the record goes."""
    said = []
    for operator in dict.fromkeys(row["operator"] for row in record.rows):
        plain, affine = (_changes(record.rows, operator, skip) for skip in ("none", "affine"))
        if plain and affine:
            said.append(f"{operator_info(operator).title} {compare_roughness(plain, affine)}")
    return f"**With affine skips against none**, change of roughness in training: {'; '.join(said)}."


def parts_table(record: AnalysisRecord) -> str:
    """What whole decoders reduced to one part give, mean and spread over the seeds, in Markdown."""
    lines = ["| method | decoded through | distance, mm | variation left | bumps |", "|---|---|---|---|---|"]
    kinds = dict.fromkeys((row["run"].rsplit("-", 1)[0], row["part"]) for row in record.rows)
    for method, part in kinds:
        rows = [
            row
            for row in record.rows
            if (row["run"].rsplit("-", 1)[0], row["part"], row["layer"]) == (method, part, "all")
        ]
        cells = (spread([row[name] for row in rows]) for name in ("distance_mm", "variation", "bumps"))
        through = "the skips alone" if part == "affine" else "the convolutions alone"
        lines.append(f"| {_method(method)} | {through} | {' | '.join(cells)} |")
    return "\n".join(lines)


def described(record: AnalysisRecord) -> str:
    """How the runs came about, in a sentence."""
    s = record.settings
    items = "all training items" if s["train_items"] is None else f"{s['train_items']:,} of the training items"
    runs = f"{s['seeds']} seed{'s' if s['seeds'] != 1 else ''} of each method"
    return (
        f"Autoencoders of generated faces with {s['vertices']:,} vertices, {items}, {s['epochs']} epochs, batches of "
        f"{s['batch']}, {runs}."
    )


def spread(values: Sequence[float]) -> str:
    """Mean, and standard deviation where there are several."""
    return _number(fmean(values), 3) + (f" ± {_number(stdev(values), 2)}" if len(values) > 1 else "")


def _number(value: float, digits: int) -> str:
    """To so many digits, but whole numbers in full: 2,330 reads better than 2.33e+03."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _changes(rows: Rows, operator: str, skip: str) -> list[float]:
    chosen = [row for row in rows if (row["operator"], row["skip"]) == (operator, skip)]
    found = side_by_side(chosen, QUANTITY.get(operator, "edge_slope"), "change")
    return next(iter(found.values()), [])


def _line(rows: Rows, quantity: str, change: Sequence[float], said: str) -> str:
    numbers = {when: [row[when]["overall"][quantity] for row in rows] for when in ("start", "end")}
    error = spread([row["metrics"]["mean_mm"] for row in rows])
    cells = [rows[0]["method"], str(len(rows)), error, spread(numbers["start"]), spread(numbers["end"])]
    return f"| {' | '.join([*cells, spread(change), said])} |"


def _method(run: str) -> str:
    operator, skip = run.split("-")
    return skip_prefix(skip) + operator_info(operator).title
