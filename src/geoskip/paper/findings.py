"""Records of analyses as JSON, and the sentences and tables that pages show of a study."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
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
from geoskip.records.files import atomic_write
from geoskip.records.reading import read_json

FORMAT = 1


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
    """Write a record atomically, with one row per line and numbers rounded to seven digits."""
    entries = {"format": FORMAT, **_rounded(asdict(record))}
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


Rows = Sequence[dict[str, Any]]
# Roughness is measured at the edges of the mesh; for ChebNet, over the spectrum.
QUANTITY = {"cheb": "slope"}


def compare_roughness(without: Sequence[float], with_skip: Sequence[float]) -> str:
    """Filters with and without skips, seed by seed: the geometric mean of the ratios, and how many seeds agree."""
    ratios = [after / before for before, after in zip(without, with_skip, strict=True)]
    mean = geometric_mean(ratios)
    agreeing = sum((ratio > 1) == (mean > 1) for ratio in ratios)
    word = "rougher" if mean > 1 else "smoother"
    return f"× {mean:.2f}, {word} with {agreeing} of {len(ratios)} seeds"


def smoothness_table(record: AnalysisRecord) -> str:
    """The roughness of each method before and after training, in Markdown.

    The last column compares the change with that of the plain operator, which started from the same values.
    """
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
    """The answer to the paper's question, for each operator of the record."""
    said = []
    for operator in dict.fromkeys(row["operator"] for row in record.rows):
        plain, affine = (_changes(record.rows, operator, skip) for skip in ("none", "affine"))
        if plain and affine:
            said.append(f"{operator_info(operator).title} {compare_roughness(plain, affine)}")
    return f"**Affine skips compared with none**, change of roughness in training: {'; '.join(said)}."


def parts_table(record: AnalysisRecord) -> str:
    """What decoders reduced to one part give: mean and standard deviation over seeds, in Markdown."""
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
    """The settings of the study in a sentence."""
    s = record.settings
    items = "all training items" if s["train_items"] is None else f"{s['train_items']:,} of the training items"
    runs = f"{s['seeds']} seed{'s' if s['seeds'] != 1 else ''} of each method"
    return (
        f"Autoencoders of generated faces with {s['vertices']:,} vertices, {items}, {s['epochs']} epochs, batches of "
        f"{s['batch']}, {runs}."
    )


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation if there are several values."""
    return _number(fmean(values), 3) + (f" ± {_number(stdev(values), 2)}" if len(values) > 1 else "")


def _number(value: float, digits: int) -> str:
    """Rounded to significant digits, but 2,330 instead of 2.33e+03."""
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


def _study_block(records: Path) -> str:
    record = read_analysis(records / "smoothness.json")
    return f"{described(record)}\n\n{short_answer(record)}"


# Blocks of pages that are filled from the records of a study: the record that each needs, and its text.
FINDINGS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "study": ("smoothness.json", _study_block),
    "roughness": ("smoothness.json", lambda records: smoothness_table(read_analysis(records / "smoothness.json"))),
    "decoded_parts": ("parts.json", lambda records: parts_table(read_analysis(records / "parts.json"))),
}


def finding(name: str, records: Path) -> str:
    """The Markdown of one of ``FINDINGS``; empty without its record."""
    record, text = FINDINGS[name]
    return text(records) if (records / record).is_file() else ""
