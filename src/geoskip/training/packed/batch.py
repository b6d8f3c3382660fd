"""A batch of packed graphs, as a model takes it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from geoskip.graphs import PooledGraphs
from geoskip.shapes import Float, Int
from geoskip.training.packed.rows import Rows


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Some graphs of a :class:`~geoskip.training.packed.store.GraphStore`.

    items: which ones.
    x: features of the vertices.
    graphs: the graphs at every level.
    verts: per level, the places of the vertices, and which of them are padding.
    padded: whether there can be padding.
    """

    items: Int[Tensor, " items"]
    x: Float[Tensor, "vertices channels"]
    graphs: PooledGraphs
    verts: tuple[Rows, ...]
    padded: bool
