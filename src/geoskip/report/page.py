"""The page: a template, its style and scripts, and the data, in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from geoskip.records.files import atomic_write
from geoskip.report.charts import charts, write_charts
from geoskip.report.embed import (
    Blobs,
    Still,
    embedded_graphs,
    embedded_matches,
    embedded_meshes,
    match_still,
    mesh_still,
    shapes_png,
)
from geoskip.report.html_tables import (
    ClaimRow,
    claims_sentence,
    claims_table,
    first_claim_sentence,
    headlines_html,
    result_table_html,
)
from geoskip.report.palette import MAPS, color_map, css
from geoskip.report.runs import (
    DATA,
    GENERATED,
    ReportRun,
    describe_coarsening,
    describe_precision,
    describe_schedule,
)
from geoskip.report.scenes import graph_scenes, match_scenes, mesh_scenes
from geoskip.report.summary import Published, ResultTable, result_tables

SCRIPTS = ("dom", "theme", "tables", "blobs", "camera", "surface", "rough", "stage", "errors", "scenes", "meshes",
           "matches", "graphs", "scales", "plot", "reading", "chart", "main")  # fmt: skip
TITLE = "What does a skip connection change?"
# Upper bound of the embedded samples in bytes of base64, so that the page can still be mailed and committed.
BUDGET = 7_000_000
RENDER_SIZE = 1200


@dataclass(frozen=True)
class Page:
    """What the page shows in addition to the runs.

    title: title of the page.
    claims: rows of the table of claims.
    problems: messages about files that could not be read.
    published: the tables that runs are compared with, by the name of the experiment.
    baselines: figures of methods without a mesh network, by data set, method and metric.
    """

    title: str = TITLE
    claims: tuple[ClaimRow, ...] = ()
    problems: tuple[str, ...] = ()
    published: Published = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


def page_html(runs: Sequence[ReportRun], page: Page | None = None) -> str:
    """The whole page as HTML. Equal runs give an equal page."""
    page = page or Page()
    tables = result_tables(runs, page.published)
    meshes, bodies, graphs = mesh_scenes(tables), match_scenes(tables), graph_scenes(tables)
    # As many samples of each scene as the budget allows, at least one.
    for count in (8, 6, 4, 3, 2, 1):
        blobs = Blobs()
        samples = {
            "scenes": [embedded_meshes(scene, blobs, count) for scene in meshes],
            "matchings": [embedded_matches(scene, blobs, count) for scene in bodies],
        }
        if blobs.num_bytes <= BUDGET:
            break
    data = samples | {
        "maps": {name: np.round(255 * color_map(name)).astype(int).ravel().tolist() for name in MAPS},
        "galleries": [embedded_graphs(scene, blobs) for scene in graphs],
        "charts": [chart.plain() for chart in charts(tables)],
    }
    sections = {
        "meshes": meshes,
        "matches": bodies,
        "graphs": graphs,
        "charts": data["charts"],
        "claims": page.claims,
    }
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    outcome = claims_sentence(page.claims)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src 'sha256-{digest}'",
        title=escape(page.title),
        caution=_caution(tables),
        style=css() + "".join(_asset(f"{name}.css") for name in ("page", "tables", "figures")),
        headlines=headlines_html(tables, page.claims),
        meshes_still=_picture(mesh_still(meshes[0])) if meshes else "",
        matches_still=_picture(match_still(bodies[0])) if bodies else "",
        claims=claims_table(page.claims) if page.claims else "",
        comparison="Our results next to the paper’s. " if any(row.paper for t in tables for row in t.rows) else "",
        tables="".join(_section(table, tables, page.baselines.get(table.data, {})) for table in tables),
        helps=first_claim_sentence(page.claims),
        outcome=f'<span class="found">{outcome} <a href="#claims">See each claim.</a></span>' if outcome else "",
        about=_about(runs, tables, page.problems),
        **{f"hidden_{name}": "" if shown else " hidden" for name, shown in sections.items()},
        data=json_text(data),
        blobs=blobs.html(),
        script=script,
    )


def _caution(tables: Sequence[ResultTable]) -> str:
    """What makes the figures of runs differ from the paper's that stand next to them."""
    compared = [table for table in tables if any(row.paper for row in table.rows)]
    generated = [data for data in dict.fromkeys(table.data for table in compared) if data in GENERATED]
    named = " and ".join(filter(None, (", ".join(generated[:-1]), *generated[-1:])))
    cautions = [
        f"The data {named} are generated: compare the order of the methods with the paper, not the figures."
        if named
        else "",
        "Training was shorter than the paper’s." if compared and all(table.is_short for table in compared) else "",
    ]
    return " ".join(filter(None, cautions))


def _counts(runs: Sequence[ReportRun], tables: Sequence[ResultTable]) -> str:
    rows = len({tuple(map(id, row.runs)) for table in tables for row in table.rows})
    seeds = len({run.record.seed for run in runs})
    return f"{len(runs)} for {rows} row{'s' if rows > 1 else ''} of the tables, " + (
        f"up to {seeds} seeds each" if seeds > 1 else "one seed"
    )


def _section(table: ResultTable, tables: Sequence[ResultTable], baselines: Mapping[str, Mapping[str, float]]) -> str:
    training, first = describe_training(table), next(other for other in tables if other.data == table.data)
    compared = describe_baselines(table, baselines) if table is first else ""
    notes = (f"Training: {training}." if training else "", compared)
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in notes if note)
    return (
        f'<section class="experiment" id="{table.key}"><h3>{escape(table.title)}</h3>'
        f"<p>{_introduction(table, tables)}</p>{said}{result_table_html(table)}</section>"
    )


def describe_baselines(table: ResultTable, baselines: Mapping[str, Mapping[str, float]]) -> str:
    """What methods without a mesh network reach; empty if runs have options of the data, such as a split."""
    metric = table.description.metrics[0] if table.description.metrics else None
    if metric is None or any(run.record.config.get("data_options") for row in table.rows for run in row.runs):
        return ""
    known = [f"{name} {metric.shown(own[metric.key])}" for name, own in baselines.items() if metric.key in own]
    return f"Without a mesh network ({metric.heading.lower()}, {metric.unit}): {', '.join(known)}." if known else ""


def _introduction(table: ResultTable, tables: Sequence[ResultTable]) -> str:
    """Task and data, or links to the first tables that explain them."""

    def like(other: ResultTable) -> str:
        return f'as in <a href="#{other.key}">{escape(other.title)}</a>.'

    task = next(other for other in tables if other.description.text == table.description.text)
    data = next(other for other in tables if other.data == table.data) if table.data in DATA else table
    if task is data is not table:
        return f"Task and data {like(task)}"
    first = escape(table.description.text) if task is table else f"Task {like(task)}"
    second = escape(DATA.get(table.data, "")) if data is table else f"Data {like(data)}"
    return f"{first} {second}".strip()


def describe_training(table: ResultTable) -> str:
    """The length of training, how it differs from the paper's, the coarsening and the precision; empty if not known."""
    schedule, records = describe_schedule(table.schedule), [run.record for row in table.rows for run in row.runs]
    length = ", ".join(filter(None, (table.epochs, schedule))) if schedule else ""
    return "; ".join(filter(None, (length, describe_coarsening(records), describe_precision(records))))


def _picture(still: Still) -> str:
    """A still picture with the name of each mesh below it."""
    source = base64.b64encode(still.png(300)).decode("ascii")
    names = "".join(f"<b>{escape(name)}</b>" for name in still.names)
    return (
        f'<figure class="still"><div class="scroll" tabindex="0" role="region" aria-label="Still picture">'
        f'<img src="data:image/png;base64,{source}" alt="{escape(", ".join(still.names))}">'
        f'<div class="names" aria-hidden="true">{names}</div></div>'
        f"<figcaption>{escape(still.text)}</figcaption></figure>"
    )


def _about(runs: Sequence[ReportRun], tables: Sequence[ResultTable], problems: Sequence[str]) -> str:
    """Number of runs, devices, training time and versions of the runs, and the files that could not be read."""
    devices = sorted({run.record.device for run in runs})
    versions = sorted({f"{name} {version}" for run in runs for name, version in run.record.versions.items()})
    seconds = sum(run.record.seconds for run in runs)
    entries = [
        ("Runs", _counts(runs, tables)),
        ("Trained on", ", ".join(devices)),
        ("Training time", f"{_duration(seconds)} in total"),
        ("Versions", ", ".join(versions)),
    ]
    facts = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in entries if text)
    faults = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f"<dl>{facts}</dl>" + (f'<h3>Not shown</h3><ul class="problems">{faults}</ul>' if faults else "")


def json_text(data: Any) -> str:
    """JSON that is safe inside ``<script>``: it contains no ``<``, ``>`` or ``&``, so no tag or comment can end it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _duration(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _asset(name: str) -> str:
    return files("geoskip.report").joinpath("assets", name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class WrittenReport:
    """The files that were written, and the reasons why others were not."""

    page: Path
    files: tuple[Path, ...]
    missing: tuple[str, ...]


def write_report(
    runs: Sequence[ReportRun], folder: Path, page: Page | None = None, *, figures: bool = True, renders: bool = False
) -> WrittenReport:
    """Write the page, then the figures (charts, pictures) and renders (large pictures of each mesh).

    Charts need matplotlib; without it the report says so.
    """
    page = page or Page()
    index = folder / "index.html"
    atomic_write(index, page_html(runs, page).encode())
    tables = result_tables(runs, page.published)
    stills = {f"meshes-{scene.key}": mesh_still(scene) for scene in mesh_scenes(tables)}
    stills |= {f"bodies-{scene.key}": match_still(scene) for scene in match_scenes(tables)}
    pictures: dict[Path, bytes] = {}
    if figures:
        pictures |= {folder / "figures" / f"{name}.png": still.png(400) for name, still in stills.items()}
    if renders:
        pictures |= {
            folder / "renders" / f"{name}-{number}.png": shapes_png([shape], RENDER_SIZE)
            for name, still in stills.items()
            for number, shape in enumerate(still.shapes)
        }
    for path, png in pictures.items():
        atomic_write(path, png)
    try:
        drawn = write_charts(charts(tables), folder / "figures") if figures else []
    except ImportError as error:
        return WrittenReport(index, tuple(pictures), (str(error),))
    return WrittenReport(index, (*pictures, *drawn), ())
