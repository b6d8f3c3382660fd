"""``geoskip data``: check, make, list and clear data sets."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.console import CommandGroup, log_to_stderr, print_table
from geoskip.cli.options import AsJson, given_options, with_data_flags
from geoskip.cli.train import OWN_PARAMETERS
from geoskip.data.catalog import BUILT_IN, DATA_SETS, FOLDERS, OPTIONS, find_data_set
from geoskip.data.declaration import DataSet

data = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Check, make, list and clear data sets.")


@data.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets to check; all if none is named.")] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Also verify every byte of the cache.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where each data set is, or how to get it. Exit code 1 if a named one is missing."""
    from geoskip.data.cache import entries
    from geoskip.data.catalog import check_data

    chosen = check_data(names)
    damaged = [entry for entry in entries(thorough=thorough) if entry.fault]
    if as_json:
        statuses = [asdict(status) | {"path": status.path and str(status.path)} for status in chosen]
        typer.echo(json.dumps({"data": statuses, "damaged": [asdict(entry) for entry in damaged]}, indent=1))
    else:
        for status in chosen:
            typer.echo(f"{status.name}: {'missing' if status.path is None else status.path}")
            typer.echo(f"    {status.message}")
        for entry in damaged:
            typer.echo(f"damaged in the cache, will be made again when needed: {entry.name} ({entry.fault})")
    if names and any(status.path is None for status in chosen):
        raise typer.Exit(1)


@data.command("list")
def list_entries(as_json: AsJson = False) -> None:
    """List the data sets in the cache."""
    from geoskip.data.cache import cache_root, entries
    from geoskip.data.catalog import describe_recipe

    cached = entries()
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in cached], indent=1))
        return
    rows = [
        (
            entry.kind,
            f"damaged: {entry.fault}" if entry.fault else describe_recipe(entry.recipe),
            f"{entry.num_bytes / 1e6:,.1f}",
            entry.name.rpartition("-")[2][:12],
        )
        for entry in cached
    ]
    if rows:
        print_table(["kind", "made with", "MB", "key"], rows, left=("made with", "key"))
    total = sum(entry.num_bytes for entry in cached) / 1e6
    typer.echo(f"{_count(cached)}, {total:,.1f} MB in {cache_root()}")


@data.command()
def clear(
    kind: Annotated[str | None, typer.Argument(help="Only entries of this kind, such as faces.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Empty the cache. Downloaded data sets in the data folder are not touched."""
    from geoskip.data.cache import cache_root, entries
    from geoskip.data.cache import clear as clear_cache

    chosen = [entry for entry in entries() if kind in (None, entry.kind)]
    total = sum(entry.num_bytes for entry in chosen) / 1e6
    for entry in chosen:
        typer.echo(f"{entry.name} ({entry.num_bytes / 1e6:,.1f} MB)")
    if not chosen:
        typer.echo(f"nothing{'' if kind is None else f' of the kind {kind}'} in {cache_root()}")
        return
    if not yes:
        typer.confirm(f"Remove {_count(chosen)}, {total:,.1f} MB, from {cache_root()}?", abort=True)
    removed, kept = clear_cache(kind)
    typer.echo(f"removed {_count(removed)}")
    for name in kept:
        typer.echo(f"left {name}: another process is making it")


def _count(entries: Sized) -> str:
    return f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"


class DataSetCommands(CommandGroup):
    """A command for each data set. Those of other packages are named as ``module:Name``, or by their entry point."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = super().get_command(ctx, cmd_name)
        if known is not None or not (":" in cmd_name or cmd_name in DATA_SETS):
            return known
        single = typer.Typer(add_completion=False)
        _add_command(single, cmd_name, find_data_set(cmd_name))
        return typer.main.get_command(single)


make = typer.Typer(cls=DataSetCommands, no_args_is_help=True, help="Generate or read a data set and cache it.")
data.add_typer(make, name="make")
Geodesics = Annotated[
    bool, typer.Option("--geodesics", help="Also compute all geodesic distances on the target (190 MB).")
]
DownloadedPath = Annotated[Path | None, typer.Argument(help="The original archive, or its unpacked folder.")]


def _add_command(commands: typer.Typer, name: str, data_set: DataSet) -> None:
    """``geoskip data make NAME``, with the options of the data set."""
    options = [option for option in data_set.options if option.name != "path"]

    def make_data_set(path: DownloadedPath = None, geodesics: Geodesics = False, **values: Any) -> None:
        given = given_options(options, values) | ({} if path is None else {"path": str(path)})
        loaded = _make(lambda: data_set.read(given), train_command(data_set.task, name, given))
        if geodesics:
            from geoskip.data import geodesics as all_distances

            distances, seconds = _timed(lambda: all_distances(loaded.target))
            typer.echo(f"geodesics: up to {distances.max() * loaded.unit_mm:.0f} mm ({seconds:.1f} s)")

    absent = [] if len(options) < len(data_set.options) else ["path"]
    absent += [] if data_set.task == "correspondence" else ["geodesics"]
    make_data_set.__doc__ = data_set.about
    commands.command(name)(with_data_flags(make_data_set, options, without=absent))


for _name, _data_set in BUILT_IN.items():
    if _data_set.task != "classification":
        _add_command(make, _name, _data_set)


def superpixels(
    images: Annotated[str, typer.Argument(help="mnist, fashion-mnist, or a folder of images.")] = "mnist",
    **values: Any,
) -> None:
    """Images as graphs of superpixels (needs the extra: images)."""
    given = given_options(SUPERPIXELS.values(), values)
    read = BUILT_IN[images].read if images in BUILT_IN else FOLDERS["classification"].read
    folder = () if images in BUILT_IN else (Path(images),)
    _make(lambda: read(given, *folder), train_command("classification", images, given))


SUPERPIXELS = {option.name: option for option in (*BUILT_IN["mnist"].options, *FOLDERS["classification"].options)}
make.command("superpixels")(with_data_flags(superpixels, SUPERPIXELS.values()))


def train_command(task: str, data: str, given: Mapping[str, Any]) -> str:
    """The command that trains on a data set with these options."""
    words = ["geoskip", "train", task, "--data", data]
    for name, value in given.items():
        flag = f"data-{name}" if name in OWN_PARAMETERS else name.replace("_", "-")
        if name not in OPTIONS:
            words += ["--set", f"data_options.{name}={json.dumps(value)}"]
        elif isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def _make(build: Callable[[], Any], train: str) -> Any:
    """Build a data set, which caches it, and describe it."""
    from geoskip.data.cache import cache_root

    loaded, seconds = _timed(build)
    if hasattr(loaded, "levels"):
        level = loaded.levels[0]
        edges, vertices = level.edges.shape[1] / len(loaded), int(level.offsets.diff().max())
        size = f"{len(loaded):,} graphs of {vertices} vertices and {edges:,.0f} directed edges on average"
    else:
        template = loaded.target if hasattr(loaded, "target") else loaded.template
        size = f"{len(loaded):,} meshes of {template.num_vertices:,} vertices, one unit is {loaded.unit_mm:g} mm"
    split = f"{len(loaded.split.train):,} for training, {len(loaded.split.test):,} for testing"
    typer.echo(f"{size}; {split}; cached in {cache_root()} ({seconds:.1f} s)")
    typer.echo(f"train on it with: {train}")
    return loaded


def _timed(build: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    with log_to_stderr():
        return build(), time.perf_counter() - start
