"""A fixed sparse matrix, applied to the vertices of every item of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoskip.graphs.checks import check_indices
from geoskip.graphs.records import move, register_record
from geoskip.kernels import Pattern, sort_edges, sparse_product
from geoskip.shapes import Float, Int


@register_record
@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """Rows are receivers, columns senders: pooling, unpooling, or any other fixed linear map between vertices.

    Attributes:
        pattern: where the entries lie, by row and by column.
        values: the entries, in row order.
    """

    pattern: Pattern
    values: Float[Tensor, " edges"]

    @classmethod
    def from_entries(
        cls,
        rows: Int[Tensor, " entries"],
        columns: Int[Tensor, " entries"],
        values: Float[Tensor, " entries"],
        shape: tuple[int, int],
    ) -> SparseMatrix:
        """From coordinates, in any order."""
        if not rows.shape == columns.shape == values.shape:
            raise ValueError(
                f"values: every entry needs a row, a column and a value, got {list(rows.shape)} rows, "
                f"{list(columns.shape)} columns and {list(values.shape)} values"
            )
        check_indices("rows", rows, shape[0])
        check_indices("columns", columns, shape[1])
        pattern, order = sort_edges(columns.long(), rows.long(), shape[1], shape[0])
        return cls(pattern, values[order])

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """From any sparse matrix of SciPy."""
        coo = matrix.tocoo()
        rows, columns = torch.as_tensor(coo.row), torch.as_tensor(coo.col)
        return cls.from_entries(rows, columns, torch.as_tensor(coo.data).to(dtype), coo.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.num_receivers, self.pattern.num_senders

    def __matmul__(self, x: Float[Tensor, "*batch columns channels"]) -> Float[Tensor, "*batch rows channels"]:
        if x.dim() < 2 or x.shape[-2] != self.shape[1]:
            raise ValueError(
                f"x: expected {self.shape[1]} vertices (columns of the matrix) in its second-last axis, "
                f"got shape {list(x.shape)}"
            )
        if not x.is_floating_point():
            raise TypeError(f"x: expected floating-point numbers, got {x.dtype}; convert with .float()")
        if x.device != self.values.device:
            raise ValueError(f"x: is on {x.device}, the matrix on {self.values.device}; move one with .to()")
        return sparse_product(x, self.values.to(x.dtype), self.pattern)

    def dense(self) -> Float[Tensor, "rows columns"]:
        """As an ordinary matrix, for small ones."""
        entries = self.pattern.receivers, self.pattern.senders
        return self.values.new_zeros(self.shape).index_put(entries, self.values, accumulate=True)

    def to(self, *args: Any, **kwargs: Any) -> SparseMatrix:
        """As ``Tensor.to``."""
        return move(self, *args, **kwargs)
