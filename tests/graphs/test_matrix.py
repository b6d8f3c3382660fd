"""Fixed sparse matrices against dense ones and SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.testing import assert_close

from geoskip.graphs import SparseMatrix
from tests.specimens import features

ROWS = torch.tensor([3, 0, 2, 0, 0])
COLUMNS = torch.tensor([1, 4, 0, 2, 4])
VALUES = torch.tensor([1.5, -2.0, 0.25, 3.0, 0.5], dtype=torch.float64)
MATRIX = SparseMatrix.from_entries(ROWS, COLUMNS, VALUES, (4, 6))


def test_dense_adds_entries_in_one_place() -> None:
    wanted = torch.zeros(4, 6, dtype=torch.float64)
    for row, column, value in zip(ROWS.tolist(), COLUMNS.tolist(), VALUES.tolist(), strict=True):
        wanted[row, column] += value
    assert torch.equal(MATRIX.dense(), wanted)
    assert MATRIX.shape == (4, 6)


@pytest.mark.parametrize("shape", [(6, 3), (2, 6, 3), (2, 5, 6, 1), (0, 6, 2)])
def test_product_is_the_dense_one(shape: tuple[int, ...]) -> None:
    x = features(*shape)
    assert_close(MATRIX @ x, MATRIX.dense() @ x, rtol=0, atol=1e-12)


def test_gradient_is_the_transposed_product() -> None:
    x, y = features(6, 3).requires_grad_(), features(4, 3, seed=2)
    (gradient,) = torch.autograd.grad(MATRIX @ x, x, y)
    assert_close(gradient, MATRIX.dense().t() @ y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "coo_array", "csr_array", "lil_matrix"])
def test_from_scipy(kind: str) -> None:
    made = scipy.sparse.random(5, 7, density=0.4, rng=np.random.default_rng(0))
    matrix = SparseMatrix.from_scipy(getattr(scipy.sparse, kind)(made), dtype=torch.float64)
    x = features(7, 2)
    assert torch.equal(matrix.dense(), torch.from_numpy(made.toarray()))
    assert_close(matrix @ x, torch.from_numpy(made @ x.numpy()), rtol=0, atol=1e-12)


def test_precision_follows_the_features() -> None:
    assert (MATRIX @ features(6, 1, dtype=torch.float32)).dtype == torch.float32
    assert MATRIX.to(torch.float32).values.dtype == torch.float32
    assert SparseMatrix.from_scipy(scipy.sparse.eye(3)).values.dtype == torch.float32


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 2)])
def test_no_entries(shape: tuple[int, int]) -> None:
    none = torch.empty(0, dtype=torch.long)
    matrix = SparseMatrix.from_entries(none, none, torch.empty(0), shape)
    assert torch.equal(matrix @ torch.ones(shape[1], 2), torch.zeros(shape[0], 2))
    assert matrix.dense().shape == shape


def test_rows_that_sum_to_1_keep_constants() -> None:
    thirds = torch.full((6,), 1 / 3, dtype=torch.float64)
    up = SparseMatrix.from_entries(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 1, 2, 3]), thirds, (2, 4))
    assert_close(up @ torch.ones(4, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
