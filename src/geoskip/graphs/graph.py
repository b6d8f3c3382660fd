"""The graph that an operator takes, as one record; many graphs packed as one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from geoskip.arguments import check_items, check_type, short_repr
from geoskip.graphs.checks import (
    as_tensor,
    check_device,
    check_edge_index,
    check_edge_weight,
    check_faces,
    check_num_vertices,
    check_pseudo,
    check_spirals,
    faces_of_pyg,
)
from geoskip.graphs.tensor_records import map_tensors, move, register_record
from geoskip.kernels import Pattern, is_transformed, sort_edges
from geoskip.kernels.branches import keep
from geoskip.kernels.paths import is_stand_in, memory
from geoskip.shapes import Float, Int

T = TypeVar("T")
register_record(Pattern)
# Reads attributes of many tensors without a line of Python for each.
_version_of = attrgetter("_version")


@register_record
@dataclass(frozen=True, eq=False)
class Graph:
    """Vertices, edges in both orders, and values on them.

    Edges are directed, from sender to receiver; an undirected graph has both directions. Build one with
    :meth:`from_edge_index`, :meth:`from_faces` or :meth:`from_pyg`, not by hand.

    Attributes:
        pattern: the edges, sorted by receiver and by sender.
        order: for each edge in receiver order, its position in the ``edge_index`` that the graph was made from.
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
    # Not copied by ``replace``: each graph starts with an empty one.
    _memo: dict[Hashable, tuple[list[int], Any]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Copy tensors of inference mode: they have no version counter, which :meth:`remember` needs."""
        if torch.compiler.is_compiling():
            return
        for name, value in [*vars(self).items()]:
            for part in vars(value).values() if isinstance(value, Pattern) else (value,):
                if isinstance(part, Tensor) and part.is_inference():
                    with torch.inference_mode(False):
                        object.__setattr__(self, name, map_tensors(value, torch.clone))
                    break

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in ("pseudo", "spirals", "given_edge_weight")}
        sizes = [f"num_vertices={self.num_vertices}", f"num_edges={self.num_edges}"]
        sizes += [f"num_graphs={self.num_graphs}"] if self.graph_offsets is not None else []
        sizes += [f"{name}={list(value.shape)}" for name, value in values.items() if value is not None]
        return f"Graph({', '.join(sizes)})"

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which remember nothing, because the version counters of their tensors start again."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"_memo": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

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
        """From a mesh's faces: each side of a face, once in each direction. A side from a vertex to itself is ignored.

        ``faces`` has one row per face. PyTorch Geometric's ``data.face`` has one column per face: use :meth:`from_pyg`,
        or pass ``data.face.t()``. Three faces of more than three corners look like that layout and are rejected: use
        :meth:`from_edge_index` for them.
        """
        faces, num_vertices = as_tensor("faces", faces), check_num_vertices(num_vertices)
        check_faces(faces, num_vertices)
        return cls._from_face_rows(faces, num_vertices)

    @classmethod
    def _from_face_rows(cls, faces: Int[Tensor, "faces corners"], num_vertices: int) -> Graph:
        faces = faces.long()
        sides = torch.stack([faces, faces.roll(-1, dims=1)]).flatten(1)
        sides = sides[:, sides[0] != sides[1]]
        senders, receivers = torch.cat([sides, sides.flip(0)], dim=1)
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
        graph = cls.from_edge_index(data.edge_index, data.num_nodes, edge_weight=getattr(data, "edge_weight", None))
        if data.edge_attr is not None:
            pseudo = as_tensor("data.edge_attr", data.edge_attr, graph.device)
            pseudo = pseudo.unsqueeze(-1) if pseudo.dim() == 1 else pseudo
            check_pseudo("data.edge_attr", pseudo, graph.num_edges, graph.device)
            graph = replace(graph, pseudo=pseudo[graph.order])
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
        """This graph with pseudo-coordinates, given in the order of the original ``edge_index``."""
        pseudo = as_tensor("pseudo", pseudo, self.device)
        check_pseudo("pseudo", pseudo, self.num_edges, self.device)
        return replace(self, pseudo=pseudo[self.order])

    def with_spirals(self, spirals: Int[Tensor, "vertices length"] | Int[np.ndarray, "vertices length"]) -> Graph:
        """This graph with the spiral around each vertex, itself first."""
        spirals = as_tensor("spirals", spirals, self.device)
        check_spirals(spirals, self.num_vertices, self.device)
        return replace(self, spirals=spirals.long())

    def with_edge_weight(self, edge_weight: Float[Tensor, " edges"] | Float[np.ndarray, " edges"]) -> Graph:
        """This graph with a weight for each edge, given in the order of the original ``edge_index``.

        The graph keeps a reference to the tensor, not a copy, so trained weights stay up to date.
        """
        edge_weight = as_tensor("edge_weight", edge_weight, self.device)
        check_edge_weight(edge_weight, self.num_edges, self.device)
        return replace(self, given_edge_weight=edge_weight)

    def without_edge_weight(self) -> Graph:
        """This graph without edge weights, for operators that do not use them."""
        return replace(self, given_edge_weight=None)

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        """Like ``Tensor.to``; a dtype changes only pseudo-coordinates and edge weights."""
        return move(self, *args, **kwargs)

    def remember(self, key: Hashable, build: Callable[[], T], of: Tensor | None = None) -> T:
        """The result of ``build``, cached until a tensor that it reads changes.

        ``of`` is the floating-point tensor of the graph that ``build`` reads: pseudo-coordinates or edge weights. While
        it requires gradients, nothing is cached. Version counters detect in-place changes, except those through
        ``.data`` or NumPy.

        Compiled code cannot read version counters. There, what depends on ``of`` is computed in each call, and what
        depends on indices alone is reused if an uncompiled call has computed it: create a new graph instead of changing
        indices in place.
        """
        if of is not None and (of.requires_grad or torch.compiler.is_dynamo_compiling()):
            return build()
        if torch.compiler.is_dynamo_compiling():
            return self._memo[key][1] if key in self._memo else build()
        versions = [*map(_version_of, self._indices)]
        if of is not None:
            versions.append(of._version)
        memo = memory(self._memo)
        before = memo.get(key)
        if before is not None and before[0] == versions:
            return keep(before[1])
        if is_stand_in(self.order) or is_transformed():
            # Stand-ins must not outlive the trace or transform that uses them.
            return build()
        # A value that is first needed in inference mode must also serve training.
        with torch.inference_mode(False):
            value = build()
        memo[key] = versions, value
        return value

    @cached_property
    def _indices(self) -> tuple[Tensor, ...]:
        pattern = self.pattern
        edges = pattern.senders, pattern.receivers, pattern.offsets, pattern.by_sender, pattern.sender_offsets
        others = pattern.groups_of, self.order, self.spirals, self.graph_offsets
        return tuple(tensor for tensor in (*edges, *others) if tensor is not None)


def pack(graphs: Sequence[Graph]) -> Graph:
    """One graph that contains all of ``graphs``, with no edges between them.

    Pseudo-coordinates and spirals are kept if every graph has them. Either all graphs have edge weights, or none.
    """
    check_items("graphs", graphs, Graph)
    if not graphs:
        raise ValueError("graphs: nothing to pack; give at least one graph")
    for graph in graphs:
        check_device("graphs", graph.device, graphs[0].device)
    sizes = torch.tensor([0, *(g.num_vertices for g in graphs)], device=graphs[0].device)
    graph_offsets = sizes.cumsum(0)
    placed = [*zip(graphs, graph_offsets[:-1], strict=True)]
    edge_index = torch.cat([g.edge_index + first for g, first in placed], dim=1)
    num_vertices = sum(g.num_vertices for g in graphs)
    # The packed edges are sorted already; sorting them again only computes the sender order.
    pattern, order = sort_edges(edge_index[0], edge_index[1], num_vertices, num_vertices)
    return Graph(
        pattern=pattern,
        order=order,
        pseudo=_concatenate("pseudo", [g.pseudo for g in graphs]),
        spirals=_concatenate("spirals", [_shift(g.spirals, first) for g, first in placed]),
        graph_offsets=graph_offsets,
        given_edge_weight=_edge_weights(graphs),
    )


def separate(graph: Graph) -> list[Graph]:
    """The graphs that :func:`pack` put together."""
    check_type("graph", graph, Graph)
    if graph.graph_offsets is None:
        return [graph]
    return [_cut(graph, low, high) for low, high in pairwise(graph.graph_offsets.tolist())]


def graph_of_vertex(graph: Graph) -> Int[Tensor, " vertices"]:
    """The index of the graph that each vertex belongs to: PyTorch Geometric's ``batch``."""
    if graph.graph_offsets is None:
        return torch.zeros(graph.num_vertices, dtype=torch.long, device=graph.device)
    vertices = torch.arange(graph.num_vertices, device=graph.device)
    return torch.searchsorted(graph.graph_offsets, vertices, right=True) - 1


def _cut(graph: Graph, low: int, high: int) -> Graph:
    edges = slice(int(graph.pattern.offsets[0, low]), int(graph.pattern.offsets[0, high]))
    pattern, order = sort_edges(
        graph.pattern.senders[edges] - low, graph.pattern.receivers[edges] - low, high - low, high - low
    )
    return Graph(
        pattern=pattern,
        order=order,
        pseudo=None if graph.pseudo is None else graph.pseudo[edges],
        spirals=None if graph.spirals is None else _shift(graph.spirals[low:high], -low),
        given_edge_weight=None if graph.given_edge_weight is None else graph.given_edge_weight[graph.order[edges]],
    )


def _edge_weights(graphs: Sequence[Graph]) -> Tensor | None:
    """In receiver order, which is the order of the packed edges."""
    weights = [graph.edge_weight for graph in graphs if graph.edge_weight is not None]
    if weights and len(weights) < len(graphs):
        raise ValueError(
            f"graphs: {len(weights)} of {len(graphs)} have edge weights; give the others weights too, as "
            "graph.with_edge_weight(torch.ones(graph.num_edges)), or drop all with graph.without_edge_weight()"
        )
    return torch.cat(weights) if weights else None


def _shift(spirals: Tensor | None, by: Tensor | int) -> Tensor | None:
    return None if spirals is None else torch.where(spirals < 0, spirals, spirals + by)


def _concatenate(name: str, parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    widths = sorted({part.shape[1] for part in present})
    if len(widths) > 1:
        raise ValueError(f"graphs: their {name} have {widths} columns; packed graphs need the same number")
    return torch.cat(present)
