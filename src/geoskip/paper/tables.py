"""Tables of the records in a folder: our figures beside the paper's, and the claims; in Markdown, or as cells of text.

In a page, the lines ``<!-- table2 -->`` and ``<!-- /table2 -->`` enclose what :func:`filled` writes there. The names
are those of the experiments, and

- ``main``: the main results in short form, and the claims,
- ``claims``: one line per claim, ``comparisons``: one line per comparison,
- ``study``, ``roughness``, ``decoded_parts``: what a study of the skips found.

A block without records stays empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from geoskip.paper.claims import ClaimResult, Runs, judge_all
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.findings import FINDINGS, finding
from geoskip.paper.recipes import ORIGINAL, STAND_IN, Experiment, Recipe
from geoskip.paper.running import finished_runs
from geoskip.records import RunRecord
from geoskip.records.statistics import summarize
from geoskip.report.runs import SUBJECTS, Metric

MISSING = "–"
VALIDATION = "validation_"
LEGEND = "Mean over seeds ± half of its 95 % interval (Student's t); the paper's figure in brackets."
# Tiny data and the smoke schedule prove nothing, so they are not published.
PUBLISHED = [(schedule, data) for data in (ORIGINAL, STAND_IN) for schedule in ("full", "short")]
# The short form: columns, and the experiments with the kernel size to show where there are several.
SKIPS = {"none": "plain", "residual": "residual", "affine": "affine"}
MAIN = {"table1": 9, "table2": None, "correspondence": None}
BLOCKS = (*EXPERIMENTS, "main", "claims", "comparisons", *FINDINGS)
OPENING = re.compile(r"^<!-- ([a-z0-9_]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- ([a-z0-9_]+) -->\n(.*?)^<!-- /\1 -->$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column names the method."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def experiment_table(experiment: Experiment, runs: Runs, *, num_metrics: int = 1) -> TextTable:
    """One line per method, one column per kernel size or task; cells read ``ours ± half (paper)``.

    With two metrics, the second follows the first: the median of reconstructions, the mean geodesic error.
    """
    columns = [(column, rank) for column in _columns(experiment) for rank in range(num_metrics)]
    cells = {
        (recipe.line, _column(experiment, recipe), rank): cell(recipe, runs.get(recipe, {}), metric)
        for recipe in experiment.recipes
        for rank, metric in enumerate(_shown_metrics(recipe))
    }
    columns = [column for column in columns if any(key[1:] == column for key in cells)]
    lines = dict.fromkeys(recipe.line for recipe in experiment.recipes)
    return TextTable(
        experiment.title,
        ("method", *(_heading(experiment, column, rank, num_metrics) for column, rank in columns)),
        tuple((line, *(cells.get((line, *column), "") for column in columns)) for line in lines),
        notes(experiment, runs),
    )


def cell(recipe: Recipe, records: Mapping[int, RunRecord], metric: str) -> str:
    """``0.412 ± 0.004 (0.406)``: mean over seeds, half of the 95 % interval, the paper's figure."""
    digits = _metric(recipe, metric).digits
    paper = f" ({recipe.paper[metric]:.{digits}f})" if metric in recipe.paper else ""
    values = [record.metrics[metric] for record in records.values() if metric in record.metrics]
    if not values:
        return MISSING + paper
    over_seeds = summarize(values)
    spread = "" if over_seeds.half is None else f" ± {over_seeds.half:.{digits}f}"
    return f"{over_seeds.mean:.{digits}f}{spread}{paper}"


def notes(experiment: Experiment, runs: Runs) -> tuple[str, ...]:
    """One line per task that has runs: data, schedule, number of seeds, device."""
    lines: list[str] = []
    for task in experiment.tasks:
        records = [r for recipe in experiment.recipes if recipe.task == task for r in runs.get(recipe, {}).values()]
        if records:
            lines.append(f"{task}: {_provenance(records)}")
    return tuple(lines)


def _provenance(records: Sequence[RunRecord]) -> str:
    data = ", ".join(sorted({str(record.config["data"]) for record in records}))
    schedules = sorted({record.schedule for record in records})
    described = "; ".join(f"schedule {schedule} ({_rates(records, schedule)})" for schedule in schedules)
    devices = ", ".join(sorted({record.device for record in records}))
    return f"data {data}; {described}; seeds {_num_seeds(records)}; {devices}"


def _rates(records: Sequence[RunRecord], schedule: str) -> str:
    return " or ".join(sorted({_rate(record.config["optim"]) for record in records if record.schedule == schedule}))


def _rate(optim: Mapping[str, Any]) -> str:
    every = "each" if optim["decay_every"] == 1 else f"every {optim['decay_every']}"
    epochs = f"{optim['epochs']} epoch{'' if optim['epochs'] == 1 else 's'}"
    return f"{epochs}, rate {optim['lr']:g} × {optim['lr_decay']:.3g} {every}"


def _num_seeds(records: Sequence[RunRecord]) -> str:
    """The number of seeds per row: ``3``, or ``1 to 3``."""
    counts: dict[tuple[str, str], int] = {}
    for record in records:
        key = record.experiment, record.row
        counts[key] = counts.get(key, 0) + 1
    low, high = min(counts.values()), max(counts.values())
    return str(low) if low == high else f"{low} to {high}"


def _metric(recipe: Recipe, name: str) -> Metric:
    key = name.removeprefix(VALIDATION)
    return next(metric for metric in SUBJECTS[recipe.task].metrics if metric.key == key)


def _unit(recipe: Recipe, name: str) -> str:
    """``mean error, mm``; ``validation accuracy, %``."""
    metric, prefix = _metric(recipe, name), "validation " if name.startswith(VALIDATION) else ""
    return f"{prefix}{metric.heading.lower()}, {metric.unit}"


def _shown_metrics(recipe: Recipe) -> list[str]:
    return [metric for metric in recipe.metrics if metric != "std_mm"]


def _columns(experiment: Experiment) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_column(experiment, recipe) for recipe in experiment.recipes))


def _column(experiment: Experiment, recipe: Recipe) -> str:
    if len(experiment.tasks) > 1:
        return recipe.task
    if recipe.variant:
        return recipe.method
    sizes = {other.row.column for other in experiment.recipes if other.row.column is not None}
    return recipe.label.removeprefix(recipe.line).strip() if len(sizes) > 1 else ""


def _heading(experiment: Experiment, column: str, rank: int, num_metrics: int) -> str:
    recipe = next(recipe for recipe in experiment.recipes if _column(experiment, recipe) == column)
    unit = _unit(recipe, _shown_metrics(recipe)[rank])
    if not column:
        return unit
    return f"{column}: {unit}" if num_metrics > 1 or len(experiment.tasks) > 1 else column


def main_table(runs: Runs) -> TextTable:
    """Tables 1 (one kernel size) and 2 and the correspondence: one line per operator, one column per skip."""
    lines = [line for name, column in MAIN.items() for line in _by_skip(EXPERIMENTS[name], column, runs)]
    return TextTable("Main results", ("task", "operator", *SKIPS.values()), tuple(lines), (LEGEND,))


def _by_skip(experiment: Experiment, column: int | None, runs: Runs) -> Iterator[tuple[str, ...]]:
    recipes = [r for r in experiment.recipes if not r.row.more and column in (None, r.row.column)]
    task = f"{experiment.title.partition(' (')[0]}: {_unit(recipes[0], recipes[0].metrics[0])}"
    for operator in dict.fromkeys(map(_without_skip, recipes)):
        by_skip = {recipe.row.skip: recipe for recipe in recipes if _without_skip(recipe) == operator}
        if len(by_skip) > 1 and any(runs.get(recipe) for recipe in by_skip.values()):
            yield (task, operator, *(_main_cell(by_skip.get(skip), runs) for skip in SKIPS))


def _without_skip(recipe: Recipe) -> str:
    return recipe.label.removeprefix("Res-").removeprefix("Aff-")


def _main_cell(recipe: Recipe | None, runs: Runs) -> str:
    return "" if recipe is None else cell(recipe, runs.get(recipe, {}), recipe.metrics[0])


def claims_table(results: Sequence[ClaimResult]) -> TextTable:
    """One line per claim of the paper: how many of its comparisons went which way, and how surely."""
    by_subject: dict[str, list[ClaimResult]] = {}
    for result in results:
        by_subject.setdefault(result.claim.subject, []).append(result)
    header = ("claim of the paper", "comparisons", "held (p < 0.05)", "same direction", "opposite", "one seed only")
    lines = [(subject, *_counts(group)) for subject, group in by_subject.items()]
    return TextTable("Claims", header, (*lines, ("**all**", *_counts(results))))


def _counts(results: Sequence[ClaimResult]) -> tuple[str, ...]:
    run = [result for result in results if result.comparison is not None]
    repeated = [result for result in run if not result.one_seed]
    held = [result for result in repeated if result.holds and (result.significant or result.exact)]
    opposite = [result for result in repeated if not result.holds]
    one_seed = [bool(result.holds) for result in run if result.one_seed]
    directions = {"for": sum(one_seed), "against": len(one_seed) - sum(one_seed)}
    return (
        str(len(results)) if len(run) == len(results) else f"{len(run)} of {len(results)}",
        _count(len(held), sum(result.exact for result in held), "exact"),
        _count(len(repeated) - len(held) - len(opposite)),
        _count(len(opposite), sum(result.significant for result in opposite), "with p < 0.05"),
        ", ".join(f"{count} {direction}" for direction, count in directions.items() if count) or MISSING,
    )


def _count(count: int, some: int = 0, kind: str = "") -> str:
    """``4 (1 with p < 0.05)``; a dash for zero."""
    return (str(count) if count else MISSING) + (f" ({some} {kind})" if some else "")


def comparisons_table(results: Sequence[ClaimResult]) -> TextTable:
    """One line per comparison: its gain and the paired tests."""
    header = ("claim", "better", "than", "paper", "gain here", "t test", "sign test", "holds")
    return TextTable("Claims, one by one", header, tuple(_comparison(r) for r in results if r.comparison is not None))


def _comparison(result: ClaimResult) -> tuple[str, ...]:
    claim, comparison, rival = result.claim, result.comparison, result.rival
    assert comparison is not None
    assert rival is not None
    paper = {True: "yes", False: "no", None: MISSING}[claim.paper_holds]
    p = MISSING if comparison.t_p is None else f"{comparison.t_p:.3g}"
    gain = f"{comparison.gain:.3g}" + ("" if comparison.half is None else f" ± {comparison.half:.2g}")
    than = rival.label if len(claim.rivals) == 1 else f"{rival.label} (the closest of all)"
    return claim.subject, claim.where, than, paper, gain, p, f"{comparison.sign_p:.3g}", result.summary


def filled(page: str, results: Path) -> str:
    """The page with all blocks written again. Blocks with unknown names are left alone, unless the name is misspelled.

    ValueError names a block that is not closed, or whose name is almost one of ``BLOCKS``.
    """
    closed = {match[1] for match in BLOCK.finditer(page)}
    for name in OPENING.findall(page):
        if name in BLOCKS and name not in closed:
            raise ValueError(f"page: <!-- {name} --> is not closed by <!-- /{name} -->")
        if name not in BLOCKS and (near := get_close_matches(name, BLOCKS, n=1, cutoff=0.8)):
            raise ValueError(f"page: unknown block <!-- {name} -->; did you mean {near[0]}?")
    return BLOCK.sub(lambda match: _rewritten(match, results) if match[1] in BLOCKS else match[0], page)


def _rewritten(match: re.Match[str], results: Path) -> str:
    return f"<!-- {match[1]} -->\n{block(match[1], results)}<!-- /{match[1]} -->"


def block(name: str, results: Path) -> str:
    """The Markdown of one of ``BLOCKS``, for each published schedule and choice of data; empty without records."""
    if name in FINDINGS:
        parts = [finding(name, results / "analysis")]
    else:
        parts = [_part(name, results, schedule, data) for schedule, data in PUBLISHED]
    return "".join(f"\n{part}\n\n" for part in parts if part)


def _part(name: str, results: Path, schedule: str, data: Mapping[str, str]) -> str:
    if name in EXPERIMENTS:
        return _experiment_part(EXPERIMENTS[name], results, schedule, data)
    runs = all_runs(results, schedule, data)
    judged = judge_all(runs)
    if name == "main":
        return _main_part(runs, judged)
    make = claims_table if name == "claims" else comparisons_table
    return markdown(make(judged)) if judged else ""


def _experiment_part(experiment: Experiment, results: Path, schedule: str, data: Mapping[str, str]) -> str:
    runs = finished_runs(experiment, data, schedule, results)
    if not any(runs.values()):
        return ""
    table = experiment_table(experiment, runs)
    lines = tuple(line for line in table.lines if any(not text.startswith(MISSING) for text in line[1:] if text))
    return markdown(TextTable(table.title, table.header, lines, (LEGEND, *table.notes)))


def _main_part(runs: Runs, judged: Sequence[ClaimResult]) -> str:
    table = main_table(runs)
    if not table.lines:
        return ""
    claims = ["", *_lines(claims_table(judged))] if judged else []
    return "\n".join([*_lines(table), "", *table.notes, *claims])


def markdown(table: TextTable) -> str:
    """A table with its title above and its notes below."""
    return "\n".join([f"**{table.title}**", "", *_lines(table), "", *("  \n".join(table.notes).splitlines())])


def _lines(table: TextTable) -> list[str]:
    rule = ("---", *("---:" for _ in table.header[1:]))
    return ["| " + " | ".join(cells) + " |" for cells in (table.header, rule, *table.lines)]


def all_runs(results: Path, schedule: str, data: Mapping[str, str]) -> Runs:
    """The records of every row of the paper."""
    runs: dict[Recipe, Mapping[int, RunRecord]] = {}
    for experiment in EXPERIMENTS.values():
        if not experiment.figure:  # figures have no rows of their own
            runs |= finished_runs(experiment, data, schedule, results)
    return runs
