"""Experiments: every row of the paper once, with its own configuration, and schedules that end as the paper's do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from geoskip.paper.experiments import EXPERIMENTS, chosen_data, find_experiment, find_row
from geoskip.paper.reproduction import experiment_table, parse_seeds
from geoskip.paper.rows import SHORT, PaperRow, paper
from geoskip.training.tasks import find_task
from tests.paper.runs import row_named

DEFAULTS = {"reconstruction": "faces", "correspondence": "bodies", "classification": "superpixels"}
OWN = [row for name, experiment in EXPERIMENTS.items() for row in experiment.rows if row.home == name]
SIZES = {
    "table1": 42,
    "table2": 13,
    "table3": 12,
    "correspondence": 9,
    "center_ablation": 12,
    "spline_supplement": 12,
    "superpixels": 15,
    "superpixel_ablation": 43,
    "correspondence_ablation": 27,
    "gcn_ablation": 15,
    "extrapolation": 8,
    "error_maps": 8,
    "matching_maps": 7,
    "reconstructions": 8,
    "affine_only": 1,
}


def identity(row: PaperRow) -> str:
    return f"{row.home}/{row.slug}"


def test_every_experiment_of_the_paper() -> None:
    assert {name: len(experiment.rows) for name, experiment in EXPERIMENTS.items()} == SIZES


def test_labels_are_unique() -> None:
    assert len({identity(row) for row in OWN}) == len(OWN)
    assert len({(row.home, row.label) for row in OWN}) == len(OWN)
    for row in OWN:
        assert find_row(row.home, row.label) is row


def test_no_two_rows_are_the_same_model() -> None:
    """What several tables show is trained once; and each can be trained."""
    configs = [row.config(DEFAULTS[row.task], "full", 0) for row in OWN]
    assert len({str(config.to_json()) for config in configs}) == len(configs)
    for config in configs:
        find_task(config.task).check_config(config)


def test_shared_rows_belong_to_their_own_tables() -> None:
    homes = {(row.label, row.task): row.home for row in EXPERIMENTS["table3"].rows}
    assert homes["FeaStNet M=9", "reconstruction"] == "table1"
    assert homes["FeaStNet† M=9", "reconstruction"] == "table3"
    assert homes["Aff-FeaStNet† M=10", "correspondence"] == "correspondence"
    assert homes["Aff-FeaStNet M=25", "classification"] == "table2"
    assert homes["Aff-FeaStNet† M=25", "classification"] == "table3"
    assert {row.home for row in EXPERIMENTS["center_ablation"].rows} == {"table1"}


def test_table_3_has_the_papers_figures() -> None:
    """Those of its own, and those of other tables, which the paper repeats."""
    for row in EXPERIMENTS["table3"].rows:
        printed = paper()["table3"][row.task][row.method]
        assert row.paper == printed


def test_spline_supplement_has_the_papers_figures() -> None:
    found = {row.label: dict(row.paper) for row in EXPERIMENTS["spline_supplement"].rows}
    assert found["SplineCNN m=2"] == {"mean_mm": 0.605}
    assert found["Aff-SplineCNN m=5"] == {"mean_mm": 0.241}
    assert found["SplineCNN m=3"] == {}
    assert found["Aff-MoNet M=8"] == {"mean_mm": 0.397}


def test_configuration_says_what_the_row_says() -> None:
    config = row_named("table1", "MoNet+ M=9").config("faces", "full", 3)
    assert (config.operator, config.skip, config.kernel_size, config.seed) == ("monet", "none", 10, 3)
    assert config.data == "faces"
    config = row_named("table2", "Aff-MoNet (degree)").config("superpixels", "full", 0)
    assert (config.skip, config.pseudo, config.kernel_size) == ("affine", "degree", 25)
    config = row_named("table3", "Aff-FeaStNet† M=25").config("superpixels", "full", 0)
    assert config.options == {"self_loops": False}
    assert row_named("table2", "GIN-0").config("superpixels", "full", 0).kernel_size is None


@pytest.mark.parametrize("row", OWN, ids=identity)
def test_short_schedule_goes_through_the_same_rates(row: PaperRow) -> None:
    """Epoch e of the short one has the rate of epoch speed · e of the paper's, and nothing else differs."""
    full, short = (row.config(DEFAULTS[row.task], schedule, 0) for schedule in ("full", "short"))
    speed = SHORT[row.task].speed
    assert short.optim.epochs < full.optim.epochs
    for epoch in range(short.optim.epochs):
        assert short.optim.rate(epoch) == pytest.approx(full.optim.rate(speed * epoch))
    halved_thrice = row.task == "correspondence" and full.operator == "feast"
    assert full.optim.rate(speed * short.optim.epochs) <= full.optim.lr / (8 if halved_thrice else 16)
    same: dict[str, Any] = {"optim": None, "tf32": SHORT[row.task].tf32}
    if row.task == "classification" and not row.variant:
        # The levels that the data set has, and the initial values of the paper.
        same |= {"coarsening": {}, "pseudo_scale": "set", "options": dict(row.options)}
    assert {**full.to_json(), **same} == {**short.to_json(), "optim": None}


def test_first_epochs_keep_the_papers_rates() -> None:
    row = row_named("table2", "GCN")
    full, first = (row.config("superpixels", schedule, 0) for schedule in ("full", "first200"))
    assert first.optim.epochs == 200
    assert [first.optim.rate(epoch) for epoch in range(200)] == [full.optim.rate(epoch) for epoch in range(200)]
    with pytest.raises(ValueError, match="first501 is longer than the paper's 500 epochs; use full"):
        row.config("superpixels", "first501", 0)
    for wrong in ("first", "first0", "first-3", "in", "in0"):
        with pytest.raises(ValueError, match="schedule: unknown name"):
            row.config("superpixels", wrong, 0)


def test_all_rates_in_fewer_epochs() -> None:
    for name, label, data, epochs in (("table1", "MoNet M=9", "faces", 60), ("table2", "GCN", "superpixels", 100)):
        row = row_named(name, label)
        full, fast = (row.config(data, schedule, 0).optim for schedule in ("full", f"in{epochs}"))
        assert fast.epochs == epochs
        speed = full.epochs // epochs
        for epoch in range(epochs):
            assert fast.rate(epoch) == pytest.approx(full.rate(speed * epoch))


def test_rows_of_superpixels_have_the_authors_recipe() -> None:
    for row in EXPERIMENTS["superpixels"].rows:
        config = row.config("superpixels", "first200", 0)
        assert config.coarsening == {"matchings": 1, "drawn": "epoch", "weight": "far"}
        assert config.pseudo_scale == ("batch" if row.operator == "monet" else "set")
        assert config.test
    assert EXPERIMENTS["superpixels"].select(["*†"]) == EXPERIMENTS["table3"].rows[-2:]


@pytest.mark.parametrize(("name", "data_options"), [("correspondence", {}), ("gcn", {"num_vertices": 689})])
def test_the_forms_of_the_correspondence_network(name: str, data_options: dict[str, int]) -> None:
    rows = EXPERIMENTS[f"{name}_ablation"].rows
    for row in rows:
        config = row.config("bodies", "first300", 0)
        assert (config.validation, config.test, config.data_options) == (0.1, False, data_options)
        assert config.model == {
            "ELU after Lin(256)": {"head_elu": True},
            "positions in decimeters": {"input_scale": 10},
        }.get(row.variant, {})
        assert config.options.get("renormalize", True) == (not row.variant.startswith("I + D"))
        assert config.optim.lr == {"rate 0.003": 0.003}.get(row.variant, 0.01 if row.operator == "feast" else 0.001)
    assert [row.method for row in rows[-3:]] == ["GCN", "Res-GCN", "Aff-GCN"]


def test_the_ablation_changes_one_setting_at_a_time_and_never_looks_at_the_test() -> None:
    rows = EXPERIMENTS["superpixel_ablation"].rows
    leaves = {row: dict(flat(row.config("superpixels", "first20", 0).to_json())) for row in rows}
    methods = dict.fromkeys(row.title for row in rows)
    assert list(methods) == ["MoNet (position)", "MoNet (degree)", "GCN", "Aff-GCN", "GIN-0"]
    for row in rows:
        own = leaves[row]
        assert (own["validation"], own["test"]) == (0.1, False)
        assert row.metrics == ("validation_accuracy_pct",)
        base = next(each for each in rows if each.title == row.title)
        assert base.variant == "authors' recipe"
        differ = {name for name in own.keys() | leaves[base].keys() if own.get(name) != leaves[base].get(name)}
        earlier = row.variant == "stored levels"
        assert len(differ) == (0 if row is base else (5 if row.operator == "monet" else 3) if earlier else 1)
    base_leaves = leaves[rows[0]]
    assert base_leaves["coarsening.drawn"] == "epoch"
    assert base_leaves["options.init"] == "authors"


def flat(entries: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in entries.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_a_table_of_variants_has_a_column_for_each_method() -> None:
    made = experiment_table(EXPERIMENTS["superpixel_ablation"], {})
    assert made.header == ("method", "MoNet (position)", "MoNet (degree)", "GCN", "Aff-GCN", "GIN-0")
    lines = {line[0]: line[1:] for line in made.lines}
    assert next(iter(lines)) == "authors' recipe"
    assert lines["one scale for the whole set"] == ("–", "–", "", "", "")


def test_smoke_is_small() -> None:
    config = row_named("table1", "MoNet M=9").config("faces", "smoke", 0)
    assert (config.optim.epochs, config.train_items, config.test_items) == (1, 4, 2)
    assert config.kernel_size == 9


def test_unknown_schedule() -> None:
    with pytest.raises(ValueError, match="schedule: unknown name 'long'; choose from full, short, smoke"):
        row_named("table1", "MoNet M=9").config("faces", "long", 0)


def test_rows_are_chosen_by_patterns() -> None:
    table = EXPERIMENTS["table1"]
    assert len(table.select()) == 42
    wanted = ["Aff-FeaStNet M=4", "Aff-FeaStNet M=9", "MoNet M=9", "Aff-FeaStNet M=14"]
    assert [row.label for row in table.select(["monet m=9", "Aff-FeaStNet"])] == wanted
    assert len(table.select(["*M=9"])) == 14
    with pytest.raises(
        ValueError, match=r"rows: none of the 42 rows of table1 matches 'GCN'; labels are such as ChebNet"
    ):
        table.select(["GCN"])


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="experiment: unknown name 'table4'; choose from table1, table2"):
        find_experiment("table4")
    with pytest.raises(ValueError, match="row: table3 has no row 'FeaStNet M=9' of its own"):
        find_row("table3", "FeaStNet M=9")


def test_data_are_chosen_by_task() -> None:
    tasks = EXPERIMENTS["table3"].tasks
    assert chosen_data(tasks) == DEFAULTS
    assert chosen_data(tasks, ["coma", "faust", "published-superpixels"]) == {
        "reconstruction": "coma",
        "correspondence": "faust",
        "classification": "published-superpixels",
    }
    assert chosen_data(tasks, ["faust"]) == DEFAULTS | {"correspondence": "faust"}
    assert set(chosen_data(tasks, schedule="smoke").values()) == {"tiny"}
    assert chosen_data(tasks, ["faces"], "smoke")["reconstruction"] == "faces"
    with pytest.raises(ValueError, match="data: faust is for correspondence; this experiment is about reconstruction"):
        chosen_data(["reconstruction"], ["faust"])
    with pytest.raises(ValueError, match="data: unknown name 'shrec'; choose from bodies, coma"):
        chosen_data(tasks, ["shrec"])


def test_seeds_as_written() -> None:
    assert parse_seeds("0..4") == (0, 1, 2, 3, 4)
    assert parse_seeds("7, 0..1,0") == (0, 1, 7)
    for wrong in ("", "4..0", "a", "1-3", "-1"):
        with pytest.raises(ValueError, match=r"seeds: expected seeds such as 0\.\.4 or 0,2,7"):
            parse_seeds(wrong)
