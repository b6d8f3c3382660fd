"""The page in docs/ shows the records in results/."""

from __future__ import annotations

import json
import re
import runpy
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import geoskip
from geoskip.report.html_tables import VERDICT_RULE, headlines, result_table_html
from geoskip.report.palette import SERIES
from geoskip.report.runs import find_runs
from tests.report.made_runs import result_tables
from tests.report.test_embed import unpacked

ROOT = Path(geoskip.__file__).parents[2]
PAGE = ROOT / "docs" / "report" / "index.html"


def test_the_page_has_the_tables_that_the_records_give() -> None:
    page, tables = PAGE.read_text(encoding="utf-8"), result_tables(find_runs([ROOT / "results" / "runs"]).runs)
    assert tables
    for table in tables:
        assert result_table_html(table) in page, f"{table.title}: regenerate the page as described in docs/report.md"


def test_the_first_picture_says_what_the_headline_says() -> None:
    """The head that the page opens with improves by what the headline says, within a fifth of it, in the same order."""
    page = PAGE.read_text(encoding="utf-8")
    scene = json.loads(page.split('id="data">')[1].split("</script>")[0])["scenes"][0]
    tables = result_tables(find_runs([ROOT / "results" / "runs"]).runs)
    headline = headlines(tables)["reconstruction", "mixed-faces", "in60"]
    errors = {}
    for method in (method for method in scene["methods"] if not method["variant"]):
        moved = unpacked(page, method["parts"]["full"][0]).reshape(-1, 3) * scene["unit"]
        errors[method["skip"]] = float(np.linalg.norm(moved, axis=1).mean())
        assert re.fullmatch(r"test set: mean \d\.\d{3} ± \d\.\d{3} mm", method["test"])
    assert headline.metric.change(errors["none"], errors["affine"]) == pytest.approx(headline.change, rel=0.2)
    assert errors["affine"] < errors["residual"] < errors["none"]


def test_samples_of_one_scene_are_different_people_or_expressions() -> None:
    data = json.loads(PAGE.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])
    for scene in (*data["scenes"], *data["matchings"]):
        assert len(set(scene["samples"])) == len(scene["samples"])
        assert all(re.fullmatch(r"Person \d+, [a-z ]+", name) for name in scene["samples"])
        skips = {method["skip"] for method in scene["methods"]}
        assert "none" in skips


def test_the_picture_of_the_readme_shows_the_records() -> None:
    """A bar for each row, as high as in the tables, in the color of its skip; the committed file shows the same."""
    script = runpy.run_path(str(ROOT / "docs" / "make_figures.py"))
    figure = script["results"]()
    rows = {
        (table.name, row.skip, round(row.metrics[table.description.metrics[0].key].mean, 9))
        for table in result_tables(find_runs([ROOT / "results" / "runs"]).runs)
        for row in table.own
    }
    colors = {to_rgb(pair[0]): skip for skip, pair in SERIES.items()}
    for name, axes in zip(("table1", "table2", "correspondence"), figure.axes, strict=True):
        bars = {(name, colors[bar.get_facecolor()[:3]], round(float(bar.get_height()), 9)) for bar in axes.patches}
        assert bars <= rows
        assert {skip for _, skip, _ in bars} == {"none", "residual", "affine"}
    figure.set_dpi(110)
    figure.canvas.draw()
    with Image.open(ROOT / "docs" / "images" / "results.png") as image:
        kept = np.asarray(image.convert("RGB")).astype(float)
    # Roughly, since fonts differ between machines.
    assert np.abs(kept - np.asarray(figure.canvas.buffer_rgba())[..., :3]).mean() < 8
    assert "docs/images/results.png" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_page_and_docs_count_the_same_verdicts() -> None:
    """One rule decides, and the counts on the page are those of README and docs/results.md."""
    page = PAGE.read_text(encoding="utf-8")
    assert VERDICT_RULE in unescape(page)
    overview = unescape(page.split('id="claims"')[1].split("<details>")[0])
    shown = [re.findall(r">([^<>]+)</(?:th|td|span)>", line) for line in overview.split("<tr>")[2:]]
    block = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").split("| claim of the paper |")[1]
    assert VERDICT_RULE in block
    lines = [line.strip("| ").split(" | ") for line in block.split("\n\n")[0].splitlines()[2:]]
    assert [[claim.strip("*").capitalize(), *counts] for claim, *counts in lines] == [
        [claim.capitalize(), *counts] for claim, *counts in shown
    ]
    _, total, holds, *_ = shown[-1]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Of {total} comparisons" in readme
    assert f"{holds} hold significantly" in readme


def test_it_is_small_enough_to_be_carried() -> None:
    assert PAGE.stat().st_size < 10e6
