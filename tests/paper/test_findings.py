"""What the page says of the records, and that it is up to date."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from docs.analyze_power import graph_pairs
from docs.make_tables import block, compare_roughness, parts_table, smoothness_table, study_summary

from geoskip.paper.findings import AnalysisRecord, read_analysis, spread, write_analysis
from tests.docs.pages import DOCS

RECORDS = DOCS.parent / "results" / "analysis"
SETTINGS = {"seeds": 2, "epochs": 3, "train_items": 1200, "batch_size": 16, "vertices": 4200}


def measured(operator: str, skip: str, seed: int, start: float, end: float) -> dict[str, Any]:
    """A run of the study, in which the decoy must not be read."""
    prefix = {"none": "", "residual": "Res-", "affine": "Aff-"}[skip]
    numbers = {"slope": start, "edge_slope": start}, {"slope": end, "edge_slope": end}
    decoy = "slope" if operator != "cheb" else "edge_slope"
    for overall in numbers:
        overall[decoy] = 77.0
    return {
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
    ("with_skip", "said"),
    [
        ([0.5, 5.0], "× 0.79, smoother with 1 of 2 seeds"),
        ([2.0, 16.0], "× 2.83, rougher with 2 of 2 seeds"),
        ([0.5, 2.0], "× 0.50, smoother with 2 of 2 seeds"),
    ],
)
def test_a_verdict_goes_seed_by_seed(with_skip: list[float], said: str) -> None:
    """The second seed is rough by itself, which must not count."""
    assert compare_roughness([1.0, 4.0], with_skip) == said


def test_a_verdict_needs_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare_roughness([1.0, 1.0], [1.0])


def test_the_table_compares_changes_in_training() -> None:
    table = smoothness_table(study(none=(10.0, 12.0), residual=(5.0, 11.0), affine=(8.0, 9.0))).splitlines()
    assert len(table) == 2 + 6
    for row in (table[4], table[7]):
        cells = row.split(" | ")[1:]
        assert cells[:5] == ["2", "1.5 ± 0.71", "10 ± 0", "8.5 ± 0.71", "0.85 ± 0.071"]
        assert cells[5] == "× 0.77, smoother with 2 of 2 seeds |"
    assert table[2].endswith("| 1.1 ± 0.14 |  |")
    assert table[3].endswith("× 0.68, smoother with 2 of 2 seeds |")


def test_the_answer_in_short_is_about_affine_skips() -> None:
    said = study_summary(study(none=(10.0, 12.0), residual=(500.0, 500.0), affine=(8.0, 9.0)))
    assert said.endswith("MoNet × 0.77, smoother with 2 of 2 seeds; ChebNet × 0.77, smoother with 2 of 2 seeds.")


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


def test_runs_are_study_summary() -> None:
    text = study_summary(study(none=(1.0, 1.0)))
    assert "4,200 vertices, 1,200 of the training items, 3 epochs, batches of 16, 2 seeds" in text
    record = AnalysisRecord("smoothness", {**SETTINGS, "train_items": None, "seeds": 1}, [], 1.0)
    assert "all training items" in study_summary(record)
    assert "1 seed of each" in study_summary(record)


def test_the_page_lists_the_pairs() -> None:
    page = (DOCS / "what-skips-learn.md").read_text(encoding="utf-8")
    for number, pair in enumerate(graph_pairs(), 1):
        assert f"\n{number}. {pair.name[0].upper()}{pair.name[1:]}. {pair.about}\n" in page


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
    assert "smoother with 2 of 2 seeds" in block("study", tmp_path)
    assert "| Aff-cheb" in block("roughness", tmp_path)
    assert "| the skips alone | 1 |" in block("decoded_parts", tmp_path)
    made = runpy.run_path(str(DOCS / "make_figures.py"))["main"](images, records)
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
            row["rank"] for row in depth if (row["skip"], row["activation"], row["depth"]) == (skip, "elu", 64)
        )
        for skip in ("none", "residual", "affine")
    }
    medians = {skip: values[len(values) // 2] for skip, values in ranks.items()}
    assert medians["residual"] < 1.1 < medians["none"] < medians["affine"]
