r"""A sparse approximate inverse for the matrices of positive definite kernels.

With the centres in random order, row i of the inverse Cholesky factor is nearly supported on i and the nearest of the
centres before it. On that support the best row, in the Kullback-Leibler sense, is one small solve (Vecchia 1988;
Kolotilina and Yeremin 1993; Schäfer, Katzfuss and Owhadi 2021):

.. math:: G_{i,J} = y / \sqrt{y_i}, \qquad \Phi_{JJ}\, y = e_i, \qquad G^\top G \approx \Phi^{-1}.

The number of conjugate gradient steps then hardly grows with the number of centres.
"""

import numpy as np
import torch
from scipy.sparse import csr_array

from geoskip.rbf.distances import squared_distances
from geoskip.rbf.kernels import Kernel
from geoskip.shapes import Float, Int

_AT_ONCE = 1 << 17


def inverse_factor(
    centres: Float[np.ndarray, "centres dim"],
    distances: csr_array,
    kernel: Kernel,
    smoothing: Float[np.ndarray, "centres"],
    neighbours: int = 12,
) -> csr_array:
    """G; ``distances`` holds those between centres inside the kernel's support."""
    support = earlier_neighbours(distances, neighbours)
    rows = [
        _rows(torch.from_numpy(centres), torch.from_numpy(part), kernel, torch.from_numpy(smoothing)).numpy()
        for part in np.array_split(support, len(support) * (neighbours + 1) ** 2 // _AT_ONCE + 1)
    ]
    there = support >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return csr_array((np.concatenate(rows)[there], support[there], starts), shape=distances.shape)


def earlier_neighbours(distances: csr_array, count: int, seed: int = 0) -> Int[np.ndarray, "centres count_plus_1"]:
    """Of each centre the ``count`` nearest among those before it in a random order, -1 for none; itself last."""
    num_centres = distances.shape[0]
    rank = np.random.default_rng(seed).permutation(num_centres)
    rows = np.repeat(np.arange(num_centres), np.diff(distances.indptr))
    earlier = rank[distances.indices] < rank[rows]
    rows, columns, lengths = rows[earlier], distances.indices[earlier], distances.data[earlier]
    order = np.lexsort((lengths, rows))
    rows, columns = rows[order], columns[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    near = place < count
    support = np.full((num_centres, count + 1), -1, dtype=np.int64)
    support[rows[near], place[near]] = columns[near]
    support[:, count] = np.arange(num_centres)
    return support


def _rows(centres: torch.Tensor, support: torch.Tensor, kernel: Kernel, smoothing: torch.Tensor) -> torch.Tensor:
    near, there = centres[support], support >= 0
    block = kernel(squared_distances(near, near)) * (there.unsqueeze(1) & there.unsqueeze(2))
    block = block + torch.diag_embed(torch.where(there, smoothing[support], 1.0))
    last = torch.zeros_like(near[..., :1])
    last[:, -1] = 1
    row = torch.linalg.solve_ex(block, last).result.squeeze(-1)
    return row / row[:, -1:].sqrt()
