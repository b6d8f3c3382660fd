"""``geoskip warp``: a mesh moved by landmarks."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def warp(
    mesh: Annotated[Path, typer.Argument(help="The mesh: .ply, .obj, .off, .stl, .gltf or .glb.")],
    landmarks: Annotated[
        Path,
        typer.Argument(
            help="Where it is held: .json or .csv, of vertex numbers or points x, y, z, with names or without."
        ),
    ],
    targets: Annotated[Path, typer.Argument(help="Where each landmark goes: as many, or the same names.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The mesh to write; else NAME.warped.ply, here.")
    ] = None,
    target_mesh: Annotated[
        Path | None, typer.Option(help="The mesh of the targets' vertex numbers; else the first mesh.")
    ] = None,
    affine: Annotated[
        bool, typer.Option("--affine/--no-affine", help="With the affine part, or kernels alone.")
    ] = True,
    kernel: Annotated[
        str | None,
        typer.Option(help="linear, thin_plate, cubic, gaussian, wendland_c2, …; else the one that bends least."),
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Width of a Gaussian, radius of a Wendland kernel, in units of the mesh.")
    ] = None,
    smoothing: Annotated[float, typer.Option(help="Above 0 the targets are met approximately.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Warp a mesh so that its landmarks meet their targets, by a thin plate spline or another kernel."""
    from geoskip.meshes import read_mesh, write_mesh
    from geoskip.rbf import read_landmarks
    from geoskip.rbf import warp as fit_warp
    from geoskip.rbf.landmarks import paired
    from geoskip.rbf.warping import moved

    source = read_mesh(mesh)
    goal = source if target_mesh is None else read_mesh(target_mesh)
    held, wanted = paired(read_landmarks(landmarks, source), read_landmarks(targets, goal))
    chosen = _kernel(kernel, width)
    fitted = fit_warp(_tensor(held), _tensor(wanted), chosen, affine=affine, smoothing=smoothing)
    path = output or Path(f"{mesh.stem}.warped.ply")
    warped = moved(source, fitted)
    write_mesh(warped, path)
    _tell(_summary(fitted, _tensor(held), _tensor(wanted), source, warped), path, as_json)


def _kernel(name: str | None, width: float | None) -> Any:
    if width is not None and not width > 0:
        raise typer.BadParameter(f"a length above 0, not {width}", param_hint="--width")
    if name is None and width is None:
        return None
    from geoskip.rbf import make_kernel

    name = name or "linear"
    try:
        return make_kernel(name, None if width is None else 1 / width)
    except ValueError as error:
        if not str(error).startswith("epsilon"):
            raise typer.BadParameter(str(error), param_hint="--kernel") from error
        # The library counts in inverse widths.
        said = "has none" if width is not None else "needs one; try the distance between neighbouring landmarks"
        raise typer.BadParameter(f"the {name} kernel {said}", param_hint="--width") from error


def _tensor(points: Any) -> Any:
    import torch

    return torch.from_numpy(points)


def _summary(fitted: Any, held: Any, wanted: Any, source: Any, warped: Any) -> dict[str, Any]:
    import numpy as np

    kernel, moves = fitted.displacement.kernel, np.linalg.norm(warped.verts - source.verts, axis=1)
    return {
        "landmarks": len(held),
        "kernel": kernel.name,
        "degree": fitted.displacement.degree,
        "largest_miss": float((fitted(held) - wanted).norm(dim=1).max()),
        "mean_move": float(moves.mean()),
        "largest_move": float(moves.max()),
        "affine": fitted.affine()[0].tolist() if fitted.displacement.degree <= 1 else None,
    }


def _tell(told: dict[str, Any], path: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(told | {"file": str(path)}, indent=1))
        return
    part = "no polynomial part" if told["degree"] < 0 else f"a polynomial part of degree {told['degree']}"
    typer.echo(f"{told['landmarks']} landmarks, {told['kernel']} kernel, {part}")
    typer.echo(f"vertices moved by {told['mean_move']:.4g} on average, {told['largest_move']:.4g} at most")
    typer.echo(f"targets missed by {told['largest_miss']:.2g} at most")
    typer.echo(f"wrote {path}")
