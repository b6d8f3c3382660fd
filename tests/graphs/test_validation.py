"""Records out of files: every one that was built passes, and none with a changed index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geoskip.graphs import Graph, pack
from geoskip.graphs.graph_hierarchy import Hierarchy, SparseMatrix
from geoskip.graphs.validation import check_graph, check_hierarchy, check_matrix, check_pattern
from geoskip.kernels import Pattern, sort_edges
from geoskip.meshes import icosphere, mesh_hierarchy

CHECKS: dict[type, Callable[[Any], None]] = {
    Pattern: check_pattern,
    Graph: check_graph,
    SparseMatrix: check_matrix,
    Hierarchy: lambda hierarchy: check_hierarchy(hierarchy, "hierarchy"),
}


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    senders, receivers, groups = (draw(st.integers(1, 6)) for _ in range(3))
    count = draw(st.integers(1, 12))
    ends = [
        torch.tensor(draw(st.lists(st.integers(0, limit - 1), min_size=count, max_size=count)))
        for limit in (senders, receivers, groups)
    ]
    group = ends[2] if groups > 1 else None
    return sort_edges(ends[0], ends[1], senders, receivers, group, groups)[0]


@given(patterns())
def test_what_was_built_passes(pattern: Pattern) -> None:
    check_pattern(pattern)


@given(patterns(), st.data())
def test_no_index_can_change(pattern: Pattern, data: st.DataObject) -> None:
    """Neither alone, whatever it becomes."""
    names = [field.name for field in fields(pattern) if getattr(pattern, field.name) is not None]
    name = data.draw(st.sampled_from(names))
    tensor = getattr(pattern, name).clone()
    place = data.draw(st.integers(0, tensor.numel() - 1))
    before = int(tensor.view(-1)[place])
    after = data.draw(st.integers(-3, 20) | st.sampled_from([2**31, 2**62, -(2**63)]))
    tensor.view(-1)[place] = after
    changed = replace(pattern, **{name: tensor})
    if after == before or _is_sound(changed):
        check_pattern(changed)
        return
    with pytest.raises(ValueError, match=": "):
        check_pattern(changed)


def _is_sound(pattern: Pattern) -> bool:
    """By definition, edge by edge: another sender may make another sound pattern."""
    groups = [0] * pattern.num_edges if pattern.groups_of is None else pattern.groups_of.tolist()
    edges = list(zip(groups, pattern.receivers.tolist(), pattern.senders.tolist(), strict=True))
    sizes = pattern.groups, pattern.num_receivers, pattern.num_senders
    inside = all(0 <= end < size for edge in edges for end, size in zip(edge, sizes, strict=True))
    if edges != sorted(edges) or not inside:
        return False
    by_sender = sorted(range(len(edges)), key=lambda edge: (edges[edge][0], edges[edge][2], edge))
    if pattern.by_sender.tolist() != by_sender:
        return False
    for offsets, end, size in ((pattern.offsets, 1, sizes[1]), (pattern.sender_offsets, 2, sizes[2])):
        for group in range(sizes[0]):
            for vertex in range(size + 1):
                if int(offsets[group, vertex]) != sum((edge[0], edge[end]) < (group, vertex) for edge in edges):
                    return False
    return True


@pytest.fixture
def hierarchy() -> Hierarchy:
    return Hierarchy.from_meshes(mesh_hierarchy(icosphere(1), (4,)), spiral_length=4)


def test_whole_records(hierarchy: Hierarchy) -> None:
    check_hierarchy(hierarchy, "hierarchy")
    check_graph(pack([hierarchy.levels[1]] * 2))


def broken(hierarchy: Hierarchy) -> dict[str, Any]:
    graph, matrix = hierarchy.levels[1], hierarchy.down[0]
    assert graph.spirals is not None
    assert graph.pseudo is not None
    far = graph.spirals.clone()
    far[0, 1] = graph.num_vertices
    half = torch.tensor([0, 5])
    return {
        "order": replace(graph, order=graph.order.clamp(min=1)),
        "spirals": replace(graph, spirals=far),
        "spirals: expected a tensor of int64": replace(graph, spirals=graph.spirals.int()),
        "pseudo": replace(graph, pseudo=graph.pseudo[:-1]),
        "pseudo: edge": replace(graph, pseudo=graph.pseudo / 0),
        "edge_weight": replace(graph, given_edge_weight=torch.ones(graph.num_edges + 1)),
        "edge_weight: edge": replace(graph, given_edge_weight=torch.ones(graph.num_edges) / 0),
        "graph_offsets": replace(graph, graph_offsets=half),
        "values": SparseMatrix(matrix.pattern, matrix.values[:-1]),
        "values: not finite": SparseMatrix(matrix.pattern, matrix.values / 0),
        "pattern": replace(graph, pattern=matrix.pattern),
        "down": replace(hierarchy, down=hierarchy.up),
        "2 levels": replace(hierarchy, down=()),
        "int64": replace(graph.pattern, senders=graph.pattern.senders.int()),
        "offsets: cannot have the shape": replace(graph.pattern, offsets=graph.pattern.offsets[0]),
        "receivers": replace(graph.pattern, receivers=graph.pattern.receivers[:-1]),
        "groups_of": replace(graph.pattern, groups_of=graph.pattern.senders + 1),
    }


@pytest.mark.usefixtures("unchecked")
def test_what_is_wrong_is_named(hierarchy: Hierarchy) -> None:
    for fault, record in broken(hierarchy).items():
        with pytest.raises((ValueError, TypeError), match=fault):
            CHECKS[type(record)](record)
