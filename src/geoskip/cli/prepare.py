"""``geoskip prepare``: one's own template, made ready for networks, in one file."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


class Axis(StrEnum):
    """The axis that points up."""

    y = "y"
    z = "z"


def prepare(
    template: Annotated[Path, typer.Argument(help="The mesh: .ply, .obj, .off, .stl, .gltf or .glb.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write; else NAME.template.safetensors, here.")
    ] = None,
    factors: Annotated[
        str | None, typer.Option(help="By how much each level is coarser than the one before; else 4,4,4,4.")
    ] = None,
    targets: Annotated[str | None, typer.Option(help="Vertices of each coarser level, instead of factors.")] = None,
    spiral_length: Annotated[int, typer.Option(min=0, help="Vertices of each spiral; 0 for no spirals.")] = 15,
    unit_mm: Annotated[
        float | None, typer.Option(help="Millimetres per unit of the mesh (1000 for metres), kept in the file.")
    ] = None,
    drop_degenerate: Annotated[
        bool, typer.Option("--drop-degenerate", help="Leave out faces that name a vertex twice.")
    ] = False,
    pictures: Annotated[Path | None, typer.Option(help="Folder for a picture of the levels (PNG).")] = None,
    up: Annotated[Axis, typer.Option(help="The axis that points up in the pictures.")] = Axis.y,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a template ready: levels, matrices, pseudo-coordinates and spirals in one file."""
    if factors is not None and targets is not None:
        raise typer.BadParameter("give --factors or --targets, not both")
    levels = {"factors": _numbers("--factors", factors or "4,4,4,4")}
    if targets is not None:
        levels = {"targets": _numbers("--targets", targets)}
    from geoskip.data.template import prepare_template
    from geoskip.data.template_file import save_template
    from geoskip.meshes import read_mesh

    start = time.perf_counter()
    path = output or Path(f"{template.stem}.template.safetensors")
    with Console(stderr=True).status(f"preparing {template.name}"):
        mesh = read_mesh(template, drop_degenerate=drop_degenerate)
        made = prepare_template(mesh, **levels, spiral_length=spiral_length or None, unit_mm=unit_mm)
        save_template(path, made)
        written = [path] + ([] if pictures is None else [_draw(made, pictures, template.stem, up)])
    _tell(made, written, time.perf_counter() - start, as_json)


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"whole numbers with commas between them, not {text!r}", param_hint=option) from None


def _draw(made: Any, folder: Path, stem: str, up: Axis) -> Path:
    from geoskip.report.pictures import write_png
    from geoskip.report.sheets import level_sheet

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-levels.png"
    write_png(path, level_sheet(made.meshes, up=up.value))
    return path


def _tell(made: Any, written: list[Path], seconds: float, as_json: bool) -> None:
    from geoskip.meshes import summary

    levels = [summary(mesh) | {"topology": mesh.topology_hash()} for mesh in made.meshes.levels]
    if as_json:
        files = [str(path) for path in written]
        typer.echo(json.dumps({"levels": levels, "unit_mm": made.unit_mm, "files": files}, indent=1))
        return
    Console().print(_table(levels, made.unit_mm))
    for path in written:
        typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    typer.echo(f"{seconds:.1f} s in all")


def _table(levels: list[dict[str, Any]], unit_mm: float | None) -> Table:
    columns = {name: name.replace("_", " ") for name in levels[0]}
    columns["mean_edge"] += "" if unit_mm is None else ", mm"
    columns["nonmanifold_edges"] = "edges of 3+ faces"
    del columns["topology"]
    # So narrow that all headings fit in 80 columns.
    table = Table(title="Levels of the template", title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for heading in ("level", *columns.values()):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        shown = level | {"mean_edge": f"{level['mean_edge'] * (unit_mm or 1.0):.3g}"}
        cells = (shown[name] for name in columns)
        table.add_row(str(number), *(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
    return table
