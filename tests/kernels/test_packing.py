"""A batch of stored graphs, place by place, against loops over the graphs; in plain PyTorch and in Triton."""

import pytest
import torch
from torch import Tensor

from geoskip.kernels import use_path
from geoskip.kernels.packing import packed_edges, packed_rows, packed_segments

LOOPS = 3
PATHS = [
    pytest.param("fast", "cpu"),
    pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
    pytest.param("fast", "cuda", marks=pytest.mark.gpu),
]
SPARE = [pytest.param(0, id="exact"), pytest.param(70, id="padded")]
VERTS = torch.tensor([3, 0, 5, 1, 4])
EDGES = torch.tensor([4, 0, 70, 0, 9])
ITEMS = torch.tensor([2, 1, 4, 0])


def offsets(counts: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])


def stored() -> tuple[Tensor, Tensor, Tensor]:
    """Ends of the edges within their graphs, and a permutation of each graph's edges."""
    random = torch.Generator().manual_seed(0)
    ends = [torch.randint(max(int(v), 1), (2, int(e)), generator=random) for v, e in zip(VERTS, EDGES, strict=True)]
    order = [torch.randperm(int(e), generator=random) for e in EDGES]
    senders, receivers = torch.cat(ends, dim=1).to(torch.uint8)
    return senders, receivers, torch.cat(order).to(torch.int16)


@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_rows(path: str, device: str, spare: int) -> None:
    first, room = offsets(VERTS), int(VERTS[ITEMS].sum()) + spare
    expected = [(place, int(first[item]) + k) for place, item in enumerate(ITEMS) for k in range(int(VERTS[item]))]
    with use_path(path):
        starts, graphs, rows, real = (t.cpu() for t in packed_rows(first.to(device), ITEMS.to(device), room))
    count = len(expected)
    assert starts.tolist() == [0, *VERTS[ITEMS].cumsum(0).tolist()]
    assert list(zip(graphs[:count].tolist(), rows[:count].tolist(), strict=True)) == expected
    assert real.tolist() == [True] * count + [False] * spare
    assert set(rows[count:].tolist()) <= {0}
    assert set(graphs[count:].tolist()) <= {len(ITEMS) - 1}


@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_edges(path: str, device: str, spare: int) -> None:
    first, starts = offsets(EDGES), offsets(VERTS[ITEMS])
    count = int(EDGES[ITEMS].sum())
    senders, receivers, order = stored()
    found: list[list[int]] = [[], [], []]
    for place, item in enumerate(ITEMS):
        own = slice(int(first[item]), int(first[item + 1]))
        found[2] += [len(found[0]) + int(k) for k in order[own]]
        base = int(starts[place])
        found[0] += [base + int(k) for k in senders[own]]
        found[1] += [base + int(k) for k in receivers[own]]
    padding = [int(starts[-1]) + k // LOOPS for k in range(spare)]
    with use_path(path):
        batch = first.to(device), ITEMS.to(device), starts.to(device)
        edges = senders.to(device), receivers.to(device), order.to(device)
        got = packed_edges(*batch, *edges, count + spare, LOOPS)
    assert got[0].tolist() == found[0] + padding
    assert got[1].tolist() == found[1] + padding
    assert got[2].tolist() == found[2] + list(range(count, count + spare))


@pytest.mark.parametrize("spare", SPARE)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_segments(path: str, device: str, spare: int) -> None:
    """Padding vertices have ``LOOPS`` edges each as long as there is room."""
    verts, edges = offsets(VERTS), offsets(EDGES[ITEMS])
    counts = int(VERTS[ITEMS].sum()), int(EDGES[ITEMS].sum())
    room = counts[1] + 2 * spare
    first_in = torch.arange(int(VERTS.sum())).to(torch.uint8)
    own = [int(edges[place]) + int(verts[item]) + k for place, item in enumerate(ITEMS) for k in range(VERTS[item])]
    padding = [min(counts[1] + k * LOOPS, room) for k in range(spare + 1)]
    with use_path(path):
        starts, graphs, rows, _ = packed_rows(verts.to(device), ITEMS.to(device), counts[0] + spare)
        tables = first_in.to(device), (first_in * 2).to(device)
        into, out = packed_segments(starts, edges.to(device), graphs, rows, *tables, room, LOOPS)
    assert into[0].tolist() == own + padding
    twice = [value + int(verts[item]) + k for value, (item, k) in zip(own, _places(), strict=True)]
    assert out[0].tolist() == twice + padding


def _places() -> list[tuple[int, int]]:
    return [(int(item), k) for item in ITEMS for k in range(int(VERTS[item]))]
