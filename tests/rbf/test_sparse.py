"""The compactly supported form: the dense one, by other arithmetic."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from geoskip.rbf import fit_rbf, fit_sparse, sparse, wendland
from geoskip.rbf.vecchia import earlier_neighbours, inverse_factor
from tests.rbf.scattered import normal, scattered, uniform


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("degree", [-1, 0, 1, 2])
@pytest.mark.parametrize("smoothness", [0, 2, 4])
def test_it_is_the_dense_interpolant(smoothness: int, degree: int, smoothing: float) -> None:
    centres, values, points = scattered(80, 2), normal(80, 2), 2 * uniform(60, 2) - 0.5
    options: dict[str, Any] = {"degree": degree, "smoothing": smoothing}
    ours = fit_sparse(centres, values, 0.3, smoothness=smoothness, **options)
    dense = fit_rbf(centres, values, wendland(smoothness, 1 / 0.3), **options)
    assert_close(ours(points), dense(points), rtol=0, atol=1e-7)
    assert_close(ours.radial(points), dense.radial(points), rtol=0, atol=1e-7)
    assert_close(ours.polynomial(points), dense.polynomial(points), rtol=0, atol=1e-7)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_any_dimension(dim: int) -> None:
    centres, values = scattered(60, dim), normal(60, 1)
    fitted = fit_sparse(centres, values, 0.1 if dim == 1 else 0.6, degree=1)
    assert_close(fitted(centres), values, rtol=0, atol=1e-8)


def test_nothing_is_felt_beyond_the_support() -> None:
    fitted = fit_sparse(scattered(40, 2), normal(40, 1), 0.2, degree=-1)
    assert not fitted(scattered(40, 2) + 1.4).any()
    assert fitted(uniform(0, 2)).shape == (0, 1)


def test_points_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, points = fit_sparse(scattered(40, 2), normal(40, 1), 0.4), uniform(50, 2)
    whole = fitted(points)
    monkeypatch.setattr(sparse, "_POINTS_AT_ONCE", 7)
    assert_close(fitted(points), whole)


def all_pairs(centres: torch.Tensor) -> sparse.csr_array:
    """Distances of all pairs, though a kernel may end earlier."""
    lengths, count = torch.cdist(centres, centres).numpy(), len(centres)
    indices, starts = np.tile(np.arange(count), count), np.arange(0, count * count + 1, count)
    return sparse.csr_array((lengths.ravel(), indices, starts), shape=lengths.shape)


def test_the_inverse_factor_with_all_neighbours_is_exact() -> None:
    """Then Gᵀ G = Φ⁻¹; with few it is near, and conjugate gradients need few steps."""
    centres, kernel = scattered(50, 2), wendland(2, 1.0)
    gram = kernel(torch.from_numpy(all_pairs(centres).toarray()).square()).numpy()
    exact, near = (
        inverse_factor(centres.numpy(), all_pairs(centres), kernel, np.zeros(50), count).toarray() for count in (49, 12)
    )
    assert np.abs(exact.T @ exact @ gram - np.eye(50)).max() < 1e-6
    assert np.linalg.cond(near @ gram @ near.T) < 0.01 * np.linalg.cond(gram)


def test_the_support_of_a_row_is_the_nearest_of_those_before_it() -> None:
    centres = scattered(30, 2)
    lengths = torch.cdist(centres, centres).numpy()
    pattern = sparse.csr_array(
        (lengths.ravel(), np.tile(np.arange(30), 30), np.arange(0, 901, 30)), shape=lengths.shape
    )
    support = earlier_neighbours(pattern, 4)
    rank = np.random.default_rng(0).permutation(30)
    for centre, row in enumerate(support):
        before = np.flatnonzero(rank < rank[centre])
        wanted = before[np.argsort(lengths[centre, before])][:4]
        assert row[-1] == centre
        assert row[: len(wanted)].tolist() == wanted.tolist()
        assert (row[len(wanted) : -1] == -1).all()
