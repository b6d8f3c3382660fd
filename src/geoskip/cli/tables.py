"""``geoskip tables``: print the tables of the records in a folder, or update the marked blocks of pages."""

from pathlib import Path
from typing import Annotated

import typer


def tables(
    pages: Annotated[
        list[Path] | None,
        typer.Argument(help="Pages with markers such as <!-- table2 -->; without pages, print all tables."),
    ] = None,
    results: Annotated[Path, typer.Option("--results", help="Folder with the records of `geoskip reproduce`.")] = Path(
        "results"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if a page is out of date.")
    ] = False,
) -> None:
    """Write the tables of the records into pages, or print them in Markdown."""
    from geoskip.paper.tables import BLOCKS, OPENING, block, filled
    from geoskip.records.files import atomic_write

    if not results.is_dir():
        raise ValueError(f"{results}: there is no such folder of records; name it with --results")
    if not pages:
        blocks = [block(name, results) for name in BLOCKS]
        typer.echo("".join(blocks).strip() or f"no records of full or short runs in {results}")
        return
    stale = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        made = filled(text, results)
        if not set(OPENING.findall(text)) & set(BLOCKS):
            raise ValueError(
                f"{page}: has no marker to put a table at; write <!-- NAME --> and <!-- /NAME --> on lines of their "
                f"own, where NAME is one of {', '.join(BLOCKS)}"
            )
        if made != text:
            stale.append(page)
            if not check:
                atomic_write(page, made.encode())
    for page in stale:
        typer.echo(f"{page}: {'out of date' if check else 'written'}")
    if check and stale:
        raise typer.Exit(1)
