"""``geoskip report``: one page that shows what runs came to."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, searched to any depth, or run records.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")] = Path("report"),
    title: Annotated[str, typer.Option(help="The page's title.")] = "",
    figures: Annotated[bool, typer.Option(help="Also write charts and pictures as PNG and SVG files.")] = True,
    renders: Annotated[bool, typer.Option(help="Also write large renders of the meshes (needs pyvista).")] = False,
) -> None:
    """Write one page with tables, curves and meshes that works offline, from any place."""
    from geoskip.paper.claims import claim_rows, published_tables
    from geoskip.report.page import TITLE, Page, write_report
    from geoskip.report.runs import find_runs

    found = find_runs(runs)
    for problem in found.problems:
        typer.echo(f"left out: {problem}", err=True)
    page = Page(title or TITLE, claim_rows(found.runs), found.problems, published_tables())
    written = write_report(found.runs, output, page, figures=figures, renders=renders)
    for why in written.missing:
        typer.echo(f"not written: {why}", err=True)
    size = written.page.stat().st_size / 1e6
    told = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in ((len(found.runs), "run"), (len(written.files), "figure"))
    ]
    typer.echo(f"{told[0]}: {written.page} ({size:.1f} MB), {told[1]}")
