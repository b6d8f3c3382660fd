"""Edges are sorted once, and what is cached never goes stale."""

from __future__ import annotations

import copy
import gc
import weakref
from unittest.mock import Mock

import pytest
import torch

from geoskip.pyg import accelerate
from geoskip.pyg.edge_cache import _MEMO, MOST
from tests.pyg.test_accelerate import IN, LAYERS, OUT, assert_same, edge_index, edge_values

pyg = pytest.importorskip("torch_geometric.nn")


def test_changed_edges_are_noticed_and_dead_ones_forgotten() -> None:
    conv = pyg.SAGEConv(IN, OUT)
    plain = copy.deepcopy(conv)
    accelerate(conv)
    x, edges = torch.randn(20, IN), edge_index(20, 60)
    conv(x, edges)
    edges[0, 0] = (edges[0, 0] + 1) % 18
    torch.testing.assert_close(conv(x, edges), plain(x, edges))
    weighted, weight = pyg.GraphConv(IN, OUT), torch.rand(60)
    other = copy.deepcopy(weighted)
    accelerate(other)
    other(x, edges, weight)
    weight.mul_(2)
    torch.testing.assert_close(other(x, edges, weight), weighted(x, edges, weight))
    key = id(edges)
    assert key in _MEMO
    alive = weakref.ref(edges)
    del edges
    gc.collect()
    assert alive() is None
    assert key not in _MEMO


def test_both_flows_of_the_same_edges() -> None:
    """They sort the same tensor differently."""
    x, edges, pseudo = torch.randn(20, IN), edge_index(20, 60), torch.rand(60, 2)
    for flow in ("source_to_target", "target_to_source"):
        plain = pyg.GMMConv(IN, OUT, dim=2, kernel_size=3, flow=flow)
        fast = copy.deepcopy(plain)
        accelerate(fast)
        torch.testing.assert_close(fast(x, edges, pseudo), plain(x, edges, pseudo))


def test_sorting_happens_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    from geoskip.pyg import edge_cache as module

    counted = Mock(wraps=module.sort_edges)
    monkeypatch.setattr(module, "sort_edges", counted)
    model = pyg.GraphSAGE(IN, 8, num_layers=3)
    accelerate(model)
    x, edges = torch.randn(20, IN), edge_index(20, 60)
    for _ in range(4):
        model(x, edges)
    assert counted.call_count == 1


@pytest.mark.parametrize("name", LAYERS)
def test_inference_mode_before_training(name: str) -> None:
    """What is cached in inference mode also serves training, as in Lightning's first check of the validation set."""
    make, kind = LAYERS[name]
    plain = make().double()
    fast = copy.deepcopy(plain)
    accelerate(fast)
    x, edges = torch.randn(20, IN).double(), edge_index(20, 60)
    inputs = [x, edges, *edge_values(kind, 60, torch.float64)]
    if "cached" not in name:  # there, PyTorch Geometric itself caches a tensor of inference mode
        with torch.inference_mode():
            fast(*inputs)
    assert_same(plain, fast, inputs, torch.float64)
    (fast(x.requires_grad_(), *inputs[1:])).sum().backward()


@pytest.mark.parametrize(("senders", "receivers", "end"), [(12, 7, "receivers"), (7, 12, "senders")])
def test_ends_of_bipartite_edges_are_checked(senders: int, receivers: int, end: str) -> None:
    """Each end against its own number of vertices: an edge beyond them would be left out silently."""
    conv = pyg.GraphConv((IN, IN), OUT)
    accelerate(conv)
    edges = torch.tensor([[0, 9], [1, 1]] if end == "senders" else [[0, 1], [1, 9]])
    with pytest.raises(ValueError, match=f"{end} of edge_index: vertex 9 does not exist"):
        conv((torch.randn(senders, IN), torch.randn(receivers, IN)), edges)


def test_eigenvalues_of_each_call_are_not_collected() -> None:
    conv, x, edges = pyg.ChebConv(IN, OUT, K=3), torch.randn(20, IN), edge_index(20, 60)
    accelerate(conv)
    for step in range(4):
        conv(x, edges, lambda_max=torch.tensor(1.5 + step))
    assert len(_MEMO[id(edges)]) == 1


def test_numbers_that_change_in_each_call_are_not_collected() -> None:
    """An ε that decays, and largest eigenvalues as numbers."""
    gin, cheb = pyg.GINConv(torch.nn.Identity(), eps=1.0), pyg.ChebConv(IN, OUT, K=3)
    plain = copy.deepcopy(gin)
    accelerate(gin)
    accelerate(cheb)
    x, edges = torch.randn(20, IN), edge_index(20, 60)
    for step in range(2 * MOST):
        for conv in (gin, plain):
            conv.eps.fill_(1 / (1 + step))
        torch.testing.assert_close(gin(x, edges), plain(x, edges))
        cheb(x, edges, lambda_max=1.5 + step)
    assert len(_MEMO[id(edges)]) == MOST
