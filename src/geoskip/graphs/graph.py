"""What an operator sees of a graph, one record."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from geoskip.arguments import short_repr
from geoskip.graphs.checks import (
    as_tensor,
    check_edge_index,
    check_edge_values,
    check_edge_weight,
    check_faces,
    check_num_vertices,
    check_spirals,
    faces_of_pyg,
)
from geoskip.graphs.records import map_tensors, move, register_record
from geoskip.kernels import Pattern, is_traced, is_transformed, sort_edges
from geoskip.shapes import Float, Int

T = TypeVar("T")
register_record(Pattern)


@register_record
@dataclass(frozen=True, eq=False)
class Graph:
    """Vertices, edges in both orders, and what is known about them.

    Edges are directed, from sender to receiver; an undirected graph holds both directions. Build one with
    :meth:`from_edge_index`, :meth:`from_faces` or :meth:`from_pyg`, not by hand.

    Attributes:
        pattern: the edges, sorted by receiver and by sender.
        order: place of each edge, in receiver order, in the ``edge_index`` that the graph was made from.
        pseudo: pseudo-coordinates u_ij of each edge, in receiver order.
        spirals: vertices of the spiral around each vertex, itself first, -1 where the mesh ends.
        graph_offsets: of packed graphs, graph g has the vertices ``graph_offsets[g] : graph_offsets[g + 1]``.
        given_edge_weight: the weight of each edge, in the order of the ``edge_index`` that the graph was made from;
            :attr:`edge_weight` has them in receiver order.
    """

    pattern: Pattern
    order: Int[Tensor, " edges"]
    pseudo: Float[Tensor, "edges dim"] | None = None
    spirals: Int[Tensor, "vertices length"] | None = None
    graph_offsets: Int[Tensor, " graphs_plus_1"] | None = None
    given_edge_weight: Float[Tensor, " edges"] | None = None
    # Each graph has its own, so ``replace`` starts with an empty one.
    _memo: dict[Hashable, tuple[list[int], Any]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Copy tensors that were made in inference mode: they have no version counter, which `remember` needs."""
        if torch.compiler.is_compiling():
            return
        for name, value in [*vars(self).items()]:
            for part in vars(value).values() if isinstance(value, Pattern) else (value,):
                if isinstance(part, Tensor) and part.is_inference():
                    with torch.inference_mode(False):
                        object.__setattr__(self, name, map_tensors(value, torch.clone))
                    break

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles carry. Their tensors count versions from the start, so they remember nothing."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"_memo": {}}

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Int[Tensor, "2 edges"] | Int[np.ndarray, "2 edges"],
        num_vertices: int,
        pseudo: Float[Tensor, "edges dim"] | Float[np.ndarray, "edges dim"] | None = None,
        spirals: Int[Tensor, "vertices length"] | Int[np.ndarray, "vertices length"] | None = None,
        edge_weight: Float[Tensor, " edges"] | Float[np.ndarray, " edges"] | None = None,
    ) -> Graph:
        """From PyTorch Geometric's ``edge_index``: row 0 sends, row 1 receives. Any order, duplicates kept."""
        edge_index, num_vertices = as_tensor("edge_index", edge_index), check_num_vertices(num_vertices)
        check_edge_index(edge_index, num_vertices)
        senders, receivers = edge_index.long()
        pattern, order = sort_edges(senders, receivers, num_vertices, num_vertices)
        graph = cls(pattern=pattern, order=order)
        if pseudo is not None:
            graph = graph.with_pseudo(pseudo)
        if edge_weight is not None:
            graph = graph.with_edge_weight(edge_weight)
        return graph if spirals is None else graph.with_spirals(spirals)

    @classmethod
    def from_faces(
        cls, faces: Int[Tensor, "faces corners"] | Int[np.ndarray, "faces corners"], num_vertices: int
    ) -> Graph:
        """From a mesh's faces: each side of a face, once in each direction. A side of length 0 is none.

        One row per face. PyTorch Geometric's ``data.face`` has one column per face: use :meth:`from_pyg`, or pass
        ``data.face.t()``. Three faces of more than three corners look like that layout and are refused: use
        :meth:`from_edge_index` for them.
        """
        faces, num_vertices = as_tensor("faces", faces), check_num_vertices(num_vertices)
        check_faces(faces, num_vertices)
        return cls._from_face_rows(faces, num_vertices)

    @classmethod
    def _from_face_rows(cls, faces: Int[Tensor, "faces corners"], num_vertices: int) -> Graph:
        sides = torch.stack([faces, faces.roll(-1, dims=1)]).flatten(1)
        sides = sides[:, sides[0] != sides[1]]
        senders, receivers = torch.cat([sides, sides.flip(0)], dim=1).long()
        # One number per side sorts 30 times faster than two rows.
        keys = torch.unique(senders * num_vertices + receivers)
        edges = torch.stack([keys.div(max(num_vertices, 1), rounding_mode="floor"), keys % max(num_vertices, 1)])
        return cls.from_edge_index(edges, num_vertices)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """From a PyTorch Geometric ``Data`` or ``Batch``; ``edge_attr`` becomes the pseudo-coordinates,
        ``edge_weight`` the edge weights.

        A mesh with ``pos`` and ``face`` but no ``edge_index`` gives the graph of its faces.
        """
        if isinstance(data, type) or not hasattr(data, "edge_index"):
            raise TypeError(f"data: expected a Data or Batch of PyTorch Geometric, got {short_repr(data)}")
        if data.edge_index is None:
            graph = cls._from_face_rows(faces_of_pyg(data), data.num_nodes)
            return replace(graph, graph_offsets=getattr(data, "ptr", None))
        pseudo = data.edge_attr
        if pseudo is not None and pseudo.dim() == 1:
            pseudo = pseudo.unsqueeze(-1)
        weight = getattr(data, "edge_weight", None)
        graph = cls.from_edge_index(data.edge_index, data.num_nodes, pseudo, edge_weight=weight)
        return replace(graph, graph_offsets=getattr(data, "ptr", None))

    @property
    def num_vertices(self) -> int:
        return self.pattern.num_receivers

    @property
    def num_edges(self) -> int:
        return self.pattern.num_edges

    @property
    def num_graphs(self) -> int:
        return 1 if self.graph_offsets is None else self.graph_offsets.shape[0] - 1

    @property
    def device(self) -> torch.device:
        return self.pattern.device

    @property
    def edge_index(self) -> Int[Tensor, "2 edges"]:
        """Senders and receivers, in receiver order."""
        return torch.stack([self.pattern.senders, self.pattern.receivers])

    @property
    def degrees(self) -> Int[Tensor, " vertices"]:
        """How many neighbors send to each vertex."""
        return self.pattern.counts[0]

    @property
    def edge_weight(self) -> Float[Tensor, " edges"] | None:
        """The weight of each edge, in receiver order; ``None`` if the graph has none."""
        # Permuted at each use: a permuted copy would miss the updates of trained weights, and could be
        # differentiated only once.
        return None if self.given_edge_weight is None else self.given_edge_weight[self.order]

    def with_pseudo(self, pseudo: Float[Tensor, "edges dim"] | Float[np.ndarray, "edges dim"]) -> Graph:
        """With pseudo-coordinates, given in the order of the original ``edge_index``."""
        pseudo = as_tensor("pseudo", pseudo, self.device)
        check_edge_values("pseudo", pseudo, self.num_edges, self.device)
        return replace(self, pseudo=pseudo[self.order])

    def with_spirals(self, spirals: Int[Tensor, "vertices length"] | Int[np.ndarray, "vertices length"]) -> Graph:
        """With the spiral around each vertex, itself first."""
        spirals = as_tensor("spirals", spirals, self.device)
        check_spirals(spirals, self.num_vertices, self.device)
        return replace(self, spirals=spirals.long())

    def with_edge_weight(self, edge_weight: Float[Tensor, " edges"] | Float[np.ndarray, " edges"]) -> Graph:
        """With a weight for each edge, given in the order of the original ``edge_index``.

        The graph refers to the tensor and does not copy it, so trained weights stay up to date.
        """
        edge_weight = as_tensor("edge_weight", edge_weight, self.device)
        check_edge_weight(edge_weight, self.num_edges, self.device)
        return replace(self, given_edge_weight=edge_weight)

    def without_edge_weight(self) -> Graph:
        """Without edge weights, for operators that do not use them."""
        return replace(self, given_edge_weight=None)

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        """As ``Tensor.to``; a dtype changes pseudo-coordinates and edge weights alone."""
        return move(self, *args, **kwargs)

    def remember(self, key: Hashable, build: Callable[[], T], of: Tensor | None = None) -> T:
        """What ``build`` makes of this graph: computed once, and again after a tensor that it reads has changed.

        ``of`` is the floating-point tensor of the graph that ``build`` reads: pseudo-coordinates or edge weights. While
        it requires gradients nothing is kept. Changes in place are noticed by the version counters of the tensors,
        which writing through ``.data`` or NumPy avoids.

        Compiled code cannot read version counters: there, what depends on ``of`` is computed at each call. What depends
        on indices alone is reused if an uncompiled call has computed it, so make a new graph instead of changing
        indices in place.
        """
        if of is not None and (of.requires_grad or torch.compiler.is_dynamo_compiling()):
            return build()
        if torch.compiler.is_dynamo_compiling():
            return self._memo[key][1] if key in self._memo else build()
        versions = [tensor._version for tensor in self._indices]
        if of is not None:
            versions.append(of._version)
        if key in self._memo and self._memo[key][0] == versions:
            return self._memo[key][1]
        if is_traced() or is_transformed():
            # Traces and transforms hold stand-ins for tensors, which must not outlive them.
            return build()
        # A value that is first needed in inference mode must also serve training.
        with torch.inference_mode(False):
            self._memo[key] = versions, build()
        return self._memo[key][1]

    @cached_property
    def _indices(self) -> tuple[Tensor, ...]:
        pattern = self.pattern
        edges = pattern.senders, pattern.receivers, pattern.offsets, pattern.by_sender, pattern.sender_offsets
        others = pattern.groups_of, self.order, self.spirals, self.graph_offsets
        return tuple(tensor for tensor in (*edges, *others) if tensor is not None)
