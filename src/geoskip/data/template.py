"""A template prepared for networks (levels, matrices between them, pseudo-coordinates, spirals), and its file.

The file is in safetensors format, with a description as JSON in the header; it cannot contain code. Its arrays, for
level k (0 is the template itself) and step k (from level k to k + 1):

    level{k}.verts       float64 [vertices, 3]
    level{k}.faces       int32   [faces, 3]
    level{k}.edge_index  int32   [2, edges]    senders and receivers, by receiver
    level{k}.pseudo      float32 [edges, 3]    ½ + (x_j - x_i) / 2r in [0, 1], in the order of edge_index
    level{k}.spirals     int32   [vertices, length], -1 where the mesh ends; absent without spirals
    step{k}.down.{rows,columns,values}         D, the entries of [coarse, fine], float64
    step{k}.up.{rows,columns,values}           U, the entries of [fine, coarse], float64

The description (metadata key ``geoskip``) has format, version, unit_mm, each level's topology hash (sha256 of vertex
count and faces as int64), and a sha256 of all of it. This detects damage, truncation and edits; it is not a signature.
The same mesh and settings give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from scipy.sparse import csr_array

from geoskip.data.cache import fingerprint
from geoskip.data.mesh_sets import check_unit
from geoskip.graphs import attach
from geoskip.graphs.graph import Graph
from geoskip.graphs.graph_hierarchy import Hierarchy
from geoskip.meshes.hierarchy import MeshHierarchy, mesh_hierarchy
from geoskip.meshes.mesh import Mesh
from geoskip.records.files import atomic_write
from geoskip.records.reading import ReadError, parse_arrays, parse_json, read_bytes

# The paper's largest kernel, M = 14, and the center, which the operators marked † leave out.
SPIRAL_LENGTH = 15
FORMAT, VERSION = "geoskip template", 1
Arrays = dict[str, np.ndarray]


class TemplateError(ValueError):
    """A file that is not an intact template, or a mesh with another connectivity than the template."""


@dataclass(frozen=True, eq=False)
class Template:
    """What all meshes of one connectivity share.

    meshes: the levels as meshes, and the matrices between them, in float64.
    hierarchy: the levels as graphs for the operators, in float32, with pseudo-coordinates and, optionally, spirals.
    unit_mm: millimeters per unit of the coordinates, None if unknown.
    """

    meshes: MeshHierarchy
    hierarchy: Hierarchy
    unit_mm: float | None = None

    def __post_init__(self) -> None:
        if self.unit_mm is not None:
            check_unit(self.unit_mm)

    @property
    def mesh(self) -> Mesh:
        """The finest level."""
        return self.meshes.levels[0]

    def check_fits(self, mesh: Mesh) -> None:
        """TemplateError unless ``mesh`` has the template's vertex count and faces, in the same order.

        A network accepts any mesh with as many vertices, and returns nonsense if they are in another order.
        """
        if mesh.topology_hash() != self.mesh.topology_hash():
            raise TemplateError(
                f"a mesh of another connectivity than the template's: {mesh.compared_with(self.mesh)}; so its vertices "
                "do not correspond to the template's"
            )


def prepare_template(
    mesh: Mesh,
    factors: Sequence[int] = (4, 4, 4, 4),
    *,
    targets: Sequence[int] | None = None,
    spiral_length: int | None = SPIRAL_LENGTH,
    unit_mm: float | None = None,
) -> Template:
    """Levels by :func:`geoskip.meshes.mesh_hierarchy`, and what the operators need on each of them.

    ``spiral_length`` None makes no spirals. Only SpiralNet++ needs them, of M vertices (M + 1 without the center).
    """
    meshes = mesh_hierarchy(mesh, factors, targets=targets)
    return Template(meshes, Hierarchy.from_meshes(meshes, spiral_length), unit_mm)


def save_template(path: str | Path, template: Template) -> None:
    """Write a template to a file, atomically."""
    arrays: Arrays = {}
    for k, (mesh, graph) in enumerate(zip(template.meshes.levels, template.hierarchy.levels, strict=True)):
        arrays |= {f"level{k}.{name}": array for name, array in _level_arrays(mesh, graph).items()}
    for k, (down, up) in enumerate(zip(template.meshes.down, template.meshes.up, strict=True)):
        arrays |= {f"step{k}.down.{name}": array for name, array in _entries(down).items()}
        arrays |= {f"step{k}.up.{name}": array for name, array in _entries(up).items()}
    topology = [mesh.topology_hash() for mesh in template.meshes.levels]
    atomic_write(path, template_bytes(arrays, {"unit_mm": template.unit_mm, "topology": topology}))


def load_template(path: str | Path) -> Template:
    """Read a template and check all of it; TemplateError if it is damaged, of another version, or not a template."""
    arrays, about = _read_arrays(Path(path))
    try:
        return _template(arrays, about)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        fault = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise TemplateError(f"{path}: not a complete template: {fault}") from error


def template_bytes(arrays: Arrays, about: Mapping[str, Any]) -> bytes:
    """The file's bytes: arrays, and the description with its checksum."""
    description = {"format": FORMAT, "version": VERSION, **about}
    description["sha256"] = _digest(arrays, description)
    # One metadata entry: safetensors does not keep the order of several.
    return save(arrays, {"geoskip": json.dumps(description)})


def _read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    try:
        arrays, metadata = parse_arrays(read_bytes(path))
        about = parse_json(metadata["geoskip"])
        if about["format"] != FORMAT:
            raise TemplateError(f"{path}: contains {about['format']!r}, not a template")
        if about["version"] != VERSION:
            raise TemplateError(
                f"{path}: a template of version {about['version']}, and this geoskip reads version {VERSION}; "
                "prepare it again"
            )
        checksum = about.pop("sha256")
    except (ReadError, KeyError, TypeError, AttributeError) as error:
        raise TemplateError(f"{path}: truncated, or not a file of `geoskip prepare` ({error!r})") from error
    if checksum != _digest(arrays, about):
        raise TemplateError(f"{path}: its contents do not match their checksum: damaged, or edited")
    return arrays, about


def _template(arrays: Arrays, about: Mapping[str, Any]) -> Template:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    parts = [_read_level(arrays, k, topology) for k, topology in enumerate(about["topology"])]
    meshes, graphs = tuple(mesh for mesh, _ in parts), [graph for _, graph in parts]
    sizes = [mesh.num_vertices for mesh in meshes]
    steps = list(pairwise(sizes))
    down = tuple(_matrix(arrays, f"step{k}.down", (coarse, fine)) for k, (fine, coarse) in enumerate(steps))
    up = tuple(_matrix(arrays, f"step{k}.up", (fine, coarse)) for k, (fine, coarse) in enumerate(steps))
    kept = tuple(_kept(matrix) for matrix in down)
    return Template(MeshHierarchy(meshes, kept, down, up), Hierarchy.from_matrices(graphs, down, up), about["unit_mm"])


def _level_arrays(mesh: Mesh, graph: Graph) -> Arrays:
    assert graph.pseudo is not None
    arrays = {
        "verts": mesh.verts,
        "faces": mesh.faces.astype(np.int32),
        "edge_index": graph.edge_index.cpu().numpy().astype(np.int32),
        "pseudo": graph.pseudo.cpu().numpy(),
    }
    return arrays if graph.spirals is None else {**arrays, "spirals": graph.spirals.cpu().numpy().astype(np.int32)}


def _read_level(arrays: Arrays, k: int, topology: str) -> tuple[Mesh, Graph]:
    mesh = Mesh(arrays[f"level{k}.verts"], arrays[f"level{k}.faces"])
    if mesh.topology_hash() != topology:
        raise ValueError(f"the faces of level {k} do not match their topology hash")
    graph = Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
    if not np.array_equal(graph.edge_index.numpy(), arrays[f"level{k}.edge_index"]):
        raise ValueError(f"the edges of level {k} are not those of its faces")
    graph = attach(graph, torch.from_numpy(arrays[f"level{k}.pseudo"]))
    spirals = arrays.get(f"level{k}.spirals")
    return mesh, graph if spirals is None else graph.with_spirals(torch.from_numpy(spirals))


def _entries(matrix: csr_array) -> Arrays:
    entries = matrix.tocoo()
    rows, columns = entries.row.astype(np.int32), entries.col.astype(np.int32)
    return {"rows": rows, "columns": columns, "values": entries.data}


def _matrix(arrays: Arrays, name: str, shape: tuple[int, int]) -> csr_array:
    rows, columns, values = (arrays[f"{name}.{part}"] for part in ("rows", "columns", "values"))
    return csr_array((values, (rows, columns)), shape=shape)


def _kept(down: csr_array) -> np.ndarray:
    if not (np.array_equal(down.indptr, np.arange(down.shape[0] + 1)) and (down.data == 1).all()):
        raise ValueError("a down matrix that does not select vertices")
    return down.indices.astype(np.int64)


def _digest(arrays: Arrays, about: Mapping[str, Any]) -> str:
    contents = {name: fingerprint(array) for name, array in arrays.items()}
    return hashlib.sha256(json.dumps([about, contents], sort_keys=True).encode()).hexdigest()
