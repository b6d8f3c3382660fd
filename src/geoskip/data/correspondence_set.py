"""Meshes whose vertices are matched to the vertices of one target, for dense correspondence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from geoskip.data.split import Split
from geoskip.meshes.mesh import Mesh
from geoskip.shapes import Int


@dataclass(frozen=True, eq=False)
class CorrespondenceSet:
    """A correspondence set: each vertex of each mesh is classified into one of the target's vertices.

    target: the mesh whose vertices are the classes; errors are geodesic distances on it.
    meshes: the items; their connectivities may differ.
    labels: for each mesh the target vertex of each of its vertices, -1 where there is none.
    names, split, unit_mm, content: as in :class:`geoskip.data.mesh_set.MeshSet`.
    """

    target: Mesh
    meshes: tuple[Mesh, ...]
    labels: tuple[Int[Tensor, " _"], ...]
    names: tuple[str, ...]
    split: Split
    unit_mm: float
    content: str = ""

    def __post_init__(self) -> None:
        if not len(self.meshes) == len(self.labels) == len(self.names) == len(set(self.names)):
            raise ValueError("a correspondence set has one mesh, one list of labels and one name of its own per item")
        if not 0 < self.unit_mm < float("inf"):
            raise ValueError(f"unit_mm is the length of one unit in millimetres, not {self.unit_mm}")
        self.split.checked(len(self))
        for name, mesh, labels in zip(self.names, self.meshes, self.labels, strict=True):
            if labels.shape != (mesh.num_vertices,):
                raise ValueError(f"{name}: {tuple(labels.shape)} labels for {mesh.num_vertices} vertices")
            if len(labels) and not (labels.min() >= -1 and labels.max() < self.num_classes):
                raise ValueError(f"{name}: labels outside -1 to {self.num_classes - 1}, the target's vertices")

    def __len__(self) -> int:
        return len(self.meshes)

    @property
    def num_classes(self) -> int:
        return self.target.num_vertices

    def pyg(self, items: Iterable[int] | None = None) -> Iterator[Any]:
        """Items (all, in order) as PyTorch Geometric ``Data`` with pos, face, edge_index, y and name."""
        from geoskip.data.pyg import mesh_data

        for item in range(len(self)) if items is None else items:
            data = mesh_data(self.meshes[item])
            data.y, data.name = self.labels[item], self.names[item]
            yield data
