"""``geoskip data``: which data sets are here, what the cache holds, and making what can be made."""

import json
from collections.abc import Sized
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from geoskip.cli.errors import Choices
from geoskip.cli.make import make

data = typer.Typer(cls=Choices, no_args_is_help=True, help="See, make and clear data sets.")
data.add_typer(make, name="make")
JSON = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@data.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets to look for; all, unless named.")] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Also read every byte of the cache.")] = False,
    as_json: JSON = False,
) -> None:
    """Tell what is there of each data set, and how to get the rest. Exit code 1 if a named one is missing."""
    from geoskip.data.cache import entries
    from geoskip.data.catalog import check_data

    chosen = check_data(names or None)
    damaged = [entry for entry in entries(thorough=thorough) if entry.fault]
    if as_json:
        held = [asdict(status) | {"place": status.place and str(status.place)} for status in chosen]
        typer.echo(json.dumps({"data": held, "damaged": [asdict(entry) for entry in damaged]}, indent=1))
    else:
        for status in chosen:
            typer.echo(f"{status.name}: {'missing' if status.place is None else status.place}")
            typer.echo(f"    {status.message}")
        for entry in damaged:
            typer.echo(f"damaged in the cache, and built again when next needed: {entry.name} ({entry.fault})")
    if names and any(status.place is None for status in chosen):
        raise typer.Exit(1)


@data.command("list")
def list_entries(as_json: JSON = False) -> None:
    """List what the cache holds."""
    from geoskip.data.cache import cache_root, entries
    from geoskip.data.catalog import describe_recipe

    found = entries()
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in found], indent=1))
        return
    table = Table()
    for column in ("kind", "made with", "MB", "key"):
        table.add_column(column, justify="right" if column == "MB" else "left", overflow="fold")
    for entry in found:
        made_with = f"damaged: {entry.fault}" if entry.fault else describe_recipe(entry.recipe)
        key = entry.name.rpartition("-")[2][:12]
        table.add_row(entry.kind, escape(made_with), f"{entry.num_bytes / 1e6:,.1f}", key)
    if found:
        Console().print(table)
    total = sum(entry.num_bytes for entry in found) / 1e6
    typer.echo(f"{_count(found)}, {total:,.1f} MB in {cache_root()}")


@data.command()
def clear(
    kind: Annotated[str | None, typer.Argument(help="Only entries of this kind, such as faces.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove what the cache holds. The data sets of others, in the data folder, are not touched."""
    from geoskip.data.cache import cache_root, entries
    from geoskip.data.cache import clear as clear_cache

    found = [entry for entry in entries() if kind in (None, entry.kind)]
    total = sum(entry.num_bytes for entry in found) / 1e6
    for entry in found:
        typer.echo(f"{entry.name} ({entry.num_bytes / 1e6:,.1f} MB)")
    if not found:
        typer.echo(f"nothing{'' if kind is None else f' of the kind {kind}'} in {cache_root()}")
    elif not yes:
        typer.confirm(f"Remove {_count(found)}, {total:,.1f} MB, from {cache_root()}?", abort=True)
    removed, kept = clear_cache(kind)
    typer.echo(f"removed {_count(removed)}")
    for name in kept:
        typer.echo(f"left {name}: another process is making it")


def _count(found: Sized) -> str:
    return f"{len(found)} {'entry' if len(found) == 1 else 'entries'}"
