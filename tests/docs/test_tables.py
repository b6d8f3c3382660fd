"""Tables from records, and the pages that contain them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from docs.make_tables import BLOCKS, block, claims_table, filled, main, main_table, published_runs

import geoskip
from geoskip.paper.claims import ClaimResult, judge_all
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.findings import MEASURES, AnalysisRecord, compare_measures, read_analysis, write_analysis
from geoskip.paper.reproduction import cell, experiment_table
from geoskip.report.html_tables import HOLDS
from tests.paper.runs import job_of, kept, papers_own, record_of, row_named

ROOT = Path(geoskip.__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MONET = row_named("table1", "MoNet M=9")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_hold_what_the_records_give(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert filled(text, ROOT / "results") == text, f"run: python docs/make_tables.py {page.relative_to(ROOT)}"


def skips_page() -> str:
    return " ".join((ROOT / "docs" / "what-skips-learn.md").read_text(encoding="utf-8").split())


def analysis(name: str) -> AnalysisRecord:
    return read_analysis(ROOT / "results" / "analysis" / f"{name}.json")


def span(values: Iterable[float]) -> str:
    numbers = list(values)
    return f"{min(numbers):.0f} to {max(numbers):.0f} %"


def test_shares_on_the_page_about_skips_are_those_of_the_records() -> None:
    page, published = skips_page(), []
    for name in ("published-shares", "published-shares-digits"):
        rows = analysis(name).rows
        last = max(row["step"] for row in rows)
        published.append(span(100 * row["share"] for row in rows if row["step"] == last))
    assert f"{published[0]} by layer in the published Aff-MoNet of faces, {published[1]} in that of superpixels" in page
    rows = analysis("shares").rows
    last, ends = max(row["step"] for row in rows), dict[tuple[str, str], list[float]]()
    for row in rows:
        operator, skip, _ = row["run"].split("-")
        if row["step"] == last and skip == "affine":
            ends.setdefault((operator, row["layer"]), []).append(100 * row["share"])
    means = {key: fmean(shares) for key, shares in ends.items()}
    splines, others = ([mean for (name, _), mean in means.items() if (name == "spline") == by] for by in (True, False))
    assert f"{span(others)} by layer in Aff-MoNet and Aff-ChebNet, and {span(splines)} in Aff-SplineCNN" in page


def test_parts_on_the_page_about_skips_are_those_of_the_records() -> None:
    page = skips_page()
    parts = {row["part"]: row for row in analysis("published-parts").rows if row["layer"] == "all"}
    skips, mean, convs = (parts[part] for part in ("affine", "mean", "convolution"))
    assert skips["distance_mm"] < mean["distance_mm"] < convs["distance_mm"]
    left = f"{100 * skips['variation']:.0f} % of the variation between samples"
    assert page.count(left) == 2
    assert (
        f"closer to the whole output ({skips['distance_mm']:.2f} mm) than the mean face is ({mean['distance_mm']:.2f}"
        in page
    )
    assert f"further away ({convs['distance_mm']:.2f} mm)" in page
    assert f"vary more ({100 * convs['variation']:.0f} %)" in page
    assert f"{skips['bumps']:.3g} and {mean['bumps']:.2g} of the bumps" in page
    distances: dict[tuple[str, str], list[float]] = {}
    left_over: dict[str, list[float]] = {}
    for row in analysis("parts").rows:
        if row["layer"] == "all":
            method = row["run"].rsplit("-", 1)[0]
            distances.setdefault((method, row["part"]), []).append(row["distance_mm"])
            if row["part"] == "affine":
                left_over.setdefault(method, []).append(100 * row["variation"])
    for method in left_over:
        closer = fmean(distances[method, "affine"]) < fmean(distances[method, "mean"])
        assert closer == (not method.startswith("cheb"))
    assert f"They keep {span(map(fmean, left_over.values()))} of the variation." in page


def test_smoothness_on_the_page_about_skips_is_that_of_the_record() -> None:
    page, rows = skips_page(), analysis("smoothness").rows
    ratios = {operator: compare_measures(rows, operator, "affine") for operator in ("spline", "cheb", "monet")}
    equal = [measure["equal loss"] for measure in ratios["spline"].values()]
    low, high = (choose(ratio.mean for ratio in equal) for choose in (min, max))
    assert f"filters of SplineCNN are rougher, at equal loss by × {low:.2f} to × {high:.2f}" in page
    assert all(ratio.interval is not None and ratio.interval[0] > 1 for ratio in equal)
    assert all(abs(ratio.mean - 1) < 0.03 for measure in ratios["cheb"].values() for ratio in measure.values())
    for ratio in (ratio for measure in ratios["monet"].values() for ratio in measure.values()):
        assert ratio.interval is not None
        assert ratio.interval[0] < 1 < ratio.interval[1]
    (published,) = analysis("published-smoothness").rows
    assert all(published["end"]["overall"][name] > published["start"]["overall"][name] for name in MEASURES)


def test_recalibration_on_the_page_about_skips_is_that_of_the_record() -> None:
    page, record = skips_page(), analysis("recalibration")
    gaps: dict[int, list[float]] = {}
    for row in record.rows:
        gaps.setdefault(row["epoch"], []).append(row["recalibrated_pct"] - row["running_pct"])
    assert min(min(values) for values in gaps.values()) > 0, "after every epoch, with every seed"
    assert f"cost {fmean(gaps[20]):.1f} points on average at the end of 20 epochs" in page
    quarters = [fmean(fmean(gaps[epoch]) for epoch in range(first, first + 5)) for first in (1, 6, 11, 16)]
    assert quarters[3] == min(quarters)
    jumps = [
        abs(after["running_pct"] - before["running_pct"])
        for before, after in pairwise(record.rows)
        if before["seed"] == after["seed"]
    ]
    assert f"jump by up to {max(jumps):.0f} points" in page
    low = [row for row in analysis("recalibration-low-rates").rows if row["rate"] < 2.5e-5]
    assert len(low) == 3 * 8
    assert abs(fmean(row["recalibrated_pct"] - row["running_pct"] for row in low)) < 0.1, "no gap left"


def test_the_summary_of_the_results_is_that_of_the_records() -> None:
    page = " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())
    judged = [
        result for result in judge_all(published_runs(EXPERIMENTS.values(), ROOT / "results")) if result.p is not None
    ]
    plain, residual = (
        [result for result in judged if result.claim.subject == subject]
        for subject in ("an affine skip helps", "an affine skip helps more than a residual one")
    )
    better, holds = ([[check(r) for r in rows].count(True) for rows in (plain, residual)] for check in (gains, held))
    assert f"better than no skip in {better[0]} of {len(plain)} comparisons" in page
    assert f"better than residual skips in all {better[1]}; {holds[0]} and {holds[1]} of these are significant" in page
    assert better[1] == len(residual)


def gains(result: ClaimResult) -> bool:
    return result.comparison.gain > 0


def held(result: ClaimResult) -> bool:
    return result.verdict == HOLDS


def test_affine_skips_help_most_where_operators_do_worst_without_one() -> None:
    """As README and docs/results.md say; variants without the center vertex are left out."""
    groups = published_runs(EXPERIMENTS.values(), ROOT / "results")
    gains: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for result in judge_all(groups):
        row, key = result.rival, (result.data, result.schedule)
        if result.claim.subject == "an affine skip helps" and result.p is not None and not row.options:
            figures = [record.metrics[result.claim.metric] for record in groups[key][row].values()]
            goodness = fmean(figures) * (-1 if result.claim.unit.better == "lower" else 1)
            gains.setdefault(key, []).append((goodness, result.comparison.gain))
    assert sorted(map(len, gains.values())) == [1, 2, 3, 3]
    for pairs in gains.values():
        assert sorted(pairs) == sorted(pairs, key=lambda pair: -pair[1])


def test_a_figure_that_no_record_gives_is_seen(tmp_path: Path) -> None:
    kept(job_of(MONET), tmp_path, mean_mm=0.5, std_mm=0.1, median_mm=0.4)
    page = filled("<!-- table1 -->\n<!-- /table1 -->\n", tmp_path)
    assert "| MoNet |" in page
    assert filled(page, tmp_path) == page
    invented = page.replace("0.500", "0.400")
    assert invented != page
    assert filled(invented, tmp_path) == page
    kept(job_of(MONET), tmp_path, mean_mm=0.6, std_mm=0.1, median_mm=0.4)
    assert filled(page, tmp_path) != page


def test_without_records_tables_say_nothing(tmp_path: Path) -> None:
    for name in BLOCKS:
        assert block(name, tmp_path) == ""
    assert (
        filled("a\n<!-- comparisons -->\nold\n<!-- /comparisons -->\nb\n", tmp_path)
        == "a\n<!-- comparisons -->\n<!-- /comparisons -->\nb\n"
    )


def test_tiny_runs_are_not_published(tmp_path: Path) -> None:
    kept(job_of(MONET, schedule="smoke", data="tiny"), tmp_path, mean_mm=0.5)
    kept(job_of(MONET, schedule="full", data="tiny"), tmp_path, mean_mm=0.5)
    assert block("table1", tmp_path) == ""


def test_baselines_are_rows_of_the_table_of_their_data(tmp_path: Path) -> None:
    for data in ("faces", "coma"):
        kept(job_of(MONET, data=data), tmp_path, mean_mm=0.5, median_mm=0.4)
    rows = [{"method": "PCA 16", "mean_mm": 0.71, "median_mm": 0.56}]
    write_analysis(tmp_path / "analysis" / "baselines-faces.json", AnalysisRecord("baselines", {}, rows, 1.0))
    coma, faces = block("table1", tmp_path).split("**Shape reconstruction (Table 1): ")[1:]
    assert "| PCA 16 | 0.710 | 0.710 | 0.710 |" in faces
    assert "PCA" not in coma
    assert "PCA" not in block("center_ablation", tmp_path)


def test_baselines_have_a_column_per_data_set_and_split(tmp_path: Path) -> None:
    def keep(name: str, settings: dict[str, str], *rows: dict[str, object]) -> None:
        path = tmp_path / "analysis" / f"baselines-{name}.json"
        write_analysis(path, AnalysisRecord("baselines", settings, rows, 1.0))

    pca = {"method": "PCA 16", "mean_mm": 0.71, "median_mm": 0.56}
    keep("a-people", {"data": "a", "split": "people"}, pca, {"method": "MLP 16", "mean_mm": 1.0, "median_mm": 0.9})
    keep("a", {"data": "a"}, pca)
    keep("b", {"data": "b"}, {"method": "majority", "accuracy_pct": 55.83, "seen_pct": 100.0})
    lines = [line for line in block("baselines", tmp_path).splitlines() if line.startswith("| ")]
    assert lines == [
        "|  | `a` | `a`, `people` unseen |",
        "| PCA 16 | 0.710 (0.560) | 0.710 (0.560) |",
        "| MLP 16 | – | 1.000 (0.900) |",
        "|  | `b` |",
        "| majority | 55.8 |",
        "| test vertices whose color occurs in training | 100 |",
    ]


def test_schedules_and_data_are_not_mixed(tmp_path: Path) -> None:
    for schedule, data, value in [("short", "faces", 0.7), ("full", "faces", 0.6), ("full", "coma", 0.5)]:
        kept(job_of(MONET, schedule=schedule, data=data), tmp_path, mean_mm=value)
    found = block("table1", tmp_path).split("**Shape reconstruction (Table 1): ")[1:]
    assert [("0.500" in part, "0.600" in part, "0.700" in part) for part in found] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert (
        "data coma; schedule full (300 epochs, rate 0.001 × 0.99 each); seeds 1; test device; commit and data key not"
        in found[0]
    )
    assert "data faces; schedule short (6 epochs" in found[2]


def test_cells() -> None:
    records = {
        seed: record_of(job_of(MONET, seed), {"mean_mm": value}) for seed, value in enumerate((0.50, 0.52, 0.54))
    }
    # t of 0.975 and 2 degrees of freedom is 4.303; the standard deviation is 0.02.
    assert cell(MONET, records, "mean_mm") == f"0.520 ± {4.303 * 0.02 / 3**0.5:.3f} (0.528)"
    assert cell(MONET, {0: records[0]}, "mean_mm") == "0.500 (0.528)"
    assert cell(MONET, {}, "mean_mm") == "– (0.528)"
    assert cell(MONET, {0: records[0]}, "mean_mm", comparable=False) == "0.500"
    assert cell(row_named("spline_supplement", "SplineCNN m=3"), {}, "mean_mm") == "–"


def test_figures_of_the_paper_stand_only_next_to_those_on_its_data(tmp_path: Path) -> None:
    """Bodies in motion replace none of the paper's data sets: no figures in brackets, no claims, no main result."""
    aff = row_named("table1", "Aff-MoNet M=9")
    for row, data in [(MONET, "faces"), (aff, "faces"), (MONET, "moving-bodies"), (aff, "moving-bodies")]:
        for seed in range(3):
            kept(job_of(row, seed, data=data), tmp_path, mean_mm=0.5 + 0.01 * seed)
    faces, bodies = block("table1", tmp_path).split("**Shape reconstruction (Table 1): ")[1:]
    assert faces.startswith("faces**")
    assert "(0.528)" in faces
    assert bodies.startswith("moving-bodies**")
    assert "0.510 ± 0.025 |" in bodies
    assert "(0.528)" not in bodies
    assert "the paper's figure" not in bodies
    for name in ("main", "comparisons", "table3"):
        assert "moving-bodies" not in block(name, tmp_path)


def test_layout_follows_the_paper() -> None:
    table = experiment_table(EXPERIMENTS["table1"], {})
    assert table.header == ("method", "M=4", "M=9", "M=14")
    assert len(table.lines) == 14
    assert table.lines[-1] == ("Aff-MoNet", "– (0.499)", "– (0.406)", "– (0.347)")
    both = experiment_table(EXPERIMENTS["table1"], {}, num_metrics=2)
    assert both.header[1:3] == ("M=4: mean error, mm", "M=4: median error, mm")
    table = experiment_table(EXPERIMENTS["table2"], {}, num_metrics=2)
    assert table.header == ("method", "accuracy, %")
    assert table.lines[-1] == ("Aff-MoNet (position)", "– (97.14)")
    table = experiment_table(EXPERIMENTS["table3"], {})
    assert table.header[1:] == (
        "reconstruction: mean error, mm",
        "correspondence: accuracy, %",
        "classification: accuracy, %",
    )
    assert table.lines[-1] == ("Aff-FeaStNet†", "– (0.463)", "– (94.36)", "– (60.07)")
    table = experiment_table(EXPERIMENTS["spline_supplement"], {})
    assert table.header == ("method", "m=1", "m=2", "m=3", "m=4", "m=5", "M=8")
    assert table.lines[0] == ("SplineCNN", "–", "– (0.605)", "–", "–", "–", "")


def test_seeds_are_told(tmp_path: Path) -> None:
    for seed in range(3):
        kept(job_of(MONET, seed), tmp_path, mean_mm=0.5)
    kept(job_of(row_named("table1", "Aff-MoNet M=9")), tmp_path, mean_mm=0.5)
    assert "seeds 1 to 3;" in block("table1", tmp_path)


def claim_counts(results: Path, subject: str = "an affine skip helps") -> tuple[str, ...]:
    """The counts of one claim: comparisons, holds, same direction, opposite direction, fails, one seed."""
    table = claims_table(judge_all(published_runs(EXPERIMENTS.values(), results)))
    (counts,) = (line[1:] for line in table.lines if line[0] == subject)
    return counts


def test_one_line_per_claim(tmp_path: Path) -> None:
    plain, affine = (row_named("table2", name) for name in ("GCN", "Aff-GCN"))
    kept(job_of(plain, 0), tmp_path, accuracy_pct=40.0)
    kept(job_of(affine, 0), tmp_path, accuracy_pct=50.0)
    assert claim_counts(tmp_path) == ("–", "–", "–", "–", "–", "1")
    for seed in range(3):
        kept(job_of(plain, seed), tmp_path, accuracy_pct=40.0 + seed)
        kept(job_of(affine, seed), tmp_path, accuracy_pct=50.0 + 1.01 * seed)
    assert claim_counts(tmp_path) == ("1", "1", "–", "–", "–", "–")
    assert claim_counts(tmp_path, "**all**") == ("1", "1", "–", "–", "–", "–")
    assert "| an affine skip helps | 1 | 1 | – | – | – | – |" in block("main", tmp_path)
    for seed, accuracy in enumerate((60.0, 45.0, 41.0)):
        kept(job_of(affine, seed), tmp_path, accuracy_pct=accuracy)
    assert claim_counts(tmp_path) == ("1", "–", "1", "–", "–", "–")
    for seed in range(3):
        kept(job_of(affine, seed), tmp_path, accuracy_pct=30.0 + 1.01 * seed)
    assert claim_counts(tmp_path) == ("1", "–", "–", "–", "1", "–")


def test_claims_of_the_paper_as_tables(tmp_path: Path) -> None:
    papers_own(tmp_path, seeds=2)
    assert claim_counts(tmp_path) == ("18", "18", "–", "–", "–", "–")
    everything = claim_counts(tmp_path, "**all**")
    assert everything[0] == everything[1] == "66", "two of the 68 comparisons serve two claims"
    comparison = (
        "| an affine skip helps more than a residual one | Aff-MoNet M=9 | Res-MoNet M=9 | faces, short | 0.020 mm "
        "| 0.020 ± 0.000 mm | 2 | < 0.001 | holds |"
    )
    assert comparison in block("comparisons", tmp_path)


def test_operators_down_and_skips_across(tmp_path: Path) -> None:
    papers_own(tmp_path, seeds=1)
    table = main_table(published_runs(EXPERIMENTS.values(), tmp_path))
    assert table.header == ("task, data, training", "operator", "plain", "residual", "affine")
    tasks = {task: [line[1:] for line in table.lines if line[0] == task] for task, *_ in table.lines}
    faces, digits, bodies = tasks.values()
    assert list(tasks) == [
        "Shape reconstruction, faces, 6 epochs: mean error, mm",
        "Graph classification, superpixels, 20 epochs: accuracy, %",
        "Dense correspondence, bodies, 300 epochs: accuracy, %",
    ]
    assert [line[0] for line in faces] == ["ChebNet M=9", "SpiralNet++ M=9", "FeaStNet M=9", "MoNet M=9"]
    assert faces[0] == ("ChebNet M=9", "0.438 (0.438)", "0.444 (0.444)", "")
    assert faces[-1] == ("MoNet M=9", "0.528 (0.528)", "0.426 (0.426)", "0.406 (0.406)")
    assert [line[0] for line in digits] == ["GCN", "FeaStNet M=25", "MoNet (degree) M=25", "MoNet (position) M=25"]
    assert digits[0] == ("GCN", "31.21 (31.21)", "42.32 (42.32)", "58.96 (58.96)")
    assert [line[0] for line in bodies] == ["FeaStNet M=10", "FeaStNet† M=10", "MoNet M=10", "GCN"]


def test_operators_without_runs_are_left_out(tmp_path: Path) -> None:
    kept(job_of(row_named("table2", "Aff-GCN")), tmp_path, accuracy_pct=50.0)
    (line,) = main_table(published_runs(EXPERIMENTS.values(), tmp_path)).lines
    assert line[1:] == ("GCN", "– (31.21)", "– (42.32)", "50.00 (58.96)")
    assert "50.00" in block("main", tmp_path)
    assert "claim" not in block("main", tmp_path), "nothing was compared"


def test_every_schedule_of_a_task_has_a_column(tmp_path: Path) -> None:
    """Table 3 has three tasks."""
    faces, digits = (row_named("table3", label) for label in ("FeaStNet† M=9", "FeaStNet† M=25"))
    for schedule, error in (("first60", 0.5), ("short", 0.75)):
        kept(job_of(faces, schedule=schedule), tmp_path, mean_mm=error)
    kept(job_of(digits, schedule="first200"), tmp_path, accuracy_pct=50.0)
    lines = block("table3", tmp_path).splitlines()
    header, cells = (
        next(line.split(" | ") for line in lines if line.startswith(f"| {of} |")) for of in ("method", "FeaStNet†")
    )
    assert header[1:] == [
        "faces, 60 epochs: mean error, mm",
        "faces, 6 epochs: mean error, mm",
        "superpixels, 200 epochs: accuracy, % |",
    ]
    assert [cell.split()[0] for cell in cells[1:]] == ["0.500", "0.750", "50.00"]


def test_blocks_of_others_are_left_alone(tmp_path: Path) -> None:
    page = "<!-- pairs -->\nof another kind\n<!-- /pairs -->\n"
    assert filled(page, tmp_path) == page


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("<!-- table9 -->\n<!-- /table9 -->", "page: unknown block <!-- table9 -->; did you mean table3"),
        ("<!-- table1 -->\n", "page: <!-- table1 --> is not closed by <!-- /table1 -->"),
    ],
)
def test_wrong_markers(page: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=complaint):
        filled(page, tmp_path)


def test_the_script_prints_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, page = tmp_path / "results", tmp_path / "page.md"
    kept(job_of(MONET), results, mean_mm=0.5)
    assert main(["--results", str(results)]) == 0
    assert "| MoNet |" in capsys.readouterr().out
    page.write_text("<!-- table1 -->\n<!-- /table1 -->\n", encoding="utf-8")
    assert main([str(page), "--check", "--results", str(results)]) == 1
    assert capsys.readouterr().out == f"{page}: out of date\n"
    assert "MoNet" not in page.read_text(encoding="utf-8")
    assert main([str(page), "--results", str(results)]) == 0
    assert "| MoNet |" in page.read_text(encoding="utf-8")
    assert main([str(page), "--check", "--results", str(results)]) == 0
