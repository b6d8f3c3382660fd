"""The records of a study in words and tables: what a page says of them is a function of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, geometric_mean, stdev
from typing import Any

from geoskip.blocks import skip_prefix
from geoskip.operators import operator_info
from geoskip.paper.record import AnalysisRecord
from geoskip.paper.runs import side_by_side

Rows = Sequence[dict[str, Any]]
# Where a filter lives: on the edges of the mesh, or, for ChebNet, on the spectrum.
QUANTITY = {"cheb": "slope"}


def verdict(without: Sequence[float], with_skip: Sequence[float]) -> str:
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
                said = verdict(plain, change) if plain and skip != "none" else ""
                lines.append(_line(rows, QUANTITY.get(operator, "edge_slope"), change, said))
    return "\n".join(lines)


def short_answer(record: AnalysisRecord) -> str:
    """The paper's question answered in a sentence for each operator, as far as the record goes."""
    said = []
    for operator in dict.fromkeys(row["operator"] for row in record.rows):
        plain, affine = (_changes(record.rows, operator, skip) for skip in ("none", "affine"))
        if plain and affine:
            said.append(f"{operator_info(operator).title} {verdict(plain, affine)}")
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
