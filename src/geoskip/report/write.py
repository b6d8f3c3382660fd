"""A report as a folder: ``index.html``, which needs nothing beside it, and the figures as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired

from geoskip.records.atomic import write_whole
from geoskip.report.charts import charts
from geoskip.report.document import Page, page_html
from geoskip.report.figures import write_figures
from geoskip.report.matches import matchings
from geoskip.report.renders import renders_missing, write_renders
from geoskip.report.runs import ReportRun
from geoskip.report.scenes import scenes
from geoskip.report.stills import matching_still, scene_still
from geoskip.report.summary import Experiment, experiments


@dataclass(frozen=True)
class Written:
    """What was written, and what was not and why."""

    page: Path
    files: tuple[Path, ...]
    missing: tuple[str, ...]


def write_report(
    runs: Sequence[ReportRun], folder: Path, page: Page | None = None, *, figures: bool = True, renders: bool = False
) -> Written:
    """Write the page first, then what can be had of the figures (charts, pictures) and of the renders."""
    page = page or Page()
    index = folder / "index.html"
    write_whole(index, page_html(runs, page).encode())
    found = experiments(runs, page.published)
    files: list[Path] = []
    missing: list[str] = []
    if figures:
        files += _pictures(found, folder / "figures")
        try:
            files += write_figures(charts(found), folder / "figures")
        except ImportError as error:
            missing.append(str(error))
    if renders and (why := renders_missing()):
        missing.append(why)
    elif renders:
        try:
            files += write_renders(scenes(found), folder / "renders")
        except (RuntimeError, TimeoutExpired) as error:
            missing.append(str(error))
    return Written(index, tuple(files), tuple(missing))


def _pictures(found: list[Experiment], folder: Path) -> list[Path]:
    stills = {f"meshes-{scene.key}": scene_still(scene, 400) for scene in scenes(found)}
    stills |= {f"bodies-{matching.key}": matching_still(matching, 400) for matching in matchings(found)}
    for name, still in stills.items():
        write_whole(folder / f"{name}.png", still.png)
    return [folder / f"{name}.png" for name in stills]
