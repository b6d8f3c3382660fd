"""Which stored rows the places of a batch take, where graphs lie one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geoskip.kernels.packing import packed_rows
from geoskip.shapes import Bool, Int


@dataclass(frozen=True, eq=False)
class Rows:
    """Places of a batch: those of its first graph, of its second, …, then padding.

    starts: graph g of the batch has the places ``starts[g] : starts[g + 1]``.
    graphs: the graph that each place belongs to; the last one for padding.
    rows: the stored row that each place takes; 0 for padding.
    real: which places are not padding.
    """

    starts: Int[Tensor, " items_plus_1"]
    graphs: Int[Tensor, " places"]
    rows: Int[Tensor, " places"]
    real: Bool[Tensor, " places"]

    @property
    def count(self) -> Int[Tensor, ""]:
        """How many places are not padding; on the device, so nobody waits for it."""
        return self.starts[-1]

    @property
    def room(self) -> int:
        return len(self.rows)

    def take(self, values: Tensor, padding: int = 0) -> Tensor:
        """Stored values at the places, and ``padding`` where there is none."""
        real = self.real.view(-1, *(1,) * (values.dim() - 1))
        return torch.where(real, values[self.rows], padding)

    def spread(self, values: Tensor, padding: int = 0) -> Tensor:
        """One value for each graph of the batch at all its places, and ``padding`` where there is none."""
        return torch.where(self.real, values[self.graphs], padding)


def rows_of(offsets: Int[Tensor, " graphs_plus_1"], items: Int[Tensor, " items"], room: int) -> Rows:
    """The rows ``offsets[g] : offsets[g + 1]`` of each chosen graph in ``room`` places, which must be enough."""
    return Rows(*packed_rows(offsets, items, room))
