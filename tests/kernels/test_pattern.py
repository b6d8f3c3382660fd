"""Edges in both orders."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip.kernels import Pattern, sort_edges, sparse_product
from geoskip.kernels.pattern import _argsort
from tests.specimens import features

NUM_SENDERS, NUM_RECEIVERS, GROUPS = 6, 4, 3


def drawn(groups: int, num_edges: int = 15) -> tuple[Tensor, Tensor, Tensor | None]:
    """Senders, receivers, groups: with gaps and repetitions."""
    random = torch.Generator().manual_seed(num_edges)
    senders, receivers, group = (
        torch.randint(size, (num_edges,), generator=random) for size in (NUM_SENDERS - 1, NUM_RECEIVERS, groups)
    )
    return senders, receivers, None if groups == 1 else group


def build(groups: int, num_edges: int = 15) -> tuple[Pattern, Tensor]:
    senders, receivers, group = drawn(groups, num_edges)
    return sort_edges(senders, receivers, NUM_SENDERS, NUM_RECEIVERS, group, groups)


def triples(pattern: Pattern) -> list[tuple[int, int, int]]:
    """(group, receiver, sender) of each edge."""
    group = torch.zeros_like(pattern.senders) if pattern.groups_of is None else pattern.groups_of
    return list(zip(group.tolist(), pattern.receivers.tolist(), pattern.senders.tolist(), strict=True))


every = pytest.mark.parametrize(("groups", "num_edges"), [(1, 15), (GROUPS, 15), (1, 0), (GROUPS, 0)])


@every
def test_sorted_by_group_receiver_sender(groups: int, num_edges: int) -> None:
    pattern, order = build(groups, num_edges)
    senders, receivers, group = drawn(groups, num_edges)
    assert triples(pattern) == sorted(triples(pattern))
    assert torch.equal(senders[order], pattern.senders)
    assert torch.equal(receivers[order], pattern.receivers)
    if group is not None and pattern.groups_of is not None:
        assert torch.equal(group[order], pattern.groups_of)
    assert (pattern.groups_of is None) == (groups == 1)
    assert (pattern.groups, pattern.num_edges) == (groups, num_edges)
    assert (pattern.num_senders, pattern.num_receivers) == (NUM_SENDERS, NUM_RECEIVERS)


@pytest.mark.parametrize("groups", [1, GROUPS])
def test_many_edges(groups: int) -> None:
    """Above a thousand edges another sort runs: the order is the same, also of repeated edges."""
    random = torch.Generator().manual_seed(0)
    senders, receivers = torch.randint(0, 40, (2, 3000), generator=random)
    group = None if groups == 1 else torch.randint(0, groups, (3000,), generator=random)
    pattern, order = sort_edges(senders, receivers, 45, 50, group, groups)
    first = torch.zeros_like(senders) if group is None else group
    keys = zip(first.tolist(), receivers.tolist(), senders.tolist(), strict=True)
    assert order.tolist() == [at for _, at in sorted((key, at) for at, key in enumerate(keys))]
    ends = first[order] * 45 + pattern.senders
    assert torch.equal(pattern.by_sender, torch.argsort(ends, stable=True))
    assert torch.equal(pattern.counts.flatten(), torch.bincount(first * 50 + receivers, minlength=groups * 50))
    assert torch.equal(pattern.sender_offsets.diff(dim=1).flatten(), torch.bincount(ends, minlength=groups * 45))


@pytest.mark.parametrize("largest", [100, 1 << 40, (1 << 62) - 1])
def test_argsort_of_large_keys(largest: int) -> None:
    """A key and its position may not fit in one number."""
    keys = torch.randint(0, largest, (2000,), generator=torch.Generator().manual_seed(0))
    keys[::3] = largest - 1
    assert torch.equal(_argsort(keys), torch.argsort(keys, stable=True))


@every
def test_receiver_segments_hold_their_edges(groups: int, num_edges: int) -> None:
    """Every edge lies in the segment of its group and receiver, and in no other."""
    pattern, _ = build(groups, num_edges)
    found = []
    for g in range(groups):
        for i in range(NUM_RECEIVERS):
            segment = range(int(pattern.offsets[g, i]), int(pattern.offsets[g, i + 1]))
            assert int(pattern.counts[g, i]) == len(segment)
            found += [(g, i, int(pattern.senders[e])) for e in segment]
    assert found == triples(pattern)


@every
def test_sender_segments_hold_their_edges(groups: int, num_edges: int) -> None:
    pattern, _ = build(groups, num_edges)
    edges, found = triples(pattern), []
    for g in range(groups):
        for j in range(NUM_SENDERS):
            low, high = int(pattern.sender_offsets[g, j]), int(pattern.sender_offsets[g, j + 1])
            segment = [edges[e] for e in pattern.by_sender[low:high].tolist()]
            assert all((group, sender) == (g, j) for group, _, sender in segment)
            found += segment
    assert sorted(found) == edges


def test_order_does_not_depend_on_the_input() -> None:
    senders, receivers, group = drawn(GROUPS)
    assert group is not None
    shuffled = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    again, _ = sort_edges(senders[shuffled], receivers[shuffled], NUM_SENDERS, NUM_RECEIVERS, group[shuffled], GROUPS)
    pattern, _ = build(GROUPS)
    assert triples(again) == triples(pattern)
    assert torch.equal(again.by_sender, pattern.by_sender)


@every
def test_transposed_reverses_edges(groups: int, num_edges: int) -> None:
    pattern, _ = build(groups, num_edges)
    reversed_ = pattern.transposed()
    assert triples(reversed_) == sorted((g, j, i) for g, i, j in triples(pattern))
    twice = reversed_.transposed()
    assert triples(twice) == triples(pattern)
    assert torch.equal(twice.offsets, pattern.offsets)
    assert torch.equal(twice.sender_offsets, pattern.sender_offsets)


def test_transposed_is_the_adjoint() -> None:
    """⟨y, W x⟩ = ⟨Wᵀ y, x⟩."""
    pattern, _ = build(1)
    weights, x, y = features(15), features(NUM_SENDERS, 2), features(NUM_RECEIVERS, 2, seed=2)
    back = sparse_product(y, weights[pattern.by_sender], pattern.transposed())
    assert_close((y * sparse_product(x, weights, pattern)).sum(), (back * x).sum())


def test_no_vertices_at_all() -> None:
    none = torch.empty(0, dtype=torch.long)
    pattern, order = sort_edges(none, none, 0, 0)
    assert (pattern.num_edges, pattern.num_receivers, pattern.num_senders, len(order)) == (0, 0, 0, 0)
    assert pattern.counts.shape == (1, 0)


def test_copies_are_the_sorted_edges_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    senders, receivers = (torch.randint(size, (20,), generator=generator) for size in (7, 5))
    pattern, _ = sort_edges(senders, receivers, 7, 5)
    starts = torch.arange(3).unsqueeze(1)
    apart = (pattern.senders + 7 * starts).flatten(), (pattern.receivers + 5 * starts).flatten()
    expected, _ = sort_edges(*apart, 21, 15)
    for name, value in vars(pattern.copies(3)).items():
        assert value is None or torch.equal(value, getattr(expected, name)), name


@pytest.mark.parametrize("end", [1 << 16, (1 << 16) + 1])
def test_argsort_of_16_bits_and_more(end: int) -> None:
    """NumPy sorts the former by another algorithm. The order of equal keys stays."""
    keys = torch.arange(2000) % 7 * (end // 7)
    keys[::3] = end - 1
    assert torch.equal(_argsort(keys, end), torch.argsort(keys, stable=True))
