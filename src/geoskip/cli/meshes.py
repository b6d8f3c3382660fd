"""``geoskip prepare`` and ``geoskip warp``: commands on mesh files."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console

from geoskip.cli.console import print_table
from geoskip.cli.options import AsJson, Axis, Force, UpAxis, check_overwrite, parse_integers


def prepare(
    template: Annotated[Path, typer.Argument(help="Mesh file: .ply, .obj, .off, .stl, .gltf or .glb.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write.", show_default="NAME.template.safetensors")
    ] = None,
    factors: Annotated[
        str | None, typer.Option(help="How many times fewer vertices each level has.", show_default="4,4,4,4")
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="Number of vertices of each coarser level, instead of --factors.")
    ] = None,
    spiral_length: Annotated[int, typer.Option(min=0, help="Vertices of each spiral; 0 for no spirals.")] = 15,
    unit_mm: Annotated[
        float | None, typer.Option(help="Millimeters per unit of the mesh, such as 1000 for meters.")
    ] = None,
    drop_degenerate: Annotated[
        bool, typer.Option("--drop-degenerate", help="Drop faces that contain a vertex twice.")
    ] = False,
    pictures: Annotated[Path | None, typer.Option(help="Folder for a picture of the levels (PNG).")] = None,
    up: UpAxis = Axis.y,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a template for training: levels, matrices between them, pseudo-coordinates and spirals in one file."""
    if factors is not None and targets is not None:
        raise typer.BadParameter("give --factors or --targets, not both")
    levels = {"factors": parse_integers("--factors", factors or "4,4,4,4")}
    if targets is not None:
        levels = {"targets": parse_integers("--targets", targets)}
    from geoskip.data import prepare_template, save_template
    from geoskip.meshes import read_mesh
    from geoskip.report.picture_grids import level_grid
    from geoskip.report.pictures import write_png

    start = time.perf_counter()
    files = [output or Path(f"{template.stem}.template.safetensors")]
    check_overwrite(files[0], force)
    with Console(stderr=True).status(f"preparing {template.name}"):
        mesh = read_mesh(template, drop_degenerate=drop_degenerate)
        prepared = prepare_template(mesh, **levels, spiral_length=spiral_length or None, unit_mm=unit_mm)
        save_template(files[0], prepared)
        if pictures is not None:
            files.append(pictures / f"{template.stem}-levels.png")
            write_png(files[1], level_grid(prepared.meshes, up=up.value))
    _show_levels(prepared, files, time.perf_counter() - start, as_json)


def _show_levels(prepared: Any, files: list[Path], seconds: float, as_json: bool) -> None:
    from geoskip.meshes import summary

    levels = [summary(mesh) | {"topology": mesh.topology_hash()} for mesh in prepared.meshes.levels]
    if as_json:
        entries = {"levels": levels, "unit_mm": prepared.unit_mm, "files": [str(path) for path in files]}
        typer.echo(json.dumps(entries, indent=1))
        return
    headings = {name: name.replace("_", " ") for name in levels[0] if name != "topology"}
    headings["mean_edge"] += "" if prepared.unit_mm is None else ", mm"
    headings["nonmanifold_edges"] = "edges of 3+ faces"
    rows = []
    for number, level in enumerate(levels):
        shown = level | {"mean_edge": f"{level['mean_edge'] * (prepared.unit_mm or 1.0):.3g}"}
        cells = (shown[name] for name in headings)
        rows.append([str(number), *(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells)])
    # So narrow that all headings fit in 80 columns.
    narrow: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 0, 0, 1)}
    print_table(["level", *headings.values()], rows, title="Levels of the template", **narrow)
    for path in files:
        typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    typer.echo(f"{seconds:.1f} s in total")


def warp(
    mesh: Annotated[Path, typer.Argument(help="Mesh file: .ply, .obj, .off, .stl, .gltf or .glb.")],
    landmarks: Annotated[
        Path,
        typer.Argument(
            help="Landmarks on the mesh, .json or .csv: vertex numbers or points x, y, z, with or without names."
        ),
    ],
    targets: Annotated[
        Path, typer.Argument(help="Where the landmarks go: as many, in the same order or with the same names.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Mesh file to write.", show_default="NAME.warped.ply")
    ] = None,
    target_mesh: Annotated[
        Path | None,
        typer.Option(help="Mesh to which the vertex numbers of the targets refer.", show_default="the first mesh"),
    ] = None,
    affine: Annotated[
        bool, typer.Option("--affine/--no-affine", help="Include an affine part, or use kernels alone.")
    ] = True,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Radial kernel: linear, thin_plate, cubic, gaussian, wendland_c2, …",
            show_default="the one that bends least",
        ),
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Width of a Gaussian or radius of a Wendland kernel, in units of the mesh.")
    ] = None,
    smoothing: Annotated[float, typer.Option(help="Above 0, the targets are met approximately.")] = 0.0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Warp a mesh so that its landmarks meet their targets, with a thin plate spline or another kernel."""
    import numpy as np
    import torch

    from geoskip.meshes import read_mesh, write_mesh
    from geoskip.rbf import apply_warp, pair_landmarks, read_landmarks
    from geoskip.rbf import warp as fit_warp

    path = output or Path(f"{mesh.stem}.warped.ply")
    check_overwrite(path, force)
    source = read_mesh(mesh)
    target = source if target_mesh is None else read_mesh(target_mesh)
    pairs = pair_landmarks(read_landmarks(landmarks, source), read_landmarks(targets, target))
    start, goal = map(torch.from_numpy, pairs)
    if affine and len(start) < 4:
        raise ValueError(f"landmarks: the affine part needs 4 or more, got {len(start)}; add some, or pass --no-affine")
    fitted = fit_warp(start, goal, _kernel(kernel, width), affine=affine, smoothing=smoothing)
    warped = apply_warp(source, fitted)
    write_mesh(warped, path)
    degree, moves = fitted.displacement.degree, np.linalg.norm(warped.verts - source.verts, axis=1)
    summary = {
        "landmarks": len(start),
        "kernel": fitted.displacement.kernel.name,
        "degree": degree,
        "largest_miss": float((fitted(start) - goal).norm(dim=1).max()),
        "mean_move": float(moves.mean()),
        "largest_move": float(moves.max()),
        "affine": fitted.affine()[0].tolist() if degree <= 1 else None,
    }
    if as_json:
        typer.echo(json.dumps(summary | {"file": str(path)}, indent=1))
        return
    part = "no polynomial part" if degree < 0 else f"a polynomial part of degree {degree}"
    typer.echo(f"{summary['landmarks']} landmarks, {summary['kernel']} kernel, {part}")
    typer.echo(f"vertices moved by {summary['mean_move']:.4g} on average, {summary['largest_move']:.4g} at most")
    typer.echo(f"targets missed by {summary['largest_miss']:.2g} at most; lengths are in units of the mesh")
    typer.echo(f"wrote {path}")


def _kernel(name: str | None, width: float | None) -> Any:
    if width is not None and not width > 0:
        raise typer.BadParameter(f"must be above 0, got {width}", param_hint="--width")
    if name is None and width is None:
        return None
    from geoskip.rbf import make_kernel

    name = name or "linear"
    try:
        return make_kernel(name, None if width is None else 1 / width)
    except ValueError as error:
        if not str(error).startswith("epsilon"):
            raise typer.BadParameter(str(error).removeprefix("kernel: "), param_hint="--kernel") from error
        # The library's message is about the inverse width, which is not what the user gave.
        fault = "has no width" if width is not None else "needs a width; try the distance between neighboring landmarks"
        raise typer.BadParameter(f"the {name} kernel {fault}", param_hint="--width") from error
