"""Weights normalized by Triton kernels are bitwise those of the formulas, which are tested with the graphs."""

from __future__ import annotations

import pytest
import torch

from geoskip.graphs import Graph, WeightedEdges, gcn_edges, mean_weights, with_self_loops
from geoskip.kernels import use_path

PATHS = [
    pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
    pytest.param("fast", "cuda", marks=pytest.mark.gpu),
]


def graph(device: str) -> Graph:
    """With a hub, self-loops that are repeated, and a vertex without edges."""
    random = torch.Generator().manual_seed(0)
    ends = torch.randint(36, (2, 150), generator=random)
    hub = torch.stack([torch.arange(70) % 37, torch.full((70,), 5)])
    loops = torch.tensor([[3, 3, 3, 8], [3, 3, 3, 8]])
    return Graph.from_edge_index(torch.cat([ends, hub, loops], dim=1).to(device), 38)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_gcn(path: str, device: str, renormalize: bool, dtype: torch.dtype) -> None:
    with use_path("reference"):
        expected = gcn_edges(graph("cpu"), dtype, renormalize).weights
    with use_path(path):
        found = gcn_edges(graph(device), dtype, renormalize).weights
    assert found.dtype == dtype
    if device == "cpu" or dtype == torch.float32:
        assert torch.equal(found.cpu(), expected)
    else:  # 1/√x may differ in the last bit
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-15, atol=0)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_mean(path: str, device: str) -> None:
    with use_path("reference"):
        expected = mean_weights(with_self_loops(graph("cpu"), torch.float32))
    with use_path(path):
        found = mean_weights(with_self_loops(graph(device), torch.float32))
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize(("path", "device"), PATHS)
def test_mean_of_a_column(path: str, device: str) -> None:
    pattern, ones = with_self_loops(graph(device), torch.float32)
    weights = torch.stack([ones, -ones], dim=1)[:, 0]
    with use_path(path):
        assert torch.equal(mean_weights(WeightedEdges(pattern, weights)), mean_weights(WeightedEdges(pattern, ones)))
