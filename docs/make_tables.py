"""The tables of README, results.md and what-skips-learn.md, from the records in results/.

    python docs/make_tables.py                       print all tables
    python docs/make_tables.py README.md …           write them into pages
    python docs/make_tables.py --check README.md …   change nothing; exit code 1 if a page is out of date

In a page, the lines ``<!-- table2 -->`` and ``<!-- /table2 -->`` enclose what is written there. The names are those of
the experiments, and

- ``runs``: how many of the runs of ``geoskip reproduce all`` have a record,
- ``main``: the main results in short form, and the claims,
- ``comparisons``: one line per comparison,
- ``baselines``: what needs no mesh network, on every data set and split,
- ``study``, ``roughness``, ``measures``, ``decoded_parts``: what a study of the skips found,
- ``depth``: errors of deep networks,
- ``plateau``: why FeaStNet does not learn superpixels,
- ``connectivity``: what it costs if every body has a connectivity of its own,
- ``recalibration``, ``recalibration_low_rates``: what recalibrated batch normalization gives GIN-0,
- ``published_parts``, ``published_shares``, ``published_shares_digits``, ``published_roughness``: what a study
  measures, of the published models.

Each data set and schedule that has records gets a table of its own. A block without records stays empty.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from geoskip.blocks import skip_prefix
from geoskip.operators import operator_info
from geoskip.paper.baselines import stored_baselines
from geoskip.paper.claims import SIGNIFICANT, ClaimResult, Groups, all_claims, judge_all
from geoskip.paper.experiments import EXPERIMENTS, Experiment, is_comparable
from geoskip.paper.findings import (
    MEASURES,
    AnalysisRecord,
    RoughnessRatio,
    changes,
    common_loss,
    compare_measures,
    quantity_of,
    read_analysis,
    roughness_ratio,
    spread,
)
from geoskip.paper.reproduction import MISSING, TextTable, all_reproductions, cell, experiment_table, overview, unit
from geoskip.paper.rows import SKIPS, TINY, PaperRow
from geoskip.paper.running import Runs, stored_runs
from geoskip.records.files import atomic_write
from geoskip.report.html_tables import COUNTED_ONCE, ONE_SEED, VERDICT_COLUMNS, VERDICT_RULE, VERDICTS
from geoskip.report.runs import TASK_DESCRIPTIONS

RESULTS = Path(__file__).parents[1] / "results"
LEGEND = "Mean over seeds ± half of its 95 % interval (Student's t); the paper's figure in brackets."
# The short form: the experiments, with the kernel size to show where there are several.
MAIN = {"table1": 9, "table2": None, "correspondence": None}
TABLES = {name: experiment for name, experiment in EXPERIMENTS.items() if not experiment.figure}
OPENING = re.compile(r"^<!-- ([a-z0-9_]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^<!-- ([a-z0-9_]+) -->\n(.*?)^<!-- /\1 -->$", re.DOTALL | re.MULTILINE)


def markdown(table: TextTable, title: bool = True) -> str:
    lines = plain_table(table.header, table.lines)
    lines[1] = "| --- |" + " ---: |" * (len(table.header) - 1)
    return "\n".join([*([f"**{table.title}**", ""] if title else []), *lines, "", "  \n".join(table.notes)]).rstrip()


def plain_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown, all columns aligned left."""
    rows = [f"| {' | '.join(cells)} |" for cells in (header, *lines)]
    return [rows[0], "|---" * len(header) + "|", *rows[1:]]


def published_runs(experiments: Iterable[Experiment], results: Path) -> Groups:
    """The records of all rows, by data set and schedule; tiny data and the smoke schedule prove nothing."""
    rows = dict.fromkeys(row for experiment in experiments for row in experiment.rows)
    groups = stored_runs(rows, results)
    return {(data, schedule): runs for (data, schedule), runs in groups.items() if data != TINY and schedule != "smoke"}


def experiment_tables(experiment: Experiment, results: Path) -> Iterator[str]:
    """One table for each data set and schedule; with several tasks, one table that has a column for each of them."""
    groups = published_runs([experiment], results)
    if len(experiment.tasks) > 1:
        if table := _columns_by_task(experiment, groups):
            yield markdown(table)
        return
    for (data, _), runs in groups.items():
        baselines, comparable = stored_baselines(experiment, results, data), is_comparable(data)
        table = experiment_table(experiment, runs, baselines=baselines, comparable=comparable)
        lines = tuple(line for line in table.lines if any(text and not text.startswith(MISSING) for text in line[1:]))
        legend = LEGEND if comparable else LEGEND.partition(";")[0] + "."
        yield markdown(TextTable(f"{table.title}: {data}", table.header, lines, (legend, *table.notes)))


def _columns_by_task(experiment: Experiment, groups: Groups) -> TextTable | None:
    """A column for each task, data set that replaces the paper's, and schedule; None without records."""
    header, notes = ["method"], list[str]()
    lines: dict[str, list[str]] = {row.line: [row.line] for row in experiment.rows}
    for task in experiment.tasks:
        of_task = replace(experiment, rows=tuple(row for row in experiment.rows if row.task == task))
        for (data, _), runs in groups.items():
            if is_comparable(data) and any(runs.get(row) for row in of_task.rows):
                table = experiment_table(of_task, runs)
                cells = {line[0]: line[1] for line in table.lines}
                header.append(f"{_trained(data, of_task.rows, runs)}: {table.header[1]}")
                notes += table.notes
                for line, texts in lines.items():
                    texts.append(cells.get(line, ""))
    if len(header) == 1:
        return None
    return TextTable(experiment.title, tuple(header), tuple(map(tuple, lines.values())), (LEGEND, *notes))


def main_table(groups: Groups) -> TextTable:
    """Tables 1 (one kernel size) and 2 and the correspondence, on data sets that replace those of the paper.

    One line per operator, one column per skip.
    """
    lines = [
        line
        for name, column in MAIN.items()
        for (data, _), runs in groups.items()
        if is_comparable(data)
        for line in _by_skip(EXPERIMENTS[name], column, data, runs)
    ]
    header = ("task, data, training", "operator", *("plain" if skip == "none" else skip for skip in SKIPS))
    return TextTable("Main results", header, tuple(lines), (LEGEND,))


def _by_skip(experiment: Experiment, column: int | None, data: str, runs: Runs) -> Iterator[tuple[str, ...]]:
    rows = [row for row in experiment.rows if not row.more and column in (None, row.column)]
    title, trained = TASK_DESCRIPTIONS[rows[0].task].title, _trained(data, rows, runs)
    about = f"{title}, {trained}: {unit(rows[0], rows[0].metrics[0])}"
    by_operator: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_operator.setdefault(row.label.removeprefix(skip_prefix(row.skip)), {})[row.skip] = row
    for operator, by_skip in by_operator.items():
        if len(by_skip) > 1 and any(runs.get(row) for row in by_skip.values()):
            shown = [by_skip.get(skip) for skip in SKIPS]
            cells = ("" if row is None else cell(row, runs.get(row, {}), row.metrics[0]) for row in shown)
            yield (about, operator, *cells)


def _trained(data: str, rows: Iterable[PaperRow], runs: Runs) -> str:
    """On what and how long: ``bodies, 300 epochs``."""
    lengths = {record.config["optim"]["epochs"] for row in rows for record in runs.get(row, {}).values()}
    return f"{data}, {' or '.join(map(str, sorted(lengths)))} epochs"


def claims_table(results: Sequence[ClaimResult]) -> TextTable:
    """One line per claim of the paper: how many of its comparisons have which verdict."""
    by_subject: dict[str, list[ClaimResult]] = {}
    for result in results:
        by_subject.setdefault(result.claim.subject, []).append(result)
    distinct = list({result.key: result for result in results}.values())
    lines = [(subject, *_counts(group)) for subject, group in by_subject.items()]
    header = ("claim of the paper", "comparisons", *VERDICT_COLUMNS)
    chances = [(result.comparison.p, result) for result in distinct]
    alone = [result for chance, result in chances if chance is not None and chance < SIGNIFICANT]
    agreeing = sum(result.comparison.gain > 0 for result in alone)
    uncorrected = f"Without the correction, {len(alone)} would be significant, {agreeing} of them as the paper claims."
    open_claims = {*all_claims()} - {result.claim for result in results if result.p is not None}
    untested = f"Of the paper's {len(all_claims())} comparisons, {len(open_claims)} have too few runs to be tested."
    notes = (VERDICT_RULE, COUNTED_ONCE, uncorrected, untested)
    return TextTable("Claims", header, (*lines, ("**all**", *_counts(distinct))), notes)


def _counts(results: Sequence[ClaimResult]) -> tuple[str, ...]:
    counts = Counter(result.verdict for result in results)
    judged = len(results) - counts[ONE_SEED]
    return tuple(str(count or MISSING) for count in (judged, *(counts[verdict] for verdict in VERDICTS)))


def comparisons_table(results: Sequence[ClaimResult]) -> TextTable:
    """One line per distinct comparison: the paper's gain, ours with its 95 % interval, and the verdict."""
    header = ("claim", "better", "than", "data", "gain in the paper", "gain here", "seeds", "p, corrected", "verdict")
    by_key: dict[object, list[ClaimResult]] = {}
    for result in results:
        by_key.setdefault(result.key, []).append(result)
    return TextTable("Claims, one by one", header, tuple(map(_comparison, by_key.values())))


def _comparison(serving: Sequence[ClaimResult]) -> tuple[str, ...]:
    result = serving[0]
    claim, comparison = result.claim, result.comparison
    return (
        "; ".join(other.claim.subject for other in serving),
        claim.better.label,
        result.rival.label if len(claim.rivals) == 1 else f"{result.rival.label} (the closest of all)",
        f"{result.data}, {result.schedule}",
        claim.shown(claim.paper_gain(result.rival)),
        claim.shown(comparison.gain, comparison.half),
        str(comparison.seeds),
        MISSING if result.p is None else "< 0.001" if result.p < 0.001 else f"{result.p:.3f}",
        result.verdict,
    )


def claim_tables(name: str, groups: Groups) -> list[str]:
    judged = judge_all(groups)
    if name == "comparisons":
        return [markdown(comparisons_table(judged))] if judged else []
    tables = [main_table(groups), *([claims_table(judged)] if judged else [])]
    return [markdown(table, title=False) for table in tables] if tables[0].lines else []


def smoothness_table(record: AnalysisRecord) -> str:
    """The roughness of each method before and after training.

    The last column compares the change with that of the plain operator, which started from the same values.
    """
    lines: list[list[str]] = []
    for operator in _operators(record):
        quantity, plain = quantity_of(operator), changes(record.rows, operator, "none")
        for skip in SKIPS:
            rows = [row for row in record.rows if (row["operator"], row["skip"]) == (operator, skip)]
            if rows:
                change = changes(record.rows, operator, skip)
                numbers = [
                    [row["metrics"]["mean_mm"] for row in rows],
                    *([row[when]["overall"][quantity] for row in rows] for when in ("start", "end")),
                    change,
                ]
                compared = str(roughness_ratio(plain, change)) if plain and skip != "none" else ""
                lines.append([rows[0]["method"], str(len(rows)), *map(spread, numbers), compared])
    header = ("method", "seeds", "error, mm", "roughness before", "after", "after / before", "against no skip")
    return "\n".join(plain_table(header, lines))


def study_summary(record: AnalysisRecord) -> str:
    """The settings of the study in a sentence, and the answer to the paper's question for each operator."""
    s = record.settings
    items = "all training items" if s["train_items"] is None else f"{s['train_items']:,} of the training items"
    seeds = f"{s['seeds']} seed{'s' if s['seeds'] != 1 else ''} of each method"
    lines = [
        f"Autoencoders of generated faces with {s['vertices']:,} vertices, {items}, {s['epochs']} epochs, batches of "
        f"{s['batch_size']}, {seeds}. Training and measuring took {record.seconds:,.0f} seconds ({record.device}).",
        "",
        "**Roughness with affine skips divided by roughness without**, least and greatest of all measures:",
        "",
    ]
    for operator in _operators(record):
        compared = compare_measures(record.rows, operator, "affine")
        if compared:
            said = "; ".join(_verdicts(compared, when) for when in MOMENTS)
            lines.append(f"- {operator_info(operator).title}: {said}.")
    return "\n".join(lines)


def _verdicts(compared: Mapping[str, Mapping[str, RoughnessRatio]], when: str) -> str:
    """``× 1.00 to × 1.51 at the end of training, all seeds rougher by 1 of 5 measures, all smoother by none``."""
    ratios = [of_measure[when] for of_measure in compared.values()]
    low, high = (choose(ratio.mean for ratio in ratios) for choose in (min, max))
    counts = Counter(ratio.verdict for ratio in ratios)
    rougher, smoother = (counts[verdict] or "none" for verdict in ("rougher", "smoother"))
    return (
        f"× {low:.2f} to × {high:.2f} at {MOMENTS[when]} (all seeds rougher by {rougher} of {len(ratios)} measures, "
        f"all smoother by {smoother})"
    )


def measures_table(record: AnalysisRecord) -> str:
    """Every measure of roughness, with skips against without, at the end of training and at equal loss."""
    rows, cells = record.rows, list[list[str]]()
    losses = {operator: common_loss([r for r in rows if r["operator"] == operator]) for operator in _operators(record)}
    columns = [(skip, when) for skip in SKIPS[1:] for when in MOMENTS]
    for operator in _operators(record):
        by_skip = {skip: compare_measures(rows, operator, skip) for skip in SKIPS[1:]}
        for name in dict.fromkeys(name for compared in by_skip.values() for name in compared):
            ratios = [by_skip[skip].get(name, {}).get(when, "") for skip, when in columns]
            cells.append([operator_info(operator).title, MEASURES[name], *map(str, ratios)])
    lines = plain_table(["operator", "measure", *(f"{skip} skip at {MOMENTS[when]}" for skip, when in columns)], cells)
    named = ", ".join(f"{operator_info(operator).title} {loss:.4f}" for operator, loss in losses.items())
    figure = "The second row of the figure shows roughness over the training loss; dotted lines are these losses."
    return "\n".join([*lines, "", f"The training losses at which skips are compared: {named}. {figure}"])


def parts_table(record: AnalysisRecord) -> str:
    """What decoders reduced to one part give: mean and standard deviation over seeds."""
    lines: list[list[str]] = []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in record.rows:
        if row["layer"] == "all":
            groups.setdefault((_method(row.get("run")) or record.settings["method"], row["part"]), []).append(row)
    for (method, part), rows in groups.items():
        names = ("distance_mm", "variation", "bumps")
        # The mean face does not vary, up to rounding.
        cells = (spread([row[name] if row[name] > 1e-5 else 0.0 for row in rows]) for name in names)
        lines.append([method, DECODED[part], *cells])
    return "\n".join(plain_table(("method", "decoded through", "distance, mm", "variation left", "bumps"), lines))


def _method(run: str | None) -> str:
    """``Aff-MoNet`` from ``monet-affine-0``, a run of a study."""
    operator, skip, _ = (run or "--").split("-")
    return skip_prefix(skip) + operator_info(operator).title if run else ""


def published_shares_table(record: AnalysisRecord) -> str:
    """The share of the skip in each block of a model, before and after training."""
    steps = sorted({row["step"] for row in record.rows})
    shares = {(row["step"], row["layer"]): row["share"] for row in record.rows}
    layers = dict.fromkeys(row["layer"] for row in record.rows)
    lines = [
        [name, *(f"{100 * shares[step, layer]:.0f} %" for layer in layers)]
        for step, name in ((steps[0], "initial weights"), (steps[-1], "trained"))
    ]
    return "\n".join(plain_table(("", *layers), lines))


def published_roughness_table(record: AnalysisRecord) -> str:
    """All measures of roughness of a model, before and after training."""
    (row,) = record.rows
    lines: list[list[str]] = []
    for name, title in MEASURES.items():
        start, end = (row[when]["overall"][name] for when in ("start", "end"))
        values = (f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" for value in (start, end))
        lines.append([title, *values, f"{end / start:.2f}"])
    return "\n".join(plain_table(("measure", "before training", "after", "after / before"), lines))


DECODED = {"mean": "nothing: the mean face", "affine": "the skips alone", "convolution": "the convolutions alone"}


def depth_table(record: AnalysisRecord) -> str:
    """Test errors of trained networks by depth: means over seeds and standard deviations."""
    trained = [row for row in record.rows if row.get("weights") == "trained"]
    depths = sorted({row["depth"] for row in trained})
    lines: list[list[str]] = []
    for part in ("shape", "noise"):
        for skip in SKIPS:
            rows = [[row for row in trained if (row["skip"], row["depth"]) == (skip, depth)] for depth in depths]
            errors = [[row[f"test_{part}"] for row in of_depth] for of_depth in rows]
            cells = (f"{fmean(v):.3f}" + (f" ± {stdev(v):.3f}" if len(v) > 1 else "") for v in errors)
            lines.append([f"the {part}", f"{skip_prefix(skip)}GCN", *cells])
    return "\n".join(plain_table(["error of", "method", *(f"{depth} layers" for depth in depths)], lines))


def plateau_table(record: AnalysisRecord) -> str:
    """FeaStNet on superpixels and its variants: the state at the start and after the last epoch."""
    settings = record.settings
    items = "all training graphs" if settings["items"] is None else f"{settings['items']:,} training graphs"
    lines: list[list[str]] = []
    by_variant: dict[str, list[dict[str, Any]]] = {}
    for row in record.rows:
        by_variant.setdefault(row["variant"], []).append(row)
    for variant, (first, *_, last) in by_variant.items():
        numbers = first["spread"], last["spread"], first["weights"], last["weights"]
        cells = [f"{last['loss']:.3f}", f"{last['accuracy_pct']:.1f}", *(f"{number:.2g}" for number in numbers)]
        lines.append([variant, *cells])
    spread_and_weights = ("spread of logits, before", "after", "rms of Θ, before", "after")
    header = ("FeaStNet, M=25", "loss", "validation accuracy, %", *spread_and_weights)
    about = f"After {settings['epochs']} epochs on {items} (a tenth of them for validation), seed {settings['seed']}:"
    return "\n".join([about, "", *plain_table(header, lines)])


def connectivity_table(record: AnalysisRecord) -> str:
    """One line per change of the bodies, one column per method."""
    seeds = record.settings["seeds"]
    about = (
        "Validation accuracy in percent, in brackets the training loss of the last epoch; "
        f"{record.settings['vertices']} vertices, schedule `{record.settings['schedule']}`, "
        f"{seeds} seed{'' if seeds == 1 else 's'}."
    )
    cells: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in record.rows:
        cells.setdefault(row["change"], {}).setdefault(row["method"], []).append((row["accuracy_pct"], row["loss"]))
    methods = list(dict.fromkeys(row["method"] for row in record.rows))
    lines = [
        [change, *("{:.2f} ({:.2f})".format(*map(fmean, zip(*of_change[method], strict=True))) for method in methods)]
        for change, of_change in cells.items()
    ]
    return "\n".join([about, "", *plain_table(["bodies", *methods], lines)])


def recalibration_table(record: AnalysisRecord) -> str:
    """GIN-0 with running and with recalibrated statistics, at four times of the training: means, least and greatest."""
    settings = record.settings
    epochs, items = settings["epochs"], settings["items"]
    graphs = "all training graphs" if items is None else f"{items:,} training graphs"
    about = (
        f"GIN-0, schedule `{settings['schedule']}` ({epochs} epochs) on {graphs} (a tenth of them for validation), "
        f"{'a new coarsening in every epoch' if settings['coarsening'] else 'stored coarsenings'}, {settings['seeds']} "
        "seeds: mean, least and greatest validation accuracy in percent."
    )
    header = (
        "after epoch",
        "learning rate",
        "training loss",
        "running statistics",
        "statistics of all training batches",
    )
    lines: list[list[str]] = []
    for epoch in sorted({round(epochs * quarter / 4) for quarter in range(1, 5)} - {0}):
        rows = [row for row in record.rows if row["epoch"] == epoch]
        accuracies = ([row[name] for row in rows] for name in ("running_pct", "recalibrated_pct"))
        cells = [f"{fmean(of):.1f} ({min(of):.1f} to {max(of):.1f})" for of in accuracies]
        lines.append([str(epoch), f"{rows[0]['rate']:.3g}", f"{fmean(row['loss'] for row in rows):.3f}", *cells])
    return "\n".join([about, "", *plain_table(header, lines)])


def baseline_tables(records: Sequence[AnalysisRecord]) -> list[str]:
    """One table for reconstruction and one for correspondence: a line per baseline, a column per data set and split."""
    tables: list[str] = []
    for metric, caption in (
        ("mean_mm", "Mean errors in millimeters, medians in brackets:"),
        ("accuracy_pct", "Exact matches in percent; the first two lines use only the edges, the last one positions:"),
    ):
        chosen = [record for record in records if metric in record.rows[0]]
        columns = [_baseline_cells(record) for record in chosen]
        names = dict.fromkeys(name for cells in columns for name in cells)
        lines = [[name, *(cells.get(name, MISSING) for cells in columns)] for name in names]
        header = ["", *(_data_and_split(record.settings) for record in chosen)]
        tables += ["\n".join([caption, "", *plain_table(header, lines)])] if chosen else []
    return tables


def _baseline_cells(record: AnalysisRecord) -> dict[str, str]:
    cells: dict[str, str] = {}
    for row in record.rows:
        if "mean_mm" in row:
            cells[row["method"]] = f"{row['mean_mm']:.3f} ({row['median_mm']:.3f})"
        else:
            cells[row["method"]] = f"{row['accuracy_pct']:.3g}"
        if "seen_pct" in row:
            cells["test vertices whose color occurs in training"] = f"{row['seen_pct']:.3g}"
    return cells


def _data_and_split(settings: Mapping[str, Any]) -> str:
    return f"`{settings['data']}`" + (f", `{settings['split']}` unseen" if "split" in settings else "")


def _operators(record: AnalysisRecord) -> Iterable[str]:
    return dict.fromkeys(row["operator"] for row in record.rows)


# When skips are compared.
MOMENTS = {"end": "the end of training", "equal loss": "equal loss"}
# Blocks that are made from the records of a study: the record that each needs, and its text.
FINDINGS: dict[str, tuple[str, Callable[[AnalysisRecord], str]]] = {
    "study": ("smoothness.json", study_summary),
    "roughness": ("smoothness.json", smoothness_table),
    "measures": ("smoothness.json", measures_table),
    "decoded_parts": ("parts.json", parts_table),
    "depth": ("depth.json", depth_table),
    "plateau": ("plateau.json", plateau_table),
    "connectivity": ("connectivity.json", connectivity_table),
    "recalibration": ("recalibration.json", recalibration_table),
    "recalibration_low_rates": ("recalibration-low-rates.json", recalibration_table),
    "published_parts": ("published-parts.json", parts_table),
    "published_roughness": ("published-smoothness.json", published_roughness_table),
    "published_shares": ("published-shares.json", published_shares_table),
    "published_shares_digits": ("published-shares-digits.json", published_shares_table),
}
BLOCKS = (*TABLES, "runs", "main", "comparisons", "baselines", *FINDINGS)


def block(name: str, results: Path) -> str:
    """The Markdown of one of ``BLOCKS``; empty without records."""
    if name in FINDINGS:
        record, text = FINDINGS[name]
        path = results / "analysis" / record
        parts = [text(read_analysis(path))] if path.is_file() else []
    elif name in TABLES:
        parts = list(experiment_tables(TABLES[name], results))
    elif name == "baselines":
        records = [read_analysis(path) for path in (results / "analysis").glob("baselines-*.json")]
        parts = baseline_tables(sorted(records, key=lambda record: list(record.settings.values())))
    elif name == "runs":
        reproductions = all_reproductions(results)
        parts = [markdown(overview(reproductions), title=False)] if any(each.done for each in reproductions) else []
    else:
        parts = claim_tables(name, published_runs(TABLES.values(), results))
    return "".join(f"\n{part}\n\n" for part in parts)


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The tables of the pages, from the records.")
    parser.add_argument("pages", nargs="*", type=Path, help="pages with markers such as <!-- table2 -->")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the records")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a page is out of date")
    args = parser.parse_args(arguments)
    if not args.pages:
        print("".join(block(name, args.results) for name in BLOCKS).strip())
    stale = 0
    for page in args.pages:
        text = page.read_text(encoding="utf-8")
        updated = filled(text, args.results)
        if updated != text:
            stale += 1
            print(f"{page}: {'out of date' if args.check else 'written'}")
            if not args.check:
                atomic_write(page, updated.encode())
    return int(args.check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
