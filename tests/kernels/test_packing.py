"""A batch of stored graphs, place by place, against loops over the graphs; in plain PyTorch and in Triton."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from geoskip.kernels import Pattern, sort_edges, use_path
from geoskip.kernels.packing import Coordinates, StoredGraphs, packed_clusters, packed_edges, packed_graphs

LOOPS = 3
PATHS = [
    pytest.param("fast", "cpu"),
    pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
    pytest.param("fast", "cuda", marks=pytest.mark.gpu),
]
SPARE = [pytest.param(0, id="exact"), pytest.param(300, id="padded")]
# Single vertices, no vertices, no edges, more edges than a block.
VERTS, EDGES = [3, 0, 5, 1, 9, 1, 2], [4, 0, 300, 0, 17, 2, 0]
CHOSEN = [[2, 1, 4, 0], [3], [6, 5, 3, 0, 2, 4, 1], [1, 3]]


class Sample(NamedTuple):
    """Graphs by themselves, and stored one after the other."""

    patterns: list[Pattern]
    stored: StoredGraphs
    x: Tensor
    pos: Tensor
    weights: Tensor


def offsets(counts: list[int]) -> Tensor:
    return torch.tensor([0, *counts]).cumsum(0)


def sample() -> Sample:
    random = torch.Generator().manual_seed(0)
    patterns = []
    for verts, edges in zip(VERTS, EDGES, strict=True):
        senders, receivers = torch.randint(max(verts, 1), (2, edges), generator=random)
        patterns.append(sort_edges(senders, receivers, verts, verts)[0])
    stored = StoredGraphs(
        offsets(VERTS),
        offsets(EDGES),
        torch.cat([p.senders for p in patterns]).to(torch.uint8),
        torch.cat([p.receivers for p in patterns]).to(torch.uint8),
        torch.cat([p.by_sender for p in patterns]).to(torch.int16),
        torch.cat([p.offsets[0, :-1] for p in patterns]).to(torch.int16),
        torch.cat([p.sender_offsets[0, :-1] for p in patterns]).to(torch.int16),
    )
    x, pos = torch.randn(sum(VERTS), 3, generator=random), torch.randn(sum(VERTS), 2, generator=random)
    return Sample(patterns, stored, x, pos, torch.randint(2, (sum(EDGES),), generator=random).to(torch.uint8))


def moved(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        parts = [moved(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def packed_by_hand(chosen: list[int], num_vertices: int, num_edges: int) -> Pattern:
    """The edges of one graph after the other, then of the padding, sorted again."""
    senders, receivers, start = [], [], 0
    for pattern in (sample().patterns[item] for item in chosen):
        senders += (pattern.senders + start).tolist()
        receivers += (pattern.receivers + start).tolist()
        start += pattern.num_receivers
    loops = [start + k // LOOPS for k in range(num_edges - len(senders))]
    ends = torch.tensor([senders + loops, receivers + loops], dtype=torch.long)
    return sort_edges(ends[0], ends[1], num_vertices, num_vertices)[0]


def same_pattern(found: Pattern, expected: Pattern) -> None:
    for name in ("senders", "receivers", "offsets", "by_sender", "sender_offsets"):
        a, b = getattr(found, name).cpu(), getattr(expected, name)
        assert a.dtype == b.dtype
        assert torch.equal(a, b), name


def room(chosen: list[int], spare: int) -> tuple[int, int]:
    """The last vertex with padding edges has fewer than ``LOOPS``."""
    verts, edges = (sum(sizes[item] for item in chosen) for sizes in (VERTS, EDGES))
    return verts + spare, edges + spare // LOOPS * LOOPS + (1 if spare else 0)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_graphs(path: str, device: str, chosen: list[int], spare: int) -> None:
    _, stored, x, *_ = sample()
    num_vertices, num_edges = room(chosen, spare)
    with use_path(path):
        items, given = torch.tensor(chosen, device=device), moved(stored, device)
        found = packed_graphs(items, given, num_vertices, num_edges, LOOPS, x.to(device), None)
    same_pattern(found.pattern, packed_by_hand(chosen, num_vertices, num_edges))
    assert found.order.tolist() == [*range(num_edges)]
    assert found.pseudo is None
    rows = [
        (place, int(stored.vertex_offsets[item]) + k, True)
        for place, item in enumerate(chosen)
        for k in range(VERTS[item])
    ]
    padding = [(len(chosen) - 1, 0, False)] * spare
    columns = found.verts.graphs.tolist(), found.verts.rows.tolist(), found.verts.real.tolist()
    assert [*zip(*columns, strict=True)] == rows + padding
    assert found.verts.starts.tolist() == offsets([VERTS[item] for item in chosen]).tolist()
    assert found.x is not None
    assert torch.equal(found.x.cpu(), torch.cat([x[[row for _, row, _ in rows]], x.new_zeros(spare, 3)]))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("by_position", [False, True], ids=["degree", "position"])
@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_coordinates(path: str, device: str, spare: int, by_position: bool, dtype: torch.dtype, shared: bool) -> None:
    """Bitwise those of each edge by itself. Graphs without edges have the scale 0, if scales are shared."""
    chosen = CHOSEN[2]
    _, stored, _, pos, _ = sample()
    num_vertices, num_edges = room(chosen, spare)
    scales = torch.tensor([0.7, 0.0, 1.3, 0.0, 2.1, 0.9, 0.0] if shared else [0.7, 1, 1.3, 1, 2.1, 0.9, 1], dtype=dtype)
    pos = pos.to(dtype)
    if not by_position:
        scales *= 10
    coordinates = Coordinates(pos if by_position else None, scales, shared)
    with use_path(path):
        items, given = torch.tensor(chosen, device=device), moved(stored, device)
        arguments = num_vertices, num_edges, LOOPS, None, moved(coordinates, device)
        found = packed_graphs(items, given, *arguments).pseudo
    assert found is not None
    pattern, expected = packed_by_hand(chosen, num_vertices, num_edges), []
    verts = torch.tensor([(item, int(offsets(VERTS)[item]) + k) for item in chosen for k in range(VERTS[item])])
    for sender, receiver in zip(pattern.senders.tolist(), pattern.receivers.tolist(), strict=True):
        scale = scales.max() if shared else scales[verts[receiver, 0] if receiver < len(verts) else chosen[-1]]
        if by_position:
            offset = pos[verts[sender, 1]] - pos[verts[receiver, 1]] if receiver < len(verts) else pos.new_zeros(2)
            expected.append((offset / (2 * scale) + 0.5).clamp(0, 1))
        else:
            expected.append((pattern.counts[0, receiver].to(dtype) / scale).clamp(0, 1).view(1))
    assert found.dtype == dtype
    assert torch.equal(found.cpu(), torch.stack(expected))


@pytest.mark.parametrize(("path", "device"), PATHS)
def test_a_batch_without_edges_has_the_scale_1(path: str, device: str) -> None:
    _, stored, _, pos, _ = sample()
    with use_path(path):
        coordinates = Coordinates(pos.to(device), torch.zeros(len(VERTS), device=device), True)
        items, given = torch.tensor([3, 6], device=device), moved(stored, device)
        found = packed_graphs(items, given, 5, 4, LOOPS, None, coordinates).pseudo
    assert found is not None
    assert found.tolist() == [[0.5, 0.5]] * 4


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_edges(path: str, device: str, chosen: list[int], spare: int) -> None:
    _, stored, _, _, weights = sample()
    num_vertices, num_edges = room(chosen, spare)
    with use_path(path):
        items, given = torch.tensor(chosen, device=device), moved(stored, device)
        pattern, found = packed_edges(items, given, num_vertices, num_edges, LOOPS, weights.to(device))
    same_pattern(pattern, packed_by_hand(chosen, num_vertices, num_edges))
    first = stored.edge_offsets
    own = [weights[first[item] : first[item + 1]] for item in chosen]
    assert torch.equal(found.cpu(), torch.cat([*own, weights.new_ones(num_edges - sum(map(len, own)))]).float())


CLUSTERS = [[0, 1, 0], [], [2, 0, 1, 0, 2], [0], [0] * 9, [0], [1, 0]]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize("chosen", CHOSEN, ids=str)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_clusters(path: str, device: str, chosen: list[int], spare: int) -> None:
    patterns = []
    for clusters in CLUSTERS:
        ends = torch.arange(len(clusters)), torch.tensor(clusters, dtype=torch.long)
        patterns.append(sort_edges(*ends, len(clusters), len(set(clusters)))[0])
    coarse = [pattern.num_receivers for pattern in patterns]
    members, targets = (
        torch.cat([getattr(p, name) for p in patterns]).to(torch.uint8) for name in ("senders", "receivers")
    )
    first = torch.cat([p.offsets[0, :-1] for p in patterns]).to(torch.uint8)
    num_fine, num_coarse = (sum(sizes[item] for item in chosen) + spare for sizes in (VERTS, coarse))
    tables = offsets(VERTS), offsets(coarse), members, targets, first
    stored: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] = moved(tables, device)
    with use_path(path):
        items = torch.tensor(chosen, device=device)
        found = packed_clusters(items, *stored, num_fine, num_coarse, spare > 0)
    senders: list[int] = []
    receivers: list[int] = []
    starts, vertex, cluster = [0], 0, 0
    for item in chosen:
        pattern = patterns[item]
        senders += (pattern.senders + vertex).tolist()
        receivers += (pattern.receivers + cluster).tolist()
        starts += (pattern.offsets[0, 1:] + vertex).tolist()
        vertex, cluster = vertex + VERTS[item], cluster + coarse[item]
    if spare:
        starts += [vertex + 1 + k for k in range(spare)]
        senders += [num_fine - 1] * (spare + num_coarse)
        receivers += [min(cluster + k, num_coarse) for k in range(spare + num_coarse)]
    assert found.senders.tolist() == senders
    assert found.receivers.tolist() == receivers
    assert found.offsets.tolist() == [starts]
    # Padding is in no segment by sender.
    assert found.by_sender.tolist() == [*(senders.index(v) for v in range(vertex)), *range(vertex, len(senders))]
    assert found.sender_offsets.tolist() == [[min(v, vertex) for v in range(num_fine + 1)]]
