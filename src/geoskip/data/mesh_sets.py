"""Sets of meshes: for reconstruction (one connectivity) and for correspondence (any), with their splits."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from geoskip.data.cache import CacheEntry, cached, fingerprint
from geoskip.data.progress_bar import progress_bar
from geoskip.graphs.tensor_records import move, register_record
from geoskip.meshes.geodesics import DistanceSolver
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Bool, Float, Int

# Meshes of one kind differ less in size than lengths in inches and in millimeters.
LARGEST_RATIO = 20.0
LARGEST_ROUNDING = 1e-4  # of the radius: a hundredth of a millimeter on a face


@dataclass(frozen=True, eq=False)
class Split:
    """Item numbers for training, for the test and for validation, ascending. Other items are not used."""

    train: Int[Tensor, " train"]
    test: Int[Tensor, " test"]
    validation: Int[Tensor, " validation"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    @classmethod
    def by_mask(cls, test: Bool[Tensor, " items"]) -> Split:
        """Items where ``test`` is true are for the test, all others for training."""
        return cls(torch.nonzero(~test).flatten(), torch.nonzero(test).flatten())

    @classmethod
    def blocks(cls, num_items: int, block: int = 100, num_test: int = 10) -> Split:
        """The first ``num_test`` of every ``block`` consecutive items are for the test: CoMA's interpolation."""
        return cls.by_mask(torch.arange(num_items) % block < num_test)

    @classmethod
    def leading(cls, num_items: int, num_train: int) -> Split:
        """The first ``num_train`` items are for training, all others for the test, as in FAUST (80 and 20)."""
        return cls.by_mask(torch.arange(num_items) >= num_train)

    @classmethod
    def coma(cls, names: Sequence[str], split: str) -> Split:
        """``"interpolation"``, or an expression whose items (``subject/expression/frame``) are the test."""
        if split == "interpolation":
            return cls.blocks(len(names))
        return cls.by_mask(torch.tensor([name.split("/")[1] == split for name in names]))

    def with_validation(self, share: float, subjects: Sequence[Hashable] | None = None) -> Split:
        """Use about a ``share`` of the training items for validation, the same ones at every call.

        ``subjects`` names the subject of every item of the set. The items of a subject stay together, so that no
        subject is in both parts; by default every item is its own subject.
        """
        if not 0 < share < 1:
            raise ValueError(f"validation: expected a share of the training items above 0 and below 1, got {share}")
        items = self.train.tolist()
        groups = items if subjects is None else [subjects[item] for item in items]
        names = list(dict.fromkeys(groups))
        if len(names) < 2:
            what = "items" if subjects is None else "subjects"
            raise ValueError(f"validation: needs at least 2 training {what} to set some aside, got {len(names)}")
        sizes = Counter(groups)
        chosen: set[Hashable] = set()
        target, count = max(1, round(share * len(items))), 0
        for number in np.random.default_rng(0).permutation(len(names))[: len(names) - 1]:
            if count >= target:
                break
            chosen.add(names[number])
            count += sizes[names[number]]
        aside = torch.tensor([name in chosen for name in groups], dtype=torch.bool)
        return Split(self.train[~aside], self.test, self.train[aside])

    def check(self, num_items: int) -> None:
        """ValueError unless every item number exists and none is used twice."""
        items = torch.cat([self.train, self.test, self.validation])
        if items.numel() and not (items.min() >= 0 and items.max() < num_items):
            raise ValueError(f"a split of {num_items} items names item {int(items.max())} or a negative one")
        if items.unique().numel() != items.numel():
            raise ValueError("a split names an item twice: training, validation and test must not share any")


@runtime_checkable
class Shapes(Protocol):
    """Where the positions of a set come from: stored as they are, or decoded from something smaller."""

    def __len__(self) -> int: ...

    def decode(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        """Positions of the chosen items, float32, on the device of the shapes."""
        ...

    def to(self, device: torch.device | str) -> Shapes: ...


@dataclass(frozen=True, eq=False)
class StoredShapes:
    """Positions stored as they are."""

    verts: Float[Tensor, "items vertices 3"]

    def __len__(self) -> int:
        return len(self.verts)

    def decode(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        return self.verts[items.to(self.verts.device)]

    def to(self, device: torch.device | str) -> StoredShapes:
        return StoredShapes(self.verts.to(device))


@register_record
@dataclass(frozen=True, eq=False)
class SkinnedShapes:
    """Blend shapes and, optionally, linear blend skinning with a few bones: small, and decoded by torch alone.

    Frame t of subject s(t) is

        x_tv = b_tv + Σ_k w_vk (M_tk b_tv + p_tk)  with  b_t = B_s(t) + Σ_a c_ta D_a.

    A bone that rotates by R about its head h and then moves by q has M = R - 1 and p = h - R h + q, so that zeros mean
    rest, and vertices that no bone moves have zero weights.

    rests: B, the subjects at rest.
    displacements: D, where each action at full strength moves each vertex; the same for all subjects.
    coefficients: c.
    subject: s, the subject of each frame.
    weights: w, how much of each bone's motion a vertex takes.
    transforms: [M, p] of each bone.
    """

    rests: Float[Tensor, "subjects vertices 3"]
    displacements: Float[Tensor, "actions vertices 3"]
    coefficients: Float[Tensor, "items actions"]
    subject: Int[Tensor, " items"]
    weights: Float[Tensor, "vertices bones"] | None = None
    transforms: Float[Tensor, "items bones 3 4"] | None = None

    def __len__(self) -> int:
        return len(self.subject)

    def decode(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        items = items.to(self.subject.device)
        rests = self.neutral(items)
        blended = torch.addmm(rests.flatten(1), self.coefficients[items], self.displacements.flatten(1))
        verts = blended.unflatten(1, rests.shape[1:])
        if self.weights is None or self.transforms is None:
            return verts
        # In float64 on CUDA, where TensorFloat-32 could be used instead of float32: an error of up to a millimeter.
        dtype = torch.float64 if verts.is_cuda else verts.dtype
        motions = self.weights.to(dtype) @ self.transforms[items].flatten(2).to(dtype)
        matrix, shift = motions.to(verts.dtype).unflatten(2, (3, 4)).split((3, 1), dim=-1)
        return verts + (matrix * verts.unsqueeze(2)).sum(-1) + shift.squeeze(-1)

    def neutral(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """The subjects of the chosen frames at rest."""
        return self.rests[self.subject[items.to(self.subject.device)]]

    def to(self, device: torch.device | str) -> SkinnedShapes:
        return move(self, device)


@dataclass(frozen=True, eq=False)
class MeshSet:
    """A set for reconstruction: meshes that share one connectivity.

    template: the connectivity, at representative positions from which hierarchies and pseudo-coordinates are computed;
        it need not be an item.
    shapes: the positions of the items.
    names: one unique name per item, in sorted order if the items come from files.
    split: which items are for training and which for the test.
    unit_mm: millimeters per unit of the coordinates, so that errors can be given in millimeters.
    content: identifies the data, wherever they are stored: a hash of files, or the recipe of generated data. A run is
        only resumed on data with the same content. Empty if unknown.
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
        check_unit(self.unit_mm)
        self.split.check(len(self))
        if len(self) and self.verts(torch.tensor([0])).shape[1] != self.template.num_vertices:
            raise MeshError("the meshes of a set have as many vertices as its template")

    def __len__(self) -> int:
        return len(self.shapes)

    def verts(self, items: Int[Tensor, " items"] | Sequence[int]) -> Float[Tensor, "items vertices 3"]:
        """Positions of the chosen items, float32."""
        return self.shapes.decode(torch.as_tensor(items))

    def mesh(self, item: int) -> Mesh:
        """One item as a mesh."""
        return self.template.with_verts(self.verts(torch.tensor([item]))[0].double().cpu().numpy())

    def to(self, device: torch.device | str) -> MeshSet:
        """The same set with its positions on ``device``."""
        return replace(self, shapes=self.shapes.to(device))

    def moments(self, chunk: int = 256) -> tuple[Float[Tensor, "vertices 3"], Float[Tensor, "vertices 3"]]:
        """Mean and standard deviation of each coordinate over the training items, summed in float64."""
        count = len(self.split.train)
        if count < 2:
            raise ValueError(
                f"data: the mean and deviation of positions need two or more training meshes, got {count}; add "
                "meshes, or set fewer aside"
            )
        parts = self.split.train.split(chunk)
        mean = torch.stack([self.verts(part).double().sum(0) for part in parts]).sum(0) / count
        squares = torch.stack([(self.verts(part) - mean).square().sum(0) for part in parts]).sum(0)
        return mean.float(), (squares / (count - 1)).sqrt().float()

    def pyg(self, items: Iterable[int] | None = None) -> Iterator[Any]:
        """Items (by default all) as PyTorch Geometric ``Data`` with pos, face, edge_index and name."""
        shared = _mesh_data(self.template)
        for item in range(len(self)) if items is None else items:
            data = shared.clone("name")
            data.pos, data.name = self.verts(torch.tensor([item]))[0], self.names[item]
            yield data


@dataclass(frozen=True, eq=False)
class CorrespondenceSet:
    """A set for correspondence: each vertex of each mesh is classified into one of the target's vertices.

    target: the mesh whose vertices are the classes; errors are geodesic distances on it.
    meshes: the items; their connectivities may differ.
    labels: for each mesh the target vertex of each of its vertices, -1 if it has none.
    names, split, unit_mm, content: as in :class:`MeshSet`.
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
            raise ValueError("a correspondence set has one mesh, one list of labels and one unique name per item")
        check_unit(self.unit_mm)
        self.split.check(len(self))
        for name, mesh, labels in zip(self.names, self.meshes, self.labels, strict=True):
            if labels.shape != (mesh.num_vertices,):
                raise ValueError(f"{name}: {tuple(labels.shape)} labels for {mesh.num_vertices} vertices")
            outside = labels[(labels < -1) | (labels >= self.num_classes)]
            if len(outside):
                fault = f"labels outside -1 to {self.num_classes - 1}, such as {outside[0]}"
                raise ValueError(f"{name}: {fault}; the target's vertices count from 0")

    def __len__(self) -> int:
        return len(self.meshes)

    @property
    def num_classes(self) -> int:
        return self.target.num_vertices

    def pyg(self, items: Iterable[int] | None = None) -> Iterator[Any]:
        """Items (by default all) as PyTorch Geometric ``Data`` with pos, face, edge_index, y and name."""
        for item in range(len(self)) if items is None else items:
            data = _mesh_data(self.meshes[item])
            data.y, data.name = self.labels[item], self.names[item]
            yield data


def check_unit(unit_mm: float) -> None:
    if not 0 < unit_mm < float("inf"):
        raise ValueError(f"unit_mm: expected the length of one unit in millimeters, above 0, got {unit_mm}")


def check_size(name: str, radius: float, usual: float, like: str) -> None:
    """MeshError if a mesh differs so much in size from others that it must be in another unit."""
    if not radius:
        raise MeshError(f"{name}: all vertices are at one point")
    small, large = sorted((radius, usual))
    if large > LARGEST_RATIO * small:
        factor, than = large / small if small else float("inf"), "larger" if radius > usual else "smaller"
        raise MeshError(f"{name}: {factor:,.0f} times {than} than {like}; scale it to the same unit of length")


def check_rounding(name: str, mesh: Mesh) -> None:
    """MeshError if float32, in which networks compute, is too coarse for a mesh: far from the origin, or too small."""
    error = np.abs(mesh.verts.astype(np.float32) - mesh.verts).max(initial=0.0)
    if error > LARGEST_ROUNDING * mesh.radius():
        raise MeshError(
            f"{name}: float32 rounds its positions by up to {error:.2g}, too much for a mesh of radius "
            f"{mesh.radius():.2g}; move it to the origin, and scale it to millimeters or meters"
        )


def pyg_data() -> type[Any]:
    """``torch_geometric.data.Data``; ImportError says what to install."""
    try:
        # Its import runs torch.jit.script, which torch deprecates.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            from torch_geometric.data import Data
    except ImportError as error:
        raise ImportError("PyTorch Geometric is not installed: pip install 'geoskip[pyg]'") from error
    return Data


def _mesh_data(mesh: Mesh) -> Any:
    edges = torch.tensor(mesh.edges().T)
    return pyg_data()(
        pos=torch.tensor(mesh.verts, dtype=torch.float32),
        face=torch.tensor(mesh.faces.T),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
    )


def geodesics(mesh: Mesh, *, cache: Path | None = None) -> Float[np.ndarray, "vertices vertices"]:
    """Row i: the geodesic distances from vertex i to all vertices, float32; inf between separate components.

    The heat method computes them, and they are kept in the cache. 6,890 vertices take 190 MB and about half a minute.
    """

    def build() -> CacheEntry:
        solver = DistanceSolver(mesh, "heat")
        distances = np.empty((mesh.num_vertices, mesh.num_vertices), dtype=np.float32)
        with progress_bar("geodesics", mesh.num_vertices) as advance:
            for source in range(mesh.num_vertices):
                distances[source] = solver.row(source)
                advance(1)
        return CacheEntry({"distances": distances})

    key = {"version": 1, "method": "heat", "mesh": fingerprint(mesh.verts, mesh.faces)}
    return cached("geodesics", key, build, root=cache).arrays["distances"]
