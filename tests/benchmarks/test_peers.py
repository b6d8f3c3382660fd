"""PyTorch Geometric does the same work, by every call that is compared."""

from __future__ import annotations

from functools import partialmethod

import pytest
import torch
from benchmarks.checking import TOLERANCE, check, reference_results
from benchmarks.peers import HAS_PEER, disjoint_union, has_same_work, pyg_calls, pyg_contender
from torch import nn

from tests.benchmarks.tiny import ALL_OPERATORS, MESHES, PACKED, case

SAME_WORK = [(o, s) for o in HAS_PEER for s in (False, True) if (o, s) != ("monet", False)]


@pytest.mark.parametrize("workload", [MESHES, PACKED], ids=lambda workload: workload.name)
@pytest.mark.parametrize(("operator", "skip"), SAME_WORK)
def test_every_call_computes_the_same(operator: str, skip: bool, workload: object) -> None:
    ready = case(operator, skip, MESHES if workload is MESHES else PACKED)
    reference = reference_results(ready)
    calls = pyg_calls(ready)
    assert len({call.text for call in calls}) == len(calls) >= 2
    for call in calls:
        verdict = check(pyg_contender(ready, call), reference)
        assert verdict.passes(TOLERANCE), (call.text, verdict)


def test_parameters_are_all_compared() -> None:
    ready = case("gin", skip=True)
    contender = pyg_contender(ready, pyg_calls(ready)[0])
    expected = contender.expected(reference_results(ready))
    assert list(expected)[:2] == ["y", "x"]
    assert len(expected) == 2 + 5 == len(contender.steps[0]())


def test_another_function_would_be_seen() -> None:
    """With our parameters of another seed the peer's result is far off."""
    ready, other = case("gcn", skip=False), case("gcn", skip=False)
    with torch.no_grad():
        next(other.block.parameters()).add_(1)
    verdict = check(pyg_contender(other, pyg_calls(other)[0]), reference_results(ready))
    assert verdict.error > 0.1


def test_where_there_is_a_peer() -> None:
    same = {(o, s) for o in ALL_OPERATORS for s in (False, True) if has_same_work(case(o, s).problem)}
    assert same == set(SAME_WORK)


def test_union_is_of_disjoint_copies_in_receiver_order() -> None:
    ready = case("gcn", skip=False)
    union = disjoint_union(ready)
    vertices, edges = ready.graph.num_vertices, ready.graph.num_edges
    assert union.num_vertices == 3 * vertices
    assert union.edge_index.shape == (2, 3 * edges)
    assert (union.edge_index.diff()[1] >= 0).all()
    item = union.edge_index // vertices
    assert torch.equal(item[0], item[1])
    assert torch.equal(item[0], torch.arange(3).repeat_interleave(edges))
    assert torch.equal(union.edge_index[:, edges : 2 * edges] - vertices, ready.graph.edge_index)


@pytest.mark.compiled
def test_compiled_peer_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as in earnest; the compiler of C++ is left out, which takes long."""
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="aot_eager"))
    ready = case("gcn", skip=True)
    contender = pyg_contender(ready, pyg_calls(ready)[0], "PyG compiled", "default")
    assert contender.path == "PyG compiled"
    assert check(contender, reference_results(ready)).passes(TOLERANCE)
