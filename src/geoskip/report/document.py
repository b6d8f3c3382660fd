"""The page: a template, its style and scripts, and the data, in one file that asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from geoskip.report import matches, scenes
from geoskip.report.charts import charts
from geoskip.report.claims import ClaimRow, claims_table
from geoskip.report.digits import galleries
from geoskip.report.embed import Blobs, json_text
from geoskip.report.glance import glance_cards, glances
from geoskip.report.metrics import DATA, SCHEDULES
from geoskip.report.palette import MAPS, colour_map, css
from geoskip.report.runs import ReportRun
from geoskip.report.stills import Still, matching_still, scene_still
from geoskip.report.summary import Experiment, Published, experiments
from geoskip.report.tables import experiment_table

SCRIPTS = ("dom", "theme", "tables", "blobs", "camera", "surface", "rough", "stage", "errors", "meshes", "matches",
           "graphs", "scales", "plot", "reading", "chart", "main")  # fmt: skip
TITLE = "What does a skip connection change?"
# Base64 of all meshes: a page that mail and repositories still take.
BUDGET = 7_000_000


@dataclass(frozen=True)
class Page:
    """What the page shows beside the runs.

    title: of the page.
    claims: rows of the table of claims.
    problems: what could not be read, in words.
    published: the tables that runs are compared with, by the name of the experiment.
    """

    title: str = TITLE
    claims: tuple[ClaimRow, ...] = ()
    problems: tuple[str, ...] = ()
    published: Published = field(default_factory=dict)


def page_html(runs: Sequence[ReportRun], page: Page | None = None) -> str:
    """The whole page; the same for the same runs."""
    page = page or Page()
    found = experiments(runs, page.published)
    blobs, looked_at, matched = _meshes(found)
    pictures = [scene_still(scene) for scene in scenes.scenes(found)[:1]]
    bodies = [matching_still(matching) for matching in matches.matchings(found)[:1]]
    data = {
        "maps": {name: np.round(255 * colour_map(name)).astype(int).ravel().tolist() for name in MAPS},
        "scenes": looked_at,
        "matchings": matched,
        "galleries": galleries(found, blobs),
        "charts": [chart.plain() for chart in charts(found)],
    }
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src 'sha256-{digest}'",
        title=escape(page.title),
        lede=_lede(runs, found),
        style=css() + _asset("page.css") + _asset("figures.css"),
        glance=glance_cards(glances(found)),
        meshes_still=_image(pictures),
        matches_still=_image(bodies),
        claims=claims_table(page.claims) if page.claims else "",
        tables="".join(map(_section, found)),
        about=_about(runs, page.problems),
        hidden_meshes="" if looked_at else " hidden",
        hidden_matches="" if matched else " hidden",
        hidden_graphs="" if data["galleries"] else " hidden",
        hidden_charts="" if data["charts"] else " hidden",
        hidden_claims="" if page.claims else " hidden",
        data=json_text(data),
        blobs=blobs.html(),
        script=script,
    )


def _meshes(found: Sequence[Experiment]) -> tuple[Blobs, list[dict[str, Any]], list[dict[str, Any]]]:
    """As many samples of every scene as the budget allows, one at least."""
    for count in (8, 6, 4, 3, 2, 1):
        blobs = Blobs()
        looked_at = [scenes.embedded(scene, blobs, count) for scene in scenes.scenes(found)]
        matched = [matches.embedded(matching, blobs, count) for matching in matches.matchings(found)]
        if blobs.num_bytes <= BUDGET:
            break
    return blobs, looked_at, matched


def _lede(runs: Sequence[ReportRun], found: Sequence[Experiment]) -> str:
    rows = len({tuple(map(id, row.runs)) for experiment in found for row in experiment.rows})
    seeds = len({run.record.seed for run in runs})
    return f"{len(runs)} run{'s' if len(runs) > 1 else ''}, {rows} method{'s' if rows > 1 else ''}, " + (
        f"{seeds} seeds" if seeds > 1 else "one seed"
    )


def _section(experiment: Experiment) -> str:
    text = " ".join(filter(None, (experiment.subject.text, DATA.get(experiment.data))))
    schedule = SCHEDULES.get(experiment.schedule, "")
    told = ": ".join(filter(None, (schedule, experiment.length)))
    note = f'<p class="note">Schedule: {escape(told)}.</p>' if schedule else ""
    return (
        f'<section class="experiment" id="{experiment.key}"><h3>{escape(experiment.title)}</h3>'
        f"<p>{escape(text)}</p>{note}{experiment_table(experiment)}</section>"
    )


def _image(stills: Sequence[Still]) -> str:
    if not stills:
        return ""
    source = base64.b64encode(stills[0].png).decode("ascii")
    return f'<img src="data:image/png;base64,{source}" alt="{escape(stills[0].text)}">'


def _about(runs: Sequence[ReportRun], problems: Sequence[str]) -> str:
    """Where the figures come from: devices, versions, time; and what could not be read."""
    devices = sorted({run.record.device for run in runs})
    versions = sorted({f"{name} {version}" for run in runs for name, version in run.record.versions.items()})
    seconds = sum(run.record.seconds for run in runs)
    entries = [
        ("Trained on", ", ".join(devices)),
        ("Time of training", f"{_duration(seconds)} in all"),
        ("Versions", ", ".join(versions)),
    ]
    told = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in entries if text)
    faults = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f"<dl>{told}</dl>" + (f'<h3>Not shown</h3><ul class="problems">{faults}</ul>' if faults else "")


def _duration(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _asset(name: str) -> str:
    return files("geoskip.report").joinpath("page", name).read_text(encoding="utf-8")
