"""Tables of the records in a folder: our figures next to the paper's, and the claims; in Markdown, or as text cells.

In a page, the lines ``<!-- table2 -->`` and ``<!-- /table2 -->`` enclose what :func:`filled` writes there. The names
are those of the experiments, and

- ``main``: the main results in short form, and the claims,
- ``claims``: one line per claim, ``comparisons``: one line per comparison,
- ``study``, ``roughness``, ``decoded_parts``: what a study of the skips found.

Each data set and schedule that has records gets a table of its own. A block without records stays empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

from geoskip.paper.claims import VERDICTS, ClaimResult, Groups, judge_all
from geoskip.paper.experiments import EXPERIMENTS, Experiment
from geoskip.paper.findings import FINDINGS, finding
from geoskip.paper.rows import SKIPS, TINY, PaperRow
from geoskip.paper.running import Runs, stored_runs
from geoskip.records import RunRecord
from geoskip.records.statistics import summarize
from geoskip.report.runs import SUBJECTS, VALIDATION, Metric
from geoskip.report.tables import VERDICT_RULE

MISSING = "–"
COUNTED_ONCE = "A comparison that serves two claims counts once in the last line."
LEGEND = "Mean over seeds ± half of its 95 % interval (Student's t); the paper's figure in brackets."
# The short form: the experiments, with the kernel size to show where there are several.
MAIN = {"table1": 9, "table2": None, "correspondence": None}
TABLES = {name: experiment for name, experiment in EXPERIMENTS.items() if not experiment.figure}
BLOCKS = (*TABLES, "main", "claims", "comparisons", *FINDINGS)
OPENING = re.compile(r"^<!-- ([a-z0-9_]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- ([a-z0-9_]+) -->\n(.*?)^<!-- /\1 -->$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column names the method."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self, title: bool = True) -> str:
        rule = ("---", *("---:" for _ in self.header[1:]))
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.header, rule, *self.lines)]
        return "\n".join([*([f"**{self.title}**", ""] if title else []), *lines, "", "  \n".join(self.notes)]).rstrip()


def experiment_table(experiment: Experiment, runs: Runs, *, num_metrics: int = 1) -> TextTable:
    """One line per method, one column per kernel size or task; cells read ``ours ± half (paper)``.

    With two metrics, the second follows the first: the median of reconstructions, the mean geodesic error.
    """
    columns = {
        (_column(experiment, row), rank): _heading(experiment, row, metric, num_metrics)
        for row in experiment.rows
        for rank, metric in enumerate(_shown_metrics(row)[:num_metrics])
    }
    cells = {
        (row.line, _column(experiment, row), rank): cell(row, runs.get(row, {}), metric)
        for row in experiment.rows
        for rank, metric in enumerate(_shown_metrics(row))
    }
    lines = dict.fromkeys(row.line for row in experiment.rows)
    return TextTable(
        experiment.title,
        ("method", *columns.values()),
        tuple((line, *(cells.get((line, *column), "") for column in columns)) for line in lines),
        notes(experiment, runs),
    )


def cell(row: PaperRow, records: Mapping[int, RunRecord], metric: str) -> str:
    """``0.412 ± 0.004 (0.406)``: mean over seeds, half of the 95 % interval, the paper's figure."""
    digits = _metric(row, metric).digits
    paper = f" ({row.paper[metric]:.{digits}f})" if metric in row.paper else ""
    values = [record.metrics[metric] for record in records.values() if metric in record.metrics]
    if not values:
        return MISSING + paper
    over_seeds = summarize(values)
    spread = "" if over_seeds.half is None else f" ± {over_seeds.half:.{digits}f}"
    return f"{over_seeds.mean:.{digits}f}{spread}{paper}"


def notes(experiment: Experiment, runs: Runs) -> tuple[str, ...]:
    """One line per task that has runs: data, schedule, number of seeds, device."""
    lines = []
    for task in experiment.tasks:
        records = [record for row in experiment.rows if row.task == task for record in runs.get(row, {}).values()]
        if records:
            lines.append(f"{task}: {_provenance(records)}")
    return tuple(lines)


def _provenance(records: Sequence[RunRecord]) -> str:
    data = ", ".join(sorted({str(record.config["data"]) for record in records}))
    rates: dict[str, set[str]] = {}
    for record in records:
        rates.setdefault(record.schedule, set()).add(_rate(record.config["optim"]))
    schedules = "; ".join(f"schedule {name} ({' or '.join(sorted(rates[name]))})" for name in sorted(rates))
    counts = Counter((record.experiment, record.row) for record in records).values()
    seeds = " to ".join(map(str, dict.fromkeys([min(counts), max(counts)])))
    devices = ", ".join(sorted({record.device for record in records}))
    return f"data {data}; {schedules}; seeds {seeds}; {devices}"


def _rate(optim: Mapping[str, Any]) -> str:
    every = "each" if optim["decay_every"] == 1 else f"every {optim['decay_every']}"
    epochs = f"{optim['epochs']} epoch{'' if optim['epochs'] == 1 else 's'}"
    return f"{epochs}, rate {optim['lr']:g} × {optim['lr_decay']:.3g} {every}"


def _metric(row: PaperRow, name: str) -> Metric:
    key = name.removeprefix(VALIDATION)
    return next(metric for metric in SUBJECTS[row.task].metrics if metric.key == key)


def _unit(row: PaperRow, name: str) -> str:
    """``mean error, mm``; ``validation accuracy, %``."""
    metric, prefix = _metric(row, name), "validation " if name.startswith(VALIDATION) else ""
    return f"{prefix}{metric.heading.lower()}, {metric.unit}"


def _shown_metrics(row: PaperRow) -> list[str]:
    return [metric for metric in row.metrics if metric != "std_mm"]


def _column(experiment: Experiment, row: PaperRow) -> str:
    if len(experiment.tasks) > 1:
        return row.task
    if row.variant:
        return row.title
    sizes = {other.column for other in experiment.rows if other.column is not None}
    return row.label.removeprefix(row.line).strip() if len(sizes) > 1 else ""


def _heading(experiment: Experiment, row: PaperRow, metric: str, num_metrics: int) -> str:
    column, unit = _column(experiment, row), _unit(row, metric)
    if not column:
        return unit
    return f"{column}: {unit}" if num_metrics > 1 or len(experiment.tasks) > 1 else column


def main_table(groups: Groups) -> TextTable:
    """Tables 1 (one kernel size) and 2 and the correspondence: one line per operator, one column per skip."""
    lines = [
        line
        for name, column in MAIN.items()
        for (data, _), runs in groups.items()
        for line in _by_skip(EXPERIMENTS[name], column, data, runs)
    ]
    header = ("task, data", "operator", *("plain" if skip == "none" else skip for skip in SKIPS))
    return TextTable("Main results", header, tuple(lines), (LEGEND,))


def _by_skip(experiment: Experiment, column: int | None, data: str, runs: Runs) -> Iterator[tuple[str, ...]]:
    rows = [row for row in experiment.rows if not row.more and column in (None, row.column)]
    unit = _unit(rows[0], rows[0].metrics[0])
    for operator in dict.fromkeys(map(_without_skip, rows)):
        by_skip = {row.skip: row for row in rows if _without_skip(row) == operator}
        if len(by_skip) > 1 and any(runs.get(row) for row in by_skip.values()):
            cells = (
                cell(by_skip[skip], runs.get(by_skip[skip], {}), by_skip[skip].metrics[0]) if skip in by_skip else ""
                for skip in SKIPS
            )
            yield (f"{SUBJECTS[rows[0].task].title}, {data}: {unit}", operator, *cells)


def _without_skip(row: PaperRow) -> str:
    return row.label.removeprefix("Res-").removeprefix("Aff-")


def claims_table(results: Sequence[ClaimResult]) -> TextTable:
    """One line per claim of the paper: how many of its comparisons have which verdict."""
    by_subject: dict[str, list[ClaimResult]] = {}
    for result in results:
        by_subject.setdefault(result.claim.subject, []).append(result)
    distinct = list({result.key: result for result in results}.values())
    lines = [(subject, *_counts(group)) for subject, group in by_subject.items()]
    header = ("claim of the paper", "comparisons", *VERDICTS)
    return TextTable("Claims", header, (*lines, ("**all**", *_counts(distinct))), (VERDICT_RULE, COUNTED_ONCE))


def _counts(results: Sequence[ClaimResult]) -> tuple[str, ...]:
    counts = Counter(result.verdict for result in results)
    return str(len(results)), *(str(counts[verdict] or MISSING) for verdict in VERDICTS)


def comparisons_table(results: Sequence[ClaimResult]) -> TextTable:
    """One line per comparison: the paper's gain, ours with its 95 % interval, and the verdict."""
    header = ("claim", "better", "than", "data", "gain in the paper", "gain here", "seeds", "p, corrected", "verdict")
    return TextTable("Claims, one by one", header, tuple(map(_comparison, results)))


def _comparison(result: ClaimResult) -> tuple[str, ...]:
    claim, comparison = result.claim, result.comparison
    digits, unit = claim.unit.digits, "points" if claim.unit.unit == "%" else claim.unit.unit
    half = "" if comparison.half is None else f" ± {comparison.half:.{digits}f}"
    return (
        claim.subject,
        claim.better.label,
        result.rival.label if len(claim.rivals) == 1 else f"{result.rival.label} (the closest of all)",
        f"{result.data}, {result.schedule}",
        f"{claim.paper_gain:.{digits}f} {unit}",
        f"{comparison.gain:.{digits}f}{half} {unit}",
        str(comparison.pairs),
        MISSING if result.p is None else "< 0.001" if result.p < 0.001 else f"{result.p:.3f}",
        result.verdict,
    )


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

    def rewritten(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{block(match[1], results)}<!-- /{match[1]} -->"

    return BLOCK.sub(lambda match: rewritten(match) if match[1] in BLOCKS else match[0], page)


def block(name: str, results: Path) -> str:
    """The Markdown of one of ``BLOCKS``; empty without records."""
    if name in FINDINGS:
        parts = [finding(name, results / "analysis")]
    elif name in TABLES:
        parts = list(_experiment_tables(TABLES[name], results))
    else:
        parts = _claim_tables(name, published_runs(TABLES.values(), results))
    return "".join(f"\n{part}\n\n" for part in parts if part)


def published_runs(experiments: Iterable[Experiment], results: Path) -> Groups:
    """The records of all rows, by data set and schedule; tiny data and the smoke schedule prove nothing."""
    rows = dict.fromkeys(row for experiment in experiments for row in experiment.rows)
    groups = stored_runs(rows, results)
    return {(data, schedule): runs for (data, schedule), runs in groups.items() if data != TINY and schedule != "smoke"}


def _experiment_tables(experiment: Experiment, results: Path) -> Iterator[str]:
    """One table for each data set and schedule; with several tasks, for each combination of them."""
    groups = published_runs([experiment], results)
    by_task = [
        [key for key, runs in groups.items() if any(row.task == task for row in runs)] for task in experiment.tasks
    ]
    for keys in product(*filter(None, by_task)) if groups else ():
        runs = {row: records for key in keys for row, records in groups[key].items()}
        table = experiment_table(experiment, runs)
        lines = tuple(line for line in table.lines if any(text and not text.startswith(MISSING) for text in line[1:]))
        yield TextTable(table.title, table.header, lines, (LEGEND, *table.notes)).markdown()


def _claim_tables(name: str, groups: Groups) -> list[str]:
    judged = judge_all(groups)
    claims = [claims_table(judged).markdown(title=name == "claims")] if judged else []
    if name == "main":
        table = main_table(groups)
        return [table.markdown(title=False), *claims] if table.lines else []
    return claims if name == "claims" or not judged else [comparisons_table(judged).markdown()]
