"""A fixed sparse matrix, applied to the vertices of every item of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoskip.arguments import brief, check_type, whole_numbers
from geoskip.graphs.checks import as_tensor, check_floating, check_indices
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
        rows, columns, values = (
            as_tensor(name, given) for name, given in (("rows", rows), ("columns", columns), ("values", values))
        )
        sizes = whole_numbers("shape", shape, "a matrix", least=0)
        if len(sizes) != 2:
            raise ValueError(f"shape: a matrix has two numbers, of rows and of columns, got {sizes}")
        shape = sizes[0], sizes[1]
        if rows.dim() != 1:
            raise ValueError(f"rows: expected a list of indices, got shape {list(rows.shape)}")
        if not rows.shape == columns.shape == values.shape:
            raise ValueError(
                f"values: every entry needs a row, a column and a value, got {list(rows.shape)} rows, "
                f"{list(columns.shape)} columns and {list(values.shape)} values"
            )
        check_indices("rows", rows, shape[0])
        check_indices("columns", columns, shape[1])
        check_floating("values", values)
        for name, given in (("columns", columns), ("values", values)):
            if given.device != rows.device:
                raise ValueError(f"{name}: is on {given.device}, rows on {rows.device}; move one of them with .to()")
        pattern, order = sort_edges(columns.long(), rows.long(), shape[1], shape[0])
        return cls(pattern, values[order])

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """From any sparse matrix of SciPy."""
        if not hasattr(matrix, "tocoo") or isinstance(matrix, type):
            raise TypeError(f"matrix: expected a sparse matrix of SciPy, got {brief(matrix)}")
        coo = matrix.tocoo()
        rows, columns = torch.as_tensor(coo.row), torch.as_tensor(coo.col)
        return cls.from_entries(rows, columns, torch.as_tensor(coo.data).to(dtype), coo.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.num_receivers, self.pattern.num_senders

    def __matmul__(self, x: Float[Tensor, "*batch columns channels"]) -> Float[Tensor, "*batch rows channels"]:
        check_type("x", x, Tensor)
        if x.dim() < 2 or x.shape[-2] != self.shape[1]:
            raise ValueError(
                f"x: expected {self.shape[1]} vertices (columns of the matrix) in its second-last axis, "
                f"got shape {list(x.shape)}"
            )
        check_floating("x", x)
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
