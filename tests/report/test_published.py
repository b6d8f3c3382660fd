"""The page in docs/ shows the records in results/."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import runpy
import shlex
import zlib
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image
from typer.testing import CliRunner

import geoskip
from geoskip import report
from geoskip.cli import app
from geoskip.paper.claims import claim_rows
from geoskip.paper.findings import read_analysis
from geoskip.records import MeshSamples, read_samples
from geoskip.records.reading import read_arrays
from geoskip.report.charts import MARKERS, charts
from geoskip.report.html_tables import VERDICT_RULE, headlines, result_table_html
from geoskip.report.palette import SERIES
from geoskip.report.picture_grids import errors_mm
from geoskip.report.runs import find_runs
from tests.report.made_runs import result_tables
from tests.report.test_embed import unpacked

ROOT = Path(geoskip.__file__).parents[2]
PAGE = ROOT / "docs" / "report" / "index.html"
RUNS = ROOT / "results" / "runs"


def test_the_page_has_the_tables_that_the_records_give() -> None:
    page, tables = PAGE.read_text(encoding="utf-8"), result_tables(find_runs([RUNS]).runs)
    assert tables
    for table in tables:
        assert result_table_html(table) in page, f"{table.title}: regenerate the page as described in docs/report.md"


def test_the_page_is_what_the_command_in_the_docs_writes(tmp_path: Path) -> None:
    """Compared without compression and pictures, which depend on the versions of zlib and of NumPy."""
    docs = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    command = shlex.split(next(line for line in docs.splitlines() if "-o docs/report" in line))
    places = {"docs/report": tmp_path, "results/runs": RUNS, "results/analysis": RUNS.parent / "analysis"}
    arguments = [str(places.get(word, word)) for word in command[1:]]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "left out" not in result.output
    made = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert uncompressed(made) == uncompressed(PAGE.read_text(encoding="utf-8")), "regenerate it: see docs/report.md"


def uncompressed(page: str) -> list[str]:
    """The lines of a page, with a digest of each array and without pictures."""

    def digest(match: re.Match[str]) -> str:
        return match[1] + hashlib.sha256(zlib.decompress(base64.b64decode(match[2]))).hexdigest()

    page = re.sub(r"data:image/png;base64,[^\"]+", "", page)
    return re.sub(r'(id="blob-\d+">)([^<]+)', digest, page).splitlines()


def test_samples_belong_to_their_records() -> None:
    """The error of each sample is that of an item in the run's own list."""
    paths = sorted(RUNS.glob("table[13]/*/*.samples.safetensors"))
    meshes = [(path, samples) for path in paths if isinstance(samples := read_samples(path), MeshSamples)]
    assert len(meshes) > 10
    for path, samples in meshes:
        items = read_arrays(str(path).replace(".samples", ""))["per_item_mm"]
        for name, error in zip(samples.names, errors_mm(samples).mean(axis=1), strict=True):
            assert np.abs(items / error - 1).min() < 2e-4, f"{path}: {name}"


def test_baselines_stand_next_to_the_networks() -> None:
    """Once for each data set, with the figures of the docs."""
    page = unescape(PAGE.read_text(encoding="utf-8"))
    said = re.findall(r"Without a mesh network \(([^)]+)\): ([^<]+)\.<", page)
    assert [metric for metric, _ in said] == ["mean error, mm"] * 2 + ["accuracy, %"] * 2
    docs = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for _, baselines in said:
        for name, figure in re.findall(r"(?:^|, )([^,]+) ([\d.]+)", baselines):
            assert f"| {name} | {figure} |" in docs


def test_data_that_the_paper_does_not_have_are_not_compared_with_it() -> None:
    runs = find_runs([RUNS]).runs
    tables = [table for table in result_tables(runs) if table.data == "moving-bodies"]
    assert tables
    for table in tables:
        assert "Table" not in table.title
        assert "paper" not in result_table_html(table)
    for chart in charts(tables):
        assert "paper" not in chart.text
        assert not any(series.paper for series in chart.series)
    assert not any("moving-bodies" in claim.data for claim in claim_rows(runs))
    assert not any(data == "moving-bodies" for _, data, _ in headlines(result_tables(runs)))
    for scene in embedded()["scenes"]:
        assert scene["paper"] == ("moving-bodies" not in scene["title"])


def embedded() -> Any:
    """The data of the page."""
    return json.loads(PAGE.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])


def test_the_first_picture_says_what_the_headline_says() -> None:
    """The head that the page opens with improves by what the headline says, within a fifth of it, in the same order."""
    page = PAGE.read_text(encoding="utf-8")
    scene = embedded()["scenes"][0]
    tables = result_tables(find_runs([RUNS]).runs)
    headline = headlines(tables)["reconstruction", "mixed-faces", "in60"]
    errors = {}
    for method in (method for method in scene["methods"] if not method["variant"]):
        moved = unpacked(page, method["parts"]["full"][0]).reshape(-1, 3) * scene["unit"]
        errors[method["skip"]] = float(np.linalg.norm(moved, axis=1).mean())
        assert re.fullmatch(r"test set: mean \d\.\d{3} ± \d\.\d{3} mm", method["test"])
    assert headline.metric.change(errors["none"], errors["affine"]) == pytest.approx(headline.change, rel=0.2)
    assert errors["affine"] < errors["residual"] < errors["none"]


def test_samples_of_one_scene_are_different_people_or_expressions() -> None:
    data = embedded()
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
        for table in result_tables(find_runs([RUNS]).runs)
        for row in table.own
    }
    colors = {to_rgb(pair[0]): skip for skip, pair in SERIES.items()}
    for name, axes in zip(("table1", "table2", "correspondence"), figure.axes, strict=True):
        bars = {(name, colors[bar.get_facecolor()[:3]], round(float(bar.get_height()), 9)) for bar in axes.patches}
        assert bars <= rows
        assert {skip for _, skip, _ in bars} == {"none", "residual", "affine"}
    figure.set_dpi(script["DPI"])
    figure.canvas.draw()
    with Image.open(ROOT / "docs" / "images" / "results.png") as image:
        kept = np.asarray(image.convert("RGB")).astype(float)
    right = figure.bbox.width
    for axes in figure.axes:
        labels = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in pairwise(labels)), "labels must not overlap"
        titles = [text for text in axes.get_children() if isinstance(text, Text) and text.get_text()]
        assert titles
        assert all(title.get_window_extent().x1 <= right for title in titles)
    # Roughly, since fonts differ between machines.
    assert np.abs(kept - np.asarray(figure.canvas.buffer_rgba())[..., :3]).mean() < 8
    assert "docs/images/results.png" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_ratios_of_different_operators_have_one_scale() -> None:
    """ChebNet's filters change by 1 to 4 %, SplineCNN's by up to 70 %; that is what the figure must look like."""
    script = runpy.run_path(str(ROOT / "docs" / "make_figures.py"))
    name, draw = script["FIGURES"]["analysis-smoothness"]
    figure = draw(read_analysis(ROOT / "results" / "analysis" / f"{name}.json"))
    after, during = figure.axes[:3], figure.axes[3:]
    for panels in (after, during):
        assert len(panels) == 3
        assert len({(axes.get_yscale(), axes.get_ylim()) for axes in panels}) == 1


def test_lines_that_are_shown_together_do_not_look_alike() -> None:
    """Also rows that differ in their settings alone, and points, which have no dashes."""
    shown = embedded()["charts"]
    assert len(shown) > 10
    for chart in shown:
        assert len({series["mark"] for series in chart["series"]}) <= len(MARKERS)
        looks = [
            (s["group"], s["color"], s["mark"], s["paper"], s["variant"] if chart["kind"] == "curve" else "")
            for s in chart["series"]
        ]
        assert len(set(looks)) == len(looks), chart["title"]
    (chart,) = (chart for chart in shown if chart["key"] == "e0-parameters")
    marks = {series["name"]: series["mark"] for series in chart["series"]}
    assert marks["MoNet"] == marks["Aff-MoNet"] == marks["MoNet, paper"] != marks["MoNet+"]
    script = (Path(report.__file__).parent / "assets" / "plot.js").read_text(encoding="utf-8")
    paths = script.split("const MARKS = [")[1].split("];")[0]
    assert len(re.findall(r"'M[^']+'", paths)) == len(MARKERS), "as many on the page as in the pictures"


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
