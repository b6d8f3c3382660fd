from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.records.statistics import summarize
from geoskip.report.charts import MAX_POINTS, STYLE, Chart, charts, write_charts
from geoskip.report.html_tables import headlines
from tests.report.made_runs import made_run, result_tables

TABLE1, MATCHING = EXPERIMENTS["table1"], EXPERIMENTS["correspondence"]


def by_key(runs: list) -> dict[str, Chart]:
    return {chart.key: chart for chart in charts(result_tables(runs))}


def test_curves_are_means_over_seeds_in_a_band() -> None:
    points = [[(1.0, 4.0), (2.0, 2.0), (3.0, 1.0)], [(1.0, 2.0), (2.0, 1.0)]]
    runs = [made_run(TABLE1.rows[0], "faces", s, curves={"loss": curve}) for s, curve in enumerate(points)]
    (series,) = by_key(runs)["e0-loss"].series
    assert series.points == ((1.0, 3.0), (2.0, 1.5))
    assert (series.low, series.high) == ((2.0, 1.0), (4.0, 2.0))


def test_long_curves_keep_their_ends() -> None:
    curve = [(float(x), 1.0 / (x + 1)) for x in range(1001)]
    (series,) = by_key([made_run(TABLE1.rows[0], "faces", 0, curves={"loss": curve})])["e0-loss"].series
    assert len(series.points) <= MAX_POINTS + 1
    assert (series.points[0], series.points[-1]) == (curve[0], curve[-1])
    assert series.low == ()


def test_seeds_without_a_common_epoch_have_no_curve() -> None:
    runs = [made_run(TABLE1.rows[0], "faces", s, curves={"loss": [(float(s), 1.0)]}) for s in (0, 1)]
    assert "e0-loss" not in by_key(runs)


def test_error_against_kernel_size_and_parameters() -> None:
    runs = [made_run(row, "faces", 0) for row in TABLE1.select(["Aff-MoNet"])]
    found = by_key(runs)
    ours, paper = found["e0-size"].series
    assert [x for x, _ in ours.points] == [4.0, 9.0, 14.0]
    assert [y for _, y in ours.points] == [run.record.metrics["mean_mm"] for run in runs]
    assert paper.points == tuple(
        (x, run.record.paper["mean_mm"]) for x, run in zip((4.0, 9.0, 14.0), runs, strict=True)
    )
    assert paper.paper
    assert [x for x, _ in found["e0-parameters"].series[0].points] == [105195.0, 167865.0, 230535.0]


def test_splines_are_drawn_at_their_number_of_matrices() -> None:
    rows = EXPERIMENTS["spline_supplement"].rows
    runs = [made_run(row, "faces", 0, metrics={"mean_mm": 1.0}) for row in rows]
    found = by_key(runs)
    chart = found["e0-size"]
    places = {series.name: [x for x, _ in series.points] for series in chart.series}
    assert places["SplineCNN"] == [1.0, 8.0, 27.0, 64.0, 125.0]
    assert places["MoNet"] == places["MoNet, paper"] == places["SplineCNN, paper"] == [8.0]
    assert places["Aff-SplineCNN, paper"] == [8.0, 125.0]
    assert "M = m³" in chart.text
    groups = {series.name: series.group for series in found["e0-loss"].series}
    assert (groups["SplineCNN m=2"], groups["MoNet M=8"]) == ("SplineCNN, M = 8", "MoNet, M = 8")


def test_the_papers_marks_stand_at_its_own_numbers_of_parameters() -> None:
    rows = TABLE1.select(["Aff-MoNet"])
    chart = by_key([made_run(row, "faces", 0, parameters=100 * n) for n, row in enumerate(rows, 1)])["e0-parameters"]
    ours, paper = chart.series
    assert [x for x, _ in ours.points] == [100.0, 200.0, 300.0]
    assert [x for x, _ in paper.points] == [float(row.figures["params"]) for row in rows]
    assert chart.text.endswith("results, at its own parameter counts.")


def test_where_the_papers_numbers_of_parameters_are_not_known_ours_stand_in() -> None:
    rows = EXPERIMENTS["spline_supplement"].select(["MoNet M=8", "SplineCNN m=2"])
    runs = [made_run(row, "faces", 0, parameters=100 * n) for n, row in enumerate(rows, 1)]
    chart = by_key(runs)["e0-parameters"]
    places = {series.name: series.points[0][0] for series in chart.series}
    assert places == {"SplineCNN": 100.0, "SplineCNN, paper": 100.0, "MoNet": 200.0, "MoNet, paper": 200.0}
    assert chart.text.endswith("results, at our parameter counts.")
    known = made_run(TABLE1.select(["MoNet M=9"])[0], "faces", 0, experiment="spline_supplement")
    assert by_key([*runs, known])["e0-parameters"].text.endswith("at our parameter counts."), "of another table"


def test_bars_are_the_intervals_of_the_tables() -> None:
    rows = TABLE1.select(["Aff-MoNet"])
    chart = by_key([made_run(row, "faces", seed) for row in rows for seed in (0, 1, 2)])["e0-size"]
    values = [made_run(rows[0], "faces", seed).record.metrics["mean_mm"] for seed in (0, 1, 2)]
    half = summarize(values).half or 0.0
    assert chart.series[0].high[0] - chart.series[0].low[0] == pytest.approx(2 * half)
    assert "95 %" in chart.text


def test_marks_at_one_size_stand_side_by_side_in_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain and residual rows have equally many parameters; none hides another, and the table keeps the numbers."""
    runs = [made_run(row, "faces", seed) for row in TABLE1.select(["*MoNet M=9"]) for seed in (0, 1)]
    chart = by_key(runs)["e0-parameters"]
    drawn: list[float] = []
    plot = Axes.plot

    def plotted(axes: Axes, x: Sequence[float], *rest: Any, **more: Any) -> Any:
        drawn.extend(x)
        return plot(axes, x, *rest, **more)

    monkeypatch.setattr(Axes, "plot", plotted)
    write_charts([chart], tmp_path, ["png"])
    true = [x for series in chart.series for x, _ in series.points]
    assert len(set(true)) < len(true) == len(drawn)
    width = max(true) - min(true)
    assert min(b - a for a, b in pairwise(sorted(drawn))) > 0.01 * width
    assert max(abs(a - b) for a, b in zip(drawn, true, strict=True)) < 0.1 * width


def test_a_short_run_has_whole_epochs_at_its_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[float] = []
    save = Figure.savefig

    def saved(figure: Figure, *rest: Any, **more: Any) -> Any:
        ticks.extend(figure.axes[0].get_xticks())
        return save(figure, *rest, **more)

    monkeypatch.setattr(Figure, "savefig", saved)
    curve = [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]
    chart = by_key([made_run(TABLE1.rows[0], "faces", 0, curves={"loss": curve})])["e0-loss"]
    write_charts([chart], tmp_path, ["png"])
    assert {1.0, 2.0, 3.0} <= set(ticks)
    assert all(tick.is_integer() for tick in ticks)


def test_titles_are_distinct() -> None:
    """Tables with the same data, and with the same title under two schedules."""
    rows = [*TABLE1.rows, *(r for r in EXPERIMENTS["table3"].rows if r.home == "table3" and r.column == 9)]
    runs = [made_run(row, "faces", 0, schedule=schedule) for row in rows for schedule in ("short", "full")]
    tables = result_tables(runs)
    for titled in (tables, charts(tables), headlines(tables).values()):
        titles = [one.title for one in titled]
        assert len(titles) == len(set(titles)) > 1


def test_a_chart_of_a_table_has_all_of_its_rows() -> None:
    """Table 3 compares FeaStNet† with rows of Table 1; a table without rows of its own has no charts."""
    rows = [*EXPERIMENTS["table3"].rows[:4], *EXPERIMENTS["correspondence"].rows]
    found = charts(result_tables([made_run(row, "faces" if row.column == 9 else "bodies", 0) for row in rows]))
    (chart,) = (chart for chart in found if chart.title.startswith("Self-loops") and chart.name == "Training loss")
    assert {series.name for series in chart.series} == {f"{n} M=9" for n in (
        "FeaStNet", "Aff-FeaStNet", "FeaStNet†", "Aff-FeaStNet†")}  # fmt: skip
    assert not any(chart.title.startswith("Self-loops") and "bodies" in chart.title for chart in found)


def test_variants_of_one_size_have_no_chart_of_sizes() -> None:
    (row,) = EXPERIMENTS["table2"].select(["GCN"])
    runs = [made_run(row, "superpixels", 0, row=f"GCN, {name}") for name in "ab"]
    runs.append(made_run(EXPERIMENTS["table2"].select(["Aff-GCN"])[0], "superpixels", 0))
    assert set(by_key(runs)) == {"e0-loss"}


def test_one_size_is_no_chart() -> None:
    assert "e0-size" not in by_key([made_run(row, "faces", 0) for row in TABLE1.select(["Aff-MoNet M=9"])])


def test_the_cumulative_geodesic_error_has_a_chart() -> None:
    chart = by_key([made_run(row, "bodies", 0) for row in MATCHING.rows])["e0-geodesic"]
    assert len(chart.series) == len(MATCHING.rows)
    assert all(series.points[-1][0] == 10.0 for series in chart.series)


def test_the_group_with_most_skips_is_looked_at_first() -> None:
    runs = [made_run(row, "faces", 0) for row in TABLE1.rows]
    assert by_key(runs)["e0-size"].first == "MoNet"
    variants = {series.name: series.variant for series in by_key(runs)["e0-size"].series}
    assert (variants["MoNet+"], variants["ChebNet†"], variants["SpiralNet++"], variants["MoNet"]) == ("+", "†", "", "")


def test_words_and_lines_are_of_what_there_is() -> None:
    """A user's own runs: no figures of the paper, one kind of pseudo-coordinates, one seed, one epoch."""
    runs = [made_run(row, "mine", 0, paper={}, curves={"loss": [(1.0, 0.5)]}) for row in TABLE1.select(["*MoNet M=9"])]
    runs = [
        replace(run, record=replace(run.record, config={**run.record.config, "pseudo": "position"})) for run in runs
    ]
    found = by_key(runs)
    assert "e0-loss" not in found
    assert "paper" not in found["e0-parameters"].text
    assert [series.name for series in found["e0-parameters"].series] == ["MoNet", "Res-MoNet", "Aff-MoNet"]
    longer = [replace(run, record=replace(run.record, curves={"loss": [(1.0, 0.5), (2.0, 0.4)]})) for run in runs]
    assert "seed" not in by_key(longer)["e0-loss"].text


def test_figures_are_written_and_the_same_each_time(tmp_path: Path) -> None:
    runs = [made_run(row, "$data$", 0) for row in TABLE1.select(["*MoNet*"])]
    found = charts(result_tables(runs))
    paths = write_charts(found, tmp_path / "a")
    again = write_charts(found, tmp_path / "b")
    assert sorted(path.name for path in paths) == sorted(f"{c.key}.{end}" for c in found for end in ("png", "svg"))
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert "Aff-MoNet" in (tmp_path / "a" / "e0-size.svg").read_text()
    assert "$data$" in (tmp_path / "a" / "e0-size.svg").read_text()


def test_titles_and_legends_of_figures_do_not_cover_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few lines and with many, and under the longest title of the paper's tables."""
    rows = [*TABLE1.rows, *EXPERIMENTS["superpixel_ablation"].rows]
    found = charts(result_tables([made_run(r, "faces" if r in TABLE1.rows else "superpixels", 0) for r in rows]))
    assert max(len(chart.series) for chart in found) > 20
    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **more: figures.append(figure))
    write_charts(found, tmp_path, ["png"])
    monkeypatch.setattr(Figure, "savefig", save)
    for figure in figures:
        with matplotlib.rc_context(STYLE):
            FigureCanvasAgg(figure).draw()
        (legend,), (axes,) = figure.legends, figure.axes
        texts = [text for text in axes.get_children() if isinstance(text, Text) and text.get_text()]
        (title,) = [text.get_window_extent() for text in texts]
        assert 0 <= title.x0 < title.x1 <= figure.bbox.width
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        assert not box.overlaps(title)
        inside = axes.get_tightbbox()
        assert inside is not None
        assert not box.overlaps(inside)


def test_figures_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = charts(result_tables([made_run(TABLE1.rows[0], "faces", 0)]))
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[plots\]"):
        write_charts(found, tmp_path)
