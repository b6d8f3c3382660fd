"""What an operator sees of a graph, one record."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from geoskip.graphs.checks import check_edge_index, check_edge_values, check_faces, check_spirals
from geoskip.graphs.records import move, register_record
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
    """

    pattern: Pattern
    order: Int[Tensor, " edges"]
    pseudo: Float[Tensor, "edges dim"] | None = None
    spirals: Int[Tensor, "vertices length"] | None = None
    graph_offsets: Int[Tensor, " graphs_plus_1"] | None = None
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Int[Tensor, "2 edges"],
        num_vertices: int,
        pseudo: Float[Tensor, "edges dim"] | None = None,
        spirals: Int[Tensor, "vertices length"] | None = None,
    ) -> Graph:
        """From PyTorch Geometric's ``edge_index``: row 0 sends, row 1 receives. Any order, duplicates kept."""
        check_edge_index(edge_index, num_vertices)
        senders, receivers = edge_index.long()
        pattern, order = sort_edges(senders, receivers, num_vertices, num_vertices)
        graph = cls(pattern=pattern, order=order)
        if pseudo is not None:
            graph = graph.with_pseudo(pseudo)
        return graph if spirals is None else graph.with_spirals(spirals)

    @classmethod
    def from_faces(cls, faces: Int[Tensor, "faces corners"], num_vertices: int) -> Graph:
        """From a mesh's faces: each side of a face, once in each direction. A side of length 0 is none."""
        check_faces(faces, num_vertices)
        sides = torch.stack([faces, faces.roll(-1, dims=1)]).flatten(1)
        sides = sides[:, sides[0] != sides[1]]
        both = torch.cat([sides, sides.flip(0)], dim=1)
        return cls.from_edge_index(torch.unique(both, dim=1), num_vertices)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """From a PyTorch Geometric ``Data`` or ``Batch``; ``edge_attr`` becomes the pseudo-coordinates."""
        if data.edge_index is None:
            raise ValueError("data: has no edge_index; a mesh's faces give one with Graph.from_faces")
        pseudo = data.edge_attr
        if pseudo is not None and pseudo.dim() == 1:
            pseudo = pseudo.unsqueeze(-1)
        graph = cls.from_edge_index(data.edge_index, data.num_nodes, pseudo)
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
        """How many neighbours send to each vertex."""
        return self.pattern.counts[0]

    def with_pseudo(self, pseudo: Float[Tensor, "edges dim"]) -> Graph:
        """With pseudo-coordinates, given in the order of the original ``edge_index``."""
        check_edge_values("pseudo", pseudo, self.num_edges, self.device)
        return replace(self, pseudo=pseudo[self.order], _memo={})

    def with_spirals(self, spirals: Int[Tensor, "vertices length"]) -> Graph:
        """With the spiral around each vertex, itself first."""
        check_spirals(spirals, self.num_vertices, self.device)
        return replace(self, spirals=spirals.long(), _memo={})

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        """As ``Tensor.to``; a dtype changes the pseudo-coordinates alone."""
        return move(self, *args, **kwargs)

    def remember(self, key: Hashable, build: Callable[[], T]) -> T:
        """What ``build`` makes of this graph, kept for the next time.

        While torch traces or transforms it is made but not kept: stand-ins for tensors must not leave a trace.
        """
        if key in self._memo:
            return self._memo[key]
        if is_traced() or is_transformed():
            return build()
        # What is first needed in inference mode is still needed when training goes on.
        with torch.inference_mode(False):
            self._memo[key] = build()
        return self._memo[key]
