"""Warping meshes and points by landmarks: a smooth map that takes each landmark to its target.

Landmarks are read from JSON or CSV files, as vertex numbers or points, with or without names.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.arguments import check_type, number_array
from geoskip.meshes import Mesh
from geoskip.rbf.interpolant import CONVERT, RBFInterpolant, fit_rbf
from geoskip.rbf.radial_kernels import RadialKernel, biharmonic, choose_kernel
from geoskip.records.reading import parse_json, read_text
from geoskip.shapes import Float

# By name, or by position in the file if it has no names.
Landmarks = dict[str, Float[np.ndarray, "3"]]


@dataclass(frozen=True, eq=False)
class Warp:
    """x ↦ x + u(x), where u is the interpolated displacement. Call it at any number of points."""

    displacement: RBFInterpolant

    def __call__(self, points: Float[Tensor, "*batch points dim"]) -> Float[Tensor, "*batch points dim"]:
        return points + self.displacement(points)

    def affine(self) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
        """A and b of the map's affine part x ↦ x A + b; I and 0 for a warp without one."""
        slopes, offset = self.displacement.affine()
        return slopes + torch.eye(slopes.shape[-1], dtype=slopes.dtype, device=slopes.device), offset


def warp(
    landmarks: Float[Tensor, "landmarks dim"],
    targets: Float[Tensor, "landmarks dim"],
    kernel: str | RadialKernel | None = None,
    *,
    affine: bool = True,
    smoothing: float = 0.0,
    epsilon: float | None = None,
) -> Warp:
    """The map that takes ``landmarks`` to ``targets``, by default the one that bends least (Bookstein 1989).

    Args:
        landmarks: points before the warp.
        targets: where each of them goes.
        kernel: as for :func:`~geoskip.rbf.fit_rbf`. The default is the thin plate spline of this dimension.
        affine: include an affine part. If the targets are an affine image of the landmarks, the whole space then moves
            by that affine map. Without it, the map is the identity plus a sum of kernels. With a decaying kernel
            (Gaussian, Wendland) that is a local edit; with a growing one (thin plate) the map does not even reproduce
            translations.
        smoothing: above 0 the targets are only met approximately, which suits landmarks placed by hand.
        epsilon: the inverse width of a kernel given by name.
    """
    for name, points in (("landmarks", landmarks), ("targets", targets)):
        check_type(name, points, Tensor, CONVERT)
    if landmarks.dim() < 2:
        raise ValueError(f"landmarks: expected points, [landmarks, dim], got shape {list(landmarks.shape)}")
    if landmarks.shape != targets.shape:
        raise ValueError(
            f"targets: expected {list(landmarks.shape)}, one point per landmark, got {list(targets.shape)}"
        )
    dim = landmarks.shape[-1]
    chosen = choose_kernel(biharmonic(dim) if kernel is None else kernel, epsilon, dim)
    degree = max(1, chosen.min_degree) if affine else -1
    if affine and landmarks.shape[-2] <= dim:
        raise ValueError(
            f"landmarks: an affine part needs at least {dim + 1} of them, got {landmarks.shape[-2]}; add some, or "
            "leave out the affine part"
        )
    try:
        return Warp(fit_rbf(landmarks, targets - landmarks, chosen, degree=degree, smoothing=smoothing))
    except ValueError as error:
        message = str(error).replace("centers", "landmarks").replace("lower the degree", "leave out the affine part")
        raise ValueError(message) from None


def warp_mesh(
    mesh: Mesh,
    landmarks: Float[np.ndarray, "landmarks 3"],
    targets: Float[np.ndarray, "landmarks 3"],
    kernel: str | RadialKernel | None = None,
    **options: Any,
) -> Mesh:
    """Apply the :func:`warp` that takes ``landmarks`` to ``targets`` to the vertices of ``mesh``.

    A landmark can be any point. For landmarks at vertices pass ``mesh.verts[numbers]``. ``options`` are those of
    :func:`warp`.
    """
    check_type("mesh", mesh, Mesh)
    sources = number_array("landmarks", landmarks, "iuf", dim=2).astype(np.float64)
    goals = number_array("targets", targets, "iuf", dim=2).astype(np.float64)
    return apply_warp(mesh, warp(torch.from_numpy(sources), torch.from_numpy(goals), kernel, **options))


def apply_warp(mesh: Mesh, fitted: Warp) -> Mesh:
    """``mesh`` with its vertices moved by ``fitted``; the faces stay."""
    with torch.no_grad():
        return mesh.with_verts(fitted(torch.from_numpy(mesh.verts.copy())).numpy())


def read_landmarks(path: str | Path, mesh: Mesh | None = None) -> Landmarks:
    """Read landmarks from a file, as points; vertex numbers are looked up in ``mesh``.

    JSON: a list of vertex numbers or ``[x, y, z]``, or an object that maps names to them. CSV: one line per landmark,
    as ``vertex``, ``x,y,z``, ``name,vertex`` or ``name,x,y,z``; a first line without any number is a header.
    """
    path = Path(path)
    readers = {".json": _from_json, ".csv": _from_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: landmarks are read from .json and .csv files")
    try:
        entries = readers[path.suffix.lower()](read_text(path))
        if not entries:
            raise ValueError("no landmarks")
        return {name: _point(name, entry, mesh) for name, entry in entries.items()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def pair_landmarks(
    landmarks: Landmarks, targets: Landmarks
) -> tuple[Float[np.ndarray, "landmarks 3"], Float[np.ndarray, "landmarks 3"]]:
    """The points of two files in the same order, matched by name, or by position if the files have no names."""
    if set(landmarks) != set(targets):
        unmatched = sorted(set(landmarks) ^ set(targets))
        raise ValueError(
            f"landmarks: the two files have {len(landmarks)} and {len(targets)}; only one of them has "
            f"{', '.join(unmatched[:5])}"
        )
    return np.stack(list(landmarks.values())), np.stack([targets[name] for name in landmarks])


def _from_json(text: str) -> dict[str, Any]:
    document = parse_json(text)
    if isinstance(document, list):
        return {str(index): entry for index, entry in enumerate(document)}
    if not isinstance(document, dict):
        raise ValueError("expected a list of landmarks, or an object that maps names to landmarks")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name occurs twice")
    return names


def _from_csv(text: str) -> dict[str, Any]:
    lines = [[cell.strip() for cell in line] for line in csv.reader(text.splitlines())]
    lines = [line for line in lines if any(line)]
    if lines and not any(_is_number(cell) for cell in lines[0]):
        del lines[0]
    return _unique([_csv_entry(index, line) for index, line in enumerate(lines)])


def _csv_entry(index: int, line: list[str]) -> tuple[str, Any]:
    """The name (or the index) and the vertex number or point of one line."""
    name, numbers = (line[0], line[1:]) if len(line) in (2, 4) else (str(index), line)
    if len(numbers) not in (1, 3) or not all(map(_is_number, numbers)):
        raise ValueError(f"landmark {index} is {','.join(line)!r}, not [name,]vertex or [name,]x,y,z")
    if len(numbers) == 1:
        return name, int(numbers[0]) if numbers[0].isdecimal() else float(numbers[0])
    return name, [float(cell) for cell in numbers]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _point(name: str, entry: Any, mesh: Mesh | None) -> np.ndarray:
    if type(entry) is int:
        if mesh is None:
            raise ValueError(
                f"landmark {name} is a vertex number, but there is no mesh to look it up in; give a point instead"
            )
        if not 0 <= entry < mesh.num_vertices:
            raise ValueError(
                f"landmark {name} is vertex {entry}, but the mesh has vertices 0 to {mesh.num_vertices - 1}"
            )
        return mesh.verts[entry]
    if not isinstance(entry, list) or len(entry) != 3 or any(type(number) not in (int, float) for number in entry):
        raise ValueError(f"landmark {name} is {entry!r}, not a vertex number or [x, y, z]")
    point = np.array(entry, dtype=np.float64)
    if not np.isfinite(point).all():
        raise ValueError(f"landmark {name} is {entry!r}, which is not finite")
    return point
