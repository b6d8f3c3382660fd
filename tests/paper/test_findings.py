"""What the page says of the records, and that it is up to date."""

from __future__ import annotations

import math
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from docs.analyze_power import GRAPH_PAIRS
from docs.make_tables import block, measures_table, parts_table, smoothness_table, study_summary

from geoskip.paper.findings import (
    AnalysisRecord,
    at_loss,
    common_loss,
    compare_measures,
    learned_measures,
    read_analysis,
    roughness_ratio,
    spread,
    write_analysis,
)
from geoskip.records.statistics import summarize
from tests.docs.pages import DOCS

RECORDS = DOCS.parent / "results" / "analysis"
PARTS = ("input", "full", "affine", "convolution")
SETTINGS = {"seeds": 2, "epochs": 3, "train_items": 1200, "batch_size": 16, "vertices": 4200}


def measured(operator: str, skip: str, seed: int, start: float, end: float) -> dict[str, Any]:
    """A run of the study, in which the decoy must not be read."""
    prefix = {"none": "", "residual": "Res-", "affine": "Aff-"}[skip]
    numbers = {"slope": start, "edge_slope": start}, {"slope": end, "edge_slope": end}
    decoy = "slope" if operator != "cheb" else "edge_slope"
    for overall in numbers:
        overall[decoy] = 77.0
    # The end is reached at the same loss by all.
    progress = [{"loss": loss, **overall} for loss, overall in zip((1.0, 0.4), numbers, strict=True)]
    return {
        "progress": progress,
        "method": f"{prefix}{operator}",
        "operator": operator,
        "skip": skip,
        "seed": seed,
        "start": {"overall": numbers[0]},
        "end": {"overall": numbers[1]},
        "metrics": {"mean_mm": 1.0 + seed},
    }


def study(**ends: tuple[float, float]) -> AnalysisRecord:
    rows = [
        measured(operator, skip, seed, 10.0, end)
        for operator in ("monet", "cheb")
        for skip, values in ends.items()
        for seed, end in enumerate(values)
    ]
    return AnalysisRecord("smoothness", SETTINGS, rows, 1.0)


@pytest.mark.parametrize(
    ("with_skip", "said", "verdict"),
    [
        ([0.5, 5.0], "× 0.79 [0.00, 266.74], smoother with 1 of 2 seeds", ""),
        ([2.0, 16.0], "× 2.83 [0.03, 231.22], rougher with 2 of 2 seeds", "rougher"),
        ([0.5, 2.0], "× 0.50 [0.50, 0.50], smoother with 2 of 2 seeds", "smoother"),
    ],
)
def test_a_verdict_goes_seed_by_seed(with_skip: list[float], said: str, verdict: str) -> None:
    """The second seed is rough by itself, which must not count."""
    ratio = roughness_ratio([1.0, 4.0], with_skip)
    assert (str(ratio), ratio.verdict) == (said, verdict)


def test_the_interval_is_that_of_the_logarithms() -> None:
    ratio = roughness_ratio([1.0, 1.0, 2.0], [1.0, math.e, 2 * math.e**2])
    logs = summarize([0.0, 1.0, 2.0])
    assert logs.half is not None
    assert ratio.mean == pytest.approx(math.e)
    assert ratio.interval == pytest.approx((math.exp(1 - logs.half), math.exp(1 + logs.half)))
    assert roughness_ratio([1.0], [2.0]).interval is None
    assert str(roughness_ratio([1.0], [2.0])) == "× 2.00, rougher with 1 of 1 seeds"


def test_a_verdict_needs_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="zip"):
        roughness_ratio([1.0, 1.0], [1.0])


def with_progress(row: dict[str, Any], *points: tuple[float, float]) -> dict[str, Any]:
    """The run with losses and roughness during training; the last point is the end."""
    progress = [{"step": k, "loss": loss, "slope": slope} for k, (loss, slope) in enumerate(points)]
    return row | {"progress": progress}


def losses(seed: int = 0) -> list[dict[str, Any]]:
    """A plain run that ends with a loss of 0.4, and one with skips that passes through 0.4 on its way to 0.1."""
    plain = with_progress(measured("cheb", "none", seed, 10.0, 10.0), (1.0, 10.0), (0.4, 10.0))
    points = (1.6, 10.0), (0.8, 10.0), (0.2, 40.0), (0.1, 90.0)
    return [plain, with_progress(measured("cheb", "affine", seed, 10.0, 90.0), *points)]


def test_roughness_at_a_loss_is_interpolated() -> None:
    plain, affine = losses()
    assert common_loss([plain, affine]) == 0.4
    # Halfway between 0.8 and 0.2 in the logarithm, so halfway between 10 and 40.
    assert at_loss(affine, "slope", 0.4) == pytest.approx(20)
    assert at_loss(affine, "slope", 0.2) == pytest.approx(40)
    assert at_loss(plain, "slope", 0.4) == pytest.approx(10)
    assert at_loss(affine, "slope", 2.0) == 10
    # The first time that the loss is reached counts.
    again = with_progress(plain, (1.0, 1.0), (0.4, 2.0), (0.5, 3.0), (0.4, 4.0))
    assert at_loss(again, "slope", 0.4) == pytest.approx(2)
    assert common_loss([with_progress(plain, (1.0, 1.0), (0.3, 2.0), (0.5, 3.0))]) == 0.3


def test_skips_are_compared_at_the_end_and_at_equal_loss() -> None:
    rows = losses()
    compared = compare_measures(rows, "cheb", "affine")
    assert {when: ratio.mean for when, ratio in compared["slope"].items()} == pytest.approx({"end": 9, "equal loss": 2})
    assert compare_measures(rows, "cheb", "residual") == {}
    # Runs are paired by their seeds, in whatever order they come.
    others = [measured("cheb", skip, seed, 10.0, 5.0 + seed) for seed in (1, 0) for skip in ("none", "affine")]
    paired = compare_measures([others[0], others[3], others[1], others[2]], "cheb", "affine")["slope"]["end"]
    assert paired.interval == pytest.approx((1, 1))


def test_only_what_is_learned_is_compared() -> None:
    rows = [measured("cheb", skip, 0, 10.0, end) for skip, end in (("none", 10.0), ("affine", 11.0))]
    for row in rows:
        row["start"]["overall"] |= {"basis_slope": 5.0}
        row["end"]["overall"] |= {"basis_slope": 5.0}
    # The basis does not change; nor does the decoy.
    assert learned_measures(rows) == ["slope"]
    rows[1]["end"]["overall"]["basis_slope"] = 6.0
    assert learned_measures(rows) == ["slope", "basis_slope"]
    del rows[0]["end"]["overall"]["basis_slope"]
    assert learned_measures(rows) == ["slope"]


def test_the_table_has_all_measures() -> None:
    table = measures_table(AnalysisRecord("smoothness", SETTINGS, [*losses(0), *losses(1)], 1.0)).splitlines()
    assert table[0] == (
        "| operator | measure | residual skip at the end of training | residual skip at equal loss | "
        "affine skip at the end of training | affine skip at equal loss |"
    )
    nine, two = (f"× {k:.2f} [{k:.2f}, {k:.2f}], rougher with 2 of 2 seeds" for k in (9, 2))
    assert table[2] == f"| ChebNet | slope |  |  | {nine} | {two} |"
    assert table[-1].startswith("The training losses at which skips are compared: ChebNet 0.4000. ")


def test_the_table_compares_changes_in_training() -> None:
    table = smoothness_table(study(none=(10.0, 12.0), residual=(5.0, 11.0), affine=(8.0, 9.0))).splitlines()
    assert len(table) == 2 + 6
    for row in (table[4], table[7]):
        cells = row.split(" | ")[1:]
        assert cells[:5] == ["2", "1.5 ± 0.71", "10 ± 0", "8.5 ± 0.71", "0.85 ± 0.071"]
        assert cells[5] == "× 0.77 [0.51, 1.17], smoother with 2 of 2 seeds |"
    assert table[2].endswith("| 1.1 ± 0.14 |  |")
    assert table[3].endswith("× 0.68 [0.01, 31.84], smoother with 2 of 2 seeds |")


def test_the_answer_in_short_is_about_affine_skips() -> None:
    said = study_summary(study(none=(10.0, 12.0), residual=(500.0, 500.0), affine=(8.0, 9.0)))
    verdict = "(all seeds rougher by none of 1 measures, all smoother by 1)"
    for operator in ("MoNet", "ChebNet"):
        at_the_end, at_equal_loss = (
            f"× 0.77 to × 0.77 at {when} {verdict}" for when in ("the end of training", "equal loss")
        )
        assert f"- {operator}: {at_the_end}; {at_equal_loss}." in said
    said = study_summary(AnalysisRecord("smoothness", SETTINGS, losses(), 90.0, "a card"))
    verdict = "(all seeds rougher by 1 of 1 measures, all smoother by none)"
    assert said.endswith(f"× 9.00 at the end of training {verdict}; × 2.00 to × 2.00 at equal loss {verdict}.")
    assert "took 90 seconds (a card)." in said


def test_one_seed_has_no_spread() -> None:
    assert spread([2.0]) == "2"
    assert spread([1.0, 3.0]) == "2 ± 1.4"
    assert spread([2000.0, 3000.0]) == "2,500 ± 707"
    assert spread([0.00123456]) == "0.00123"


def test_parts_are_those_of_whole_decoders() -> None:
    rows = [
        {"run": f"monet-affine-{seed}", "part": part, "layer": layer, "distance_mm": d, "variation": 0.5, "bumps": 2.0}
        for seed, whole in ((0, 1.0), (1, 3.0))
        for part in ("affine", "convolution")
        for layer, d in (("all", whole), ("output", 99.0))
    ]
    table = parts_table(AnalysisRecord("parts", SETTINGS, rows, 1.0)).splitlines()
    assert table[2:] == [
        "| Aff-MoNet | the skips alone | 2 ± 1.4 | 0.5 ± 0 | 2 ± 0 |",
        "| Aff-MoNet | the convolutions alone | 2 ± 1.4 | 0.5 ± 0 | 2 ± 0 |",
    ]


def test_deviations_of_parts_are_not_those_of_rounded_numbers() -> None:
    """Only the variation of the mean face, which is a rounding error, becomes 0."""
    rows = [
        {
            "run": f"monet-affine-{seed}",
            "part": "mean",
            "layer": "all",
            "distance_mm": 3.0,
            "variation": 2e-6,
            "bumps": b,
        }
        for seed, b in enumerate((0.99144, 0.98966, 0.99024))
    ]
    (line,) = parts_table(AnalysisRecord("parts", SETTINGS, rows, 1.0)).splitlines()[2:]
    assert line == "| Aff-MoNet | nothing: the mean face | 3 ± 0 | 0 ± 0 | 0.99 ± 0.00091 |"


def test_runs_are_study_summary() -> None:
    text = study_summary(study(none=(1.0, 1.0)))
    assert "4,200 vertices, 1,200 of the training items, 3 epochs, batches of 16, 2 seeds" in text
    record = AnalysisRecord("smoothness", {**SETTINGS, "train_items": None, "seeds": 1}, [], 1.0)
    assert "all training items" in study_summary(record)
    assert "1 seed of each" in study_summary(record)


def test_the_page_lists_the_pairs() -> None:
    page = " ".join((DOCS / "what-skips-learn.md").read_text(encoding="utf-8").split())
    for number, pair in enumerate(GRAPH_PAIRS, 1):
        assert f" {number}. {pair.name[0].upper()}{pair.name[1:]}. {pair.about} " in page


def test_a_study_fills_the_page_and_the_figures(tmp_path: Path) -> None:
    """From records of the right form, whatever is in them."""
    records, images = tmp_path / "analysis", tmp_path / "images"
    write_analysis(records / "smoothness.json", study(none=(10.0, 12.0), residual=(5.0, 11.0), affine=(8.0, 9.0)))
    parts = [
        {"run": "monet-affine-0", "part": "affine", "layer": "all", "distance_mm": 1.0, "variation": 1.0, "bumps": 1.0}
    ]
    write_analysis(records / "parts.json", AnalysisRecord("parts", SETTINGS, parts, 1.0))
    shares = [
        {"run": "monet-affine-0", "step": step, "layer": layer, "share": 0.5, "size": 0.5, "cosine": 0.0}
        for step in (0, 10)
        for layer in ("encoder.0", "output")
    ]
    write_analysis(records / "shares.json", AnalysisRecord("shares", SETTINGS, shares, 1.0))
    assert "all smoother by 1)" in block("study", tmp_path)
    assert "| Aff-cheb" in block("roughness", tmp_path)
    assert "| the skips alone | 1 |" in block("decoded_parts", tmp_path)
    assert block("measures", tmp_path).count("| MoNet |") == 1
    draw = runpy.run_path(str(DOCS / "make_figures.py"))["main"]
    made = draw(images, records)
    assert [path.name for path in made] == ["analysis-smoothness.png", "analysis-shares.png"]
    assert all(path.stat().st_size > 5000 for path in made)


def test_records_of_the_page_hold_what_it_says() -> None:
    """Claims of the text that no table repeats."""
    power = {
        (row["method"], row["pair"]): row["distinguished"] / row["seeds"]
        for row in read_analysis(RECORDS / "power.json").rows
    }
    for method in ("Aff-MoNet", "Aff-GIN-0"):
        seen = {row["wl"]: power[method, row["pair"]] for row in read_analysis(RECORDS / "power.json").rows}
        assert seen == {False: 0, True: 1}
    for method, pair in (("GCN", "edge 0-2, edge 1-1"), ("GIN-0", "edge 0-2, edge 1-1")):
        assert power[method, pair] == 0 < power[f"Res-{method}", pair] < power[f"Aff-{method}", pair] == 1
    depth = read_analysis(RECORDS / "depth.json").rows
    ranks = {
        skip: sorted(
            row["rank"] for row in depth if (row["skip"], row.get("activation"), row["depth"]) == (skip, "elu", 64)
        )
        for skip in ("none", "residual", "affine")
    }
    medians = {skip: values[len(values) // 2] for skip, values in ranks.items()}
    assert medians["residual"] < 1.1 < medians["none"] < medians["affine"]


def test_the_page_says_what_trained_networks_did() -> None:
    rows = read_analysis(RECORDS / "depth.json").rows

    def values(quantity: str, skip: str, depth: int, weights: str = "trained") -> list[float]:
        chosen = skip, depth, weights
        return [row[quantity] for row in rows if (row["skip"], row["depth"], row.get("weights")) == chosen]

    for depth in (2, 4, 8, 16, 32):
        assert len(values("rank", "affine", depth)) == 3
        # Without skips the noise is not learned, and the shape worse with each depth.
        assert min(values("test_noise", "none", depth)) > 0.99
    shapes = [values("test_shape", "none", depth) for depth in (2, 4, 8, 16, 32)]
    assert all(max(shallow) < min(deep) for shallow, deep in pairwise(shapes))
    for skip in ("residual", "affine"):
        assert max(value for depth in (2, 4, 8) for value in values("test_noise", skip, depth)) < 0.44
    for depth in (2, 4, 8):
        assert max(values("frequency", "residual", depth)) < min(values("frequency", "none", depth))
    for skip in ("residual", "affine"):
        assert min(values("test_noise", skip, 32)) > 0.98
        assert max(values("test_shape", skip, 32)) < 0.1
    for depth in (8, 16):
        assert max(values("test_noise", "affine", depth)) < min(values("test_noise", "residual", depth))
    # Training undoes the smoothing of deep networks.
    for skip in ("none", "residual", "affine"):
        for quantity in ("frequency", "rank"):
            assert max(values(quantity, skip, 32, "initial")) < min(values(quantity, skip, 32))
