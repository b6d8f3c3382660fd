"""``geoskip warp``: warp a mesh by landmarks."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def warp(
    mesh: Annotated[Path, typer.Argument(help="Mesh file: .ply, .obj, .off, .stl, .gltf or .glb.")],
    landmarks: Annotated[
        Path,
        typer.Argument(
            help="Landmarks on the mesh, .json or .csv: vertex numbers or points x, y, z, with or without names."
        ),
    ],
    targets: Annotated[Path, typer.Argument(help="Where each landmark goes: the same number, or the same names.")],
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
    smoothing: Annotated[float, typer.Option(help="Above 0, the targets are only met approximately.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Warp a mesh so that its landmarks meet their targets, with a thin plate spline or another kernel."""
    from geoskip.meshes import read_mesh, write_mesh
    from geoskip.rbf import apply_warp, pair_landmarks, read_landmarks
    from geoskip.rbf import warp as fit_warp

    source = read_mesh(mesh)
    target = source if target_mesh is None else read_mesh(target_mesh)
    start, goal = map(_tensor, pair_landmarks(read_landmarks(landmarks, source), read_landmarks(targets, target)))
    fitted = fit_warp(start, goal, _kernel(kernel, width), affine=affine, smoothing=smoothing)
    path = output or Path(f"{mesh.stem}.warped.ply")
    warped = apply_warp(source, fitted)
    write_mesh(warped, path)
    _print_summary(_summary(fitted, start, goal, source, warped), path, as_json)


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
            raise typer.BadParameter(str(error), param_hint="--kernel") from error
        # The library's message is about the inverse width, which is not what the user gave.
        fault = "has no width" if width is not None else "needs a width; try the distance between neighboring landmarks"
        raise typer.BadParameter(f"the {name} kernel {fault}", param_hint="--width") from error


def _tensor(points: Any) -> Any:
    import torch

    return torch.from_numpy(points)


def _summary(fitted: Any, start: Any, goal: Any, source: Any, warped: Any) -> dict[str, Any]:
    import numpy as np

    kernel, moves = fitted.displacement.kernel, np.linalg.norm(warped.verts - source.verts, axis=1)
    return {
        "landmarks": len(start),
        "kernel": kernel.name,
        "degree": fitted.displacement.degree,
        "largest_miss": float((fitted(start) - goal).norm(dim=1).max()),
        "mean_move": float(moves.mean()),
        "largest_move": float(moves.max()),
        "affine": fitted.affine()[0].tolist() if fitted.displacement.degree <= 1 else None,
    }


def _print_summary(summary: dict[str, Any], path: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary | {"file": str(path)}, indent=1))
        return
    part = "no polynomial part" if summary["degree"] < 0 else f"a polynomial part of degree {summary['degree']}"
    typer.echo(f"{summary['landmarks']} landmarks, {summary['kernel']} kernel, {part}")
    typer.echo(f"vertices moved by {summary['mean_move']:.4g} on average, {summary['largest_move']:.4g} at most")
    typer.echo(f"targets missed by {summary['largest_miss']:.2g} at most")
    typer.echo(f"wrote {path}")
