"""Meshes that share one connectivity, for reconstruction: a template and the positions of every item."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from geoskip.data.split import Split
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Float, Int


@runtime_checkable
class Shapes(Protocol):
    """Where the positions of a set come from: stored as they are, or decoded from something smaller."""

    def __len__(self) -> int: ...

    def decode(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        """Positions of the chosen items, float32, on the device of the shapes."""
        ...

    def to(self, device: torch.device | str) -> "Shapes": ...


@dataclass(frozen=True, eq=False)
class StoredShapes:
    """Positions kept as they are."""

    verts: Float[Tensor, "items vertices 3"]

    def __len__(self) -> int:
        return len(self.verts)

    def decode(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        return self.verts[items.to(self.verts.device)]

    def to(self, device: torch.device | str) -> "StoredShapes":
        return StoredShapes(self.verts.to(device))


@dataclass(frozen=True, eq=False)
class MeshSet:
    """A reconstruction set.

    template: the connectivity all items share, at representative positions (hierarchies and
        pseudo-coordinates come from it); it need not be an item.
    shapes: the positions of the items.
    names: one name per item, unique, in sorted order where the items come from files.
    split: which items are for training and which for the test.
    unit_mm: millimetres per unit of the coordinates, so that errors can be given in millimetres.
    content: identifies the data, wherever they lie: a hash of what files hold, or the recipe of generated data. A run
        continues only on data of the same content. Empty: unknown.
    """

    template: Mesh
    shapes: Shapes
    names: tuple[str, ...]
    split: Split
    unit_mm: float
    content: str = ""

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise ValueError(f"{len(self.names)} names for {len(self.shapes)} meshes, or a name used twice")
        if not 0 < self.unit_mm < float("inf"):
            raise ValueError(f"unit_mm is the length of one unit in millimetres, not {self.unit_mm}")
        self.split.checked(len(self))
        if len(self) and self.verts(torch.tensor([0])).shape[1] != self.template.num_vertices:
            raise MeshError("the meshes of a set have as many vertices as its template")

    def __len__(self) -> int:
        return len(self.shapes)

    def verts(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        """Positions of the chosen items, float32."""
        return self.shapes.decode(items)

    def mesh(self, item: int) -> Mesh:
        """One item as a mesh of its own."""
        return self.template.with_verts(self.verts(torch.tensor([item]))[0].double().cpu().numpy())

    def to(self, device: torch.device | str) -> "MeshSet":
        """The same set with its positions on ``device``."""
        return replace(self, shapes=self.shapes.to(device))

    def moments(self, chunk: int = 256) -> tuple[Float[Tensor, "vertices 3"], Float[Tensor, "vertices 3"]]:
        """Mean and standard deviation of each coordinate over the training items, summed in float64."""
        count = len(self.split.train)
        if count < 2:
            raise ValueError(f"statistics need at least two training meshes, not {count}")
        parts = self.split.train.split(chunk)
        mean = torch.stack([self.verts(part).double().sum(0) for part in parts]).sum(0) / count
        squares = torch.stack([(self.verts(part) - mean).square().sum(0) for part in parts]).sum(0)
        return mean.float(), (squares / (count - 1)).sqrt().float()

    def pyg(self, items: Iterable[int] | None = None) -> Iterator[Any]:
        """Items (all, in order) as PyTorch Geometric ``Data`` with pos, face, edge_index and name."""
        from geoskip.data.pyg import mesh_data

        shared = mesh_data(self.template)
        for item in range(len(self)) if items is None else items:
            data = shared.clone("name")
            data.pos, data.name = self.verts(torch.tensor([item]))[0], self.names[item]
            yield data
