import statistics
from dataclasses import replace

import pytest

from geoskip.paper.claims import claim_rows
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.rows import PaperRow
from geoskip.records.statistics import summarize
from geoskip.report.charts import charts
from geoskip.report.html_tables import best, headline_html, headlines, headlines_html, result_table_html
from geoskip.report.page import Page, describe_training, page_html
from geoskip.report.runs import ReportRun, describe_task
from geoskip.report.summary import ResultTable
from tests.report.made_runs import made_run, result_tables

TABLE1 = EXPERIMENTS["table1"]
RUNS = [made_run(row, "faces", seed) for row in TABLE1.rows for seed in (0, 1, 2)]


def test_seeds_of_a_row_are_summed_up() -> None:
    (experiment,) = result_tables(RUNS)
    assert len(experiment.rows) == len(TABLE1.rows)
    for row in experiment.rows:
        values = [run.record.metrics["mean_mm"] for run in row.runs]
        assert row.metrics["mean_mm"].mean == pytest.approx(statistics.fmean(values))
        assert row.metrics["mean_mm"] == summarize(values), "the interval of the tables in Markdown"
        assert [run.record.seed for run in row.runs] == [0, 1, 2]


def test_data_and_schedules_are_kept_apart() -> None:
    runs = [made_run(TABLE1.rows[0], data, 0, schedule=s) for data in ("faces", "coma") for s in ("short", "full")]
    found = result_tables(runs)
    assert [(e.data, e.schedule) for e in found] == [(d, s) for d in ("faces", "coma") for s in ("short", "full")]
    path = made_run(TABLE1.rows[0], "/home/someone/data/mine", 0)
    assert result_tables([path])[0].data == "mine"


def test_runs_that_differ_in_more_than_their_seed_are_no_seeds_of_one_row() -> None:
    """Two rates under one name: two rows, each beside the plain one of its own rate."""
    plain, affine = TABLE1.select(["MoNet M=9", "Aff-MoNet M=9"])

    def trained(row: PaperRow, rate: float, seed: int) -> ReportRun:
        run = made_run(row, "faces", seed)
        return replace(run, record=replace(run.record, config={**run.record.config, "optim": {"lr": rate}}))

    runs = [trained(affine, rate, seed) for rate in (0.1, 0.01) for seed in (0, 1)]
    (experiment,) = result_tables([*runs, trained(plain, 0.01, 0)])
    assert [(row.label, len(row.runs)) for row in experiment.rows] == [
        ("MoNet M=9, optim.lr=0.01", 1),
        ("Aff-MoNet M=9, optim.lr=0.01", 2),
        ("Aff-MoNet M=9, optim.lr=0.1", 2),
    ]
    assert experiment.rows[0].group == experiment.rows[1].group != experiment.rows[2].group
    assert "optim.lr=0.1<" in result_table_html(experiment)
    elsewhere = [
        replace(run, record=replace(run.record, config={**run.record.config, "device": "cuda"})) for run in runs[:1]
    ]
    (experiment,) = result_tables([*runs[1:2], *elsewhere])
    assert [row.group.variant for row in experiment.rows] == [""]


def test_groups_and_best_are_those_of_the_paper() -> None:
    """The figures that the paper prints in bold are the best of our groups."""
    (experiment,) = result_tables(RUNS)
    (mean, *_) = experiment.description.metrics
    groups = {row.group: [r for r in experiment.rows if r.group == row.group] for row in experiment.rows}
    assert len(groups) == 4 * 3
    bold = {best(members, mean)[1] for members in groups.values()}
    assert {0.520, 0.554, 0.543, 0.499, 0.438, 0.426, 0.470, 0.406, 0.407, 0.383, 0.431, 0.347} == bold


def test_one_row_alone_is_not_the_best_of_anything() -> None:
    (experiment,) = result_tables(RUNS[:3])
    assert best(list(experiment.rows), experiment.description.metrics[0]) == (None, None)
    assert "<b>" not in result_table_html(experiment)


def test_tables_have_every_row_with_its_spread_and_the_paper() -> None:
    (experiment,) = result_tables(RUNS)
    table = result_table_html(experiment)
    assert table.count("<tr>") == len(TABLE1.rows) + 1
    assert table.count("<tbody>") == 12
    row = experiment.rows[0]
    value = row.metrics["mean_mm"]
    assert f"{value.mean:.3f}" in table
    assert f"±&#8239;{value.half:.3f}" in table
    assert f'class="number paper" data-value="{row.paper["mean_mm"]}"' in table


def test_names_are_text() -> None:
    hostile = '<img src=x onerror="boom()">'
    run = made_run(TABLE1.rows[0], hostile, 0, name=hostile, row=hostile, experiment=hostile)
    (experiment,) = result_tables([run])
    table = result_table_html(experiment)
    assert "<img" not in table
    assert "&lt;img src=x onerror=&quot;boom()&quot;&gt;" in table


def test_a_task_and_metrics_that_are_not_known() -> None:
    run = made_run(TABLE1.rows[0], "", 0, metrics={"joy": 1.0}, paper={}, config={"task": "singing"}, experiment="")
    (experiment,) = result_tables([run])
    assert experiment.title == "Singing"
    assert "joy" in result_table_html(experiment)
    assert "<b>" not in result_table_html(experiment)
    assert describe_task("", []).title == "Runs"


def test_at_a_glance_compares_plain_and_affine_of_each_group() -> None:
    (headline,) = headlines(result_tables(RUNS)).values()
    assert (headline.better, headline.pairs) == (6, 6)
    by_label = {row.label: row.metrics["mean_mm"].mean for row in result_tables(RUNS)[0].rows}
    changes = [
        100 * (by_label[f"Aff-{name} M={size}"] / by_label[f"{name} M={size}"] - 1)
        for name in ("FeaStNet", "MoNet")
        for size in (4, 9, 14)
    ]
    assert headline.change == pytest.approx(statistics.fmean(changes))
    assert f"−{-headline.change:.0f}" in headline_html(headline)


def test_pairs_with_a_single_seed_do_not_count_at_a_glance() -> None:
    """Unless there are no others."""
    rows, firsts = TABLE1.select(["MoNet M=9", "Aff-MoNet M=9"]), [run for run in RUNS if run.record.seed == 0]
    (headline,) = headlines(result_tables([*firsts, *(made_run(row, "faces", 1) for row in rows)])).values()
    assert (headline.pairs, headline.uncounted) == (1, 5)
    assert "one pair (5 more with a single seed)" in headline_html(headline)


def test_data_with_a_single_seed_have_no_headline_next_to_others() -> None:
    rows = TABLE1.select(["MoNet M=9", "Aff-MoNet M=9"])
    one = [made_run(row, "coma", 0) for row in rows]
    two = [made_run(row, "faces", seed) for row in rows for seed in (0, 1)]
    assert headlines_html(result_tables([*one, *two]), ()) == headlines_html(result_tables(two), ())
    assert headlines_html(result_tables(one), claim_rows(one)).count("<li>") == 1
    assert "significant" not in headlines_html(result_tables(one), claim_rows(one))


def test_headlines_say_how_many_pairs_differ_significantly() -> None:
    """By the verdicts of the claims; without claims of the same runs they say nothing."""
    claims = claim_rows(RUNS)
    (headline,) = headlines(result_tables(RUNS), claims).values()
    holds = {row.compared for row in claims if row.claim == "An affine skip helps" and row.verdict == "holds"}
    assert headline.significant == len(holds) > 0
    assert f"; all better, {len(holds)} significantly<" in headline_html(headline)
    open_ = [replace(row, verdict="same direction, too small to tell") for row in claims]
    (headline,) = headlines(result_tables(RUNS), open_).values()
    assert "; all better, none significantly<" in headline_html(headline)
    (headline,) = headlines(result_tables(RUNS), [replace(row, setting=("coma", "full")) for row in claims]).values()
    assert headline.significant is None
    assert "; all better<" in headline_html(headline)
    pair = [made_run(row, "faces", seed) for row in TABLE1.select(["MoNet M=9", "Aff-MoNet M=9"]) for seed in (0, 1)]
    for verdict, words in (("holds", "one pair, significant<"), ("fails", "one pair, not significant<")):
        judged = [replace(row, verdict=verdict) for row in claim_rows(pair)]
        (headline,) = headlines(result_tables(pair), judged).values()
        assert words in headline_html(headline)


def test_nothing_to_see_at_a_glance() -> None:
    assert headlines(result_tables(RUNS[:3])) == {}
    smoke = [made_run(row, "tiny", 0, schedule="smoke") for row in TABLE1.rows]
    assert headlines(result_tables(smoke)) == {}


def test_rows_that_two_tables_show_are_trained_and_drawn_once() -> None:
    """Table 3 repeats rows of Table 2, beside its own."""
    table2 = EXPERIMENTS["table2"].select(["FeaStNet", "Aff-FeaStNet", "MoNet"])
    own = [row for row in EXPERIMENTS["table3"].rows if row.home == "table3" and row.column == 25]
    first, second = result_tables([made_run(row, "superpixels", 0) for row in (*table2, *own)])
    assert [row.method for row in second.rows] == ["FeaStNet", "Aff-FeaStNet", "FeaStNet†", "Aff-FeaStNet†"]
    assert [row.method for row in second.own] == ["FeaStNet†", "Aff-FeaStNet†"]
    assert first.own == first.rows
    (headline,) = headlines([first, second]).values()
    assert headline.pairs == 2, "with and without self-loops, each once"


def test_a_part_of_a_table_may_be_borrowed_in_whole() -> None:
    """Table 3 has no bodies of its own: they are the correspondence's; shown where Table 3 is, drawn once."""
    bodies = [made_run(row, "bodies", 0) for row in EXPERIMENTS["correspondence"].rows]
    own = [made_run(r, "superpixels", 0) for r in EXPERIMENTS["table3"].rows if r.home == "table3" and r.column == 25]
    borrowed, digits, matching = result_tables([*bodies, *own])
    assert (digits.name, borrowed.name, borrowed.task, borrowed.data) == (
        "table3",
        "table3",
        "correspondence",
        "bodies",
    )
    assert [row.method for row in borrowed.rows] == ["FeaStNet", "Aff-FeaStNet", "FeaStNet†", "Aff-FeaStNet†"]
    assert borrowed.own == ()
    assert len({e.key for e in (matching, digits, borrowed)}) == 3
    assert [e.name for e in result_tables(bodies)] == ["correspondence"]


def test_a_part_with_rows_of_its_own_waits_for_them() -> None:
    """Rows of Table 2 alone, beside Table 3 on faces, make no Table 3 of superpixels."""
    faces = [made_run(r, "faces", 0) for r in EXPERIMENTS["table3"].rows if r.home == "table3" and r.column == 9]
    digits = [made_run(row, "superpixels", 0) for row in EXPERIMENTS["table2"].select(["FeaStNet"])]
    assert [(e.name, e.data) for e in result_tables([*faces, *digits])] == [
        ("table2", "superpixels"),
        ("table3", "faces"),
    ]


def test_splines_stand_beside_kernels_with_as_many_matrices() -> None:
    (experiment,) = result_tables([made_run(row, "faces", 0) for row in EXPERIMENTS["spline_supplement"].rows])
    found = [(row.method, row.matrices, row.size) for row in experiment.rows if row.skip == "none"]
    assert found == [
        ("SplineCNN", 1, "M = 1"),
        ("SplineCNN", 8, "M = 8"),
        ("MoNet", 8, "M = 8"),
        ("SplineCNN", 27, "M = 27"),
        ("SplineCNN", 64, "M = 64"),
        ("SplineCNN", 125, "M = 125"),
    ]
    table = result_table_html(experiment)
    assert '<td class="number" data-value="8">8 <span class="unit">m = 2</span></td>' in table
    assert '<td class="number" data-value="8">8</td>' in table


def test_pseudo_coordinates_are_named_where_they_differ() -> None:
    (experiment,) = result_tables([made_run(row, "superpixels", 0) for row in EXPERIMENTS["table2"].rows])
    named = [experiment.named(row) for row in experiment.rows]
    assert {"GCN", "FeaStNet", "MoNet (degree)", "Aff-MoNet (position)"} <= {*named}
    assert "Aff-MoNet (degree)" in result_table_html(experiment)


def test_pseudo_coordinates_of_the_label_are_named_in_a_table_with_one_kind() -> None:
    """Both schedules of Table 2 name a method alike, also if one of them has no rows by degree."""
    rows = EXPERIMENTS["table2"].select(["GCN", "MoNet (position)", "Aff-MoNet (position)"])
    (experiment,) = result_tables([made_run(row, "superpixels", 0) for row in rows])
    assert [experiment.named(row) for row in experiment.rows] == ["GCN", "MoNet (position)", "Aff-MoNet (position)"]
    headline = headline_html(*headlines([experiment]).values())
    assert "MoNet (position), M = 25" in headline.replace("\u00a0", " ")
    (chart,) = (chart for chart in charts([experiment]) if chart.key == "e0-parameters")
    names = [series.name for series in chart.series if not series.paper]
    assert names == ["GCN", "MoNet (position)", "Aff-MoNet (position)"]


def test_repeated_tables_refer_to_the_first() -> None:
    """Task and data are explained once."""
    rows = [*TABLE1.rows, *EXPERIMENTS["table2"].rows, *(r for r in EXPERIMENTS["table3"].rows if r.home == "table3")]
    data = {"reconstruction": "faces", "classification": "superpixels"}
    page = page_html([made_run(row, data[row.task], 0) for row in rows])
    assert page.count("An autoencoder compresses each mesh") == 1
    assert page.count("Task and data as in ") == 2
    moved = page_html([made_run(TABLE1.rows[0], name, 0) for name in ("mixed-faces", "moving-bodies")])
    assert 'Task as in <a href="#e0">' in moved
    assert "The paper has no such data to compare with." in moved


def test_tables_have_the_order_of_the_paper() -> None:
    """Whatever the order of the files; of one table, what has its first rows comes first."""
    digits = [made_run(row, "superpixels", 0) for row in EXPERIMENTS["table2"].rows]
    first = made_run(EXPERIMENTS["table2"].rows[0], "superpixels", 0, schedule="full")
    bodies = [made_run(row, "bodies", 0) for row in EXPERIMENTS["correspondence"].rows]
    faces = [made_run(row, "faces", 0) for row in TABLE1.rows]
    own = made_run(TABLE1.rows[0], "faces", 0, experiment="mine")
    tables = result_tables([own, *bodies, *digits[1:], first, *faces])
    assert [(table.key, table.name, table.schedule) for table in tables] == [
        ("e0", "table1", "short"),
        ("e1", "table2", "full"),
        ("e2", "table2", "short"),
        ("e3", "correspondence", "short"),
        ("e4", "mine", "short"),
    ]


def test_tables_say_how_superpixels_were_coarsened() -> None:
    def table(drawn: str | None) -> ResultTable:
        run = made_run(EXPERIMENTS["table2"].rows[0], "superpixels", 0)
        coarsening = {"coarsening": {"drawn": drawn}} if drawn else {}
        return result_tables([replace(run, record=replace(run.record, config={**run.record.config, **coarsening}))])[0]

    assert "a new coarsening of every graph in every epoch" in describe_training(table("epoch"))
    assert "one coarsening per graph" in describe_training(table("frozen"))
    assert "one coarsening per graph" in describe_training(table(None))
    faces = result_tables([made_run(TABLE1.rows[0], "faces", 0)])[0]
    assert "coarsening" not in describe_training(faces)


def test_the_first_table_of_the_data_says_what_is_reached_without_a_network() -> None:
    rows = [*EXPERIMENTS["table1"].select(["MoNet M=9"]), *EXPERIMENTS["spline_supplement"].select(["MoNet M=8"])]
    runs, baselines = [made_run(row, "faces", 0) for row in rows], {"faces": {"PCA <16>": {"mean_mm": 0.71}}}
    page = page_html(runs, Page(baselines=baselines))
    assert page.count("Without a mesh network (mean error, mm): PCA &lt;16&gt; 0.710.") == 1
    assert "Without a mesh network" not in page_html(runs, Page(baselines={"coma": baselines["faces"]}))
    other = replace(runs[0].record, config={**runs[0].record.config, "data_options": {"split": "people"}})
    assert "Without a mesh network" not in page_html([replace(runs[0], record=other)], Page(baselines=baselines))


def test_tables_say_that_matrix_products_were_less_precise() -> None:
    """If those of all their runs were."""
    exact, rough = (
        replace(run, record=replace(run.record, config={**run.record.config, "tf32": tf32}))
        for seed, tf32 in ((0, False), (1, True))
        for run in [made_run(EXPERIMENTS["correspondence"].rows[0], "bodies", seed)]
    )
    (table,) = result_tables([rough])
    assert describe_training(table).endswith("; matrix products in TensorFloat-32")
    (table,) = result_tables([exact, rough])
    assert "TensorFloat" not in describe_training(table)


def test_headlines_say_how_much_the_pairs_differ() -> None:
    """A mean alone would hide that one pair gains much and the others little."""
    rows = EXPERIMENTS["table2"].select(["FeaStNet", "Aff-FeaStNet", "*MoNet (position)"])
    values = {"FeaStNet M=25": 10.0, "Aff-FeaStNet M=25": 60.0, "MoNet (position) M=25": 90.0}
    runs = [
        made_run(row, "superpixels", 0, metrics={"accuracy_pct": values.get(row.label, 92.0)})
        for row in rows
        if row.skip != "residual"
    ]
    (headline,) = headlines(result_tables(runs)).values()
    assert (headline.least, headline.most) == (2.0, 50.0)
    shown = headline_html(headline)
    assert "+26" in shown
    assert "average of 2 pairs, from +2 to +50 points; all better" in shown
    assert "Best of them: MoNet (position), M = 25: 90.00 → 92.00 %" in shown.replace("\u00a0", " ")


def test_validation_has_columns_of_its_own_and_no_headline() -> None:
    plain, affine = EXPERIMENTS["table2"].select(["GCN", "Aff-GCN"])
    metrics = [{"validation_accuracy_pct": value} for value in (30.0, 60.0)]
    runs = [made_run(r, "superpixels", 0, metrics=m, paper={}) for r, m in zip((plain, affine), metrics, strict=True)]
    (experiment,) = result_tables(runs)
    assert "Validation accuracy" in result_table_html(experiment)
    assert "<b>60.00</b>" in result_table_html(experiment)
    assert headlines([experiment]) == {}


def test_rows_of_an_ablation_are_named_alike() -> None:
    """Each says what is different about it, without the size, which has a column of its own."""
    names = ["GCN, authors' recipe", "MoNet (position), authors' recipe", "MoNet (position), mean pooling"]
    labels = [name.replace("(position)", "(position) M=25") for name in names]
    rows = EXPERIMENTS["superpixel_ablation"].select(labels)
    (table,) = result_tables([made_run(row, "superpixels", 0, metrics={"accuracy_pct": 1.0}) for row in rows])
    assert [table.named(row) for row in table.rows] == names


def test_rows_of_one_method_go_by_their_labels_where_nothing_else_differs() -> None:
    (row,) = EXPERIMENTS["table2"].select(["GCN"])
    (experiment,) = result_tables([made_run(row, "superpixels", 0, row=name) for name in ("GCN, a", "GCN, b")])
    assert [experiment.named(row) for row in experiment.rows] == ["GCN, a", "GCN, b"]


def test_length_is_told_where_all_rows_agree() -> None:
    def trained(epochs: int, seed: int) -> ReportRun:
        run = made_run(TABLE1.rows[0], "faces", seed)
        return replace(run, record=replace(run.record, config={**run.record.config, "optim": {"epochs": epochs}}))

    assert result_tables([trained(20, 0), trained(20, 1)])[0].epochs == "20 epochs"
    assert result_tables([trained(1, 0)])[0].epochs == "1 epoch"
    assert result_tables([trained(20, 0), trained(30, 1)])[0].epochs == ""
