"""The workloads are the ones that the figures are stated for."""

from __future__ import annotations

import math

import pytest
from benchmarks.workloads import (
    BODIES,
    FACES,
    ORDER,
    SUPERPIXELS,
    Workload,
    checked_operators,
    chosen_workloads,
    own_workload,
    problems,
    spline_sizes,
)

from geoskip.operators import OPERATORS


@pytest.mark.parametrize(
    ("workload", "batch", "vertices", "channels", "kernel_sizes", "dim", "degree"),
    [
        (FACES, 32, 5023, (32, 32), (9, 14), 3, 6 - 12 / 5023),
        (BODIES, 1, 6890, (64, 128), (10,), 3, 6 - 12 / 6890),
        (SUPERPIXELS, 1, 64 * 75, (32, 64), (25,), 2, 1392 / 75),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else "",
)
def test_sizes(
    workload: Workload,
    batch: int,
    vertices: int,
    channels: tuple[int, int],
    kernel_sizes: tuple[int, ...],
    dim: int,
    degree: float,
) -> None:
    graph = workload.make_graph()
    assert (workload.batch, graph.num_vertices) == (batch, vertices)
    assert (workload.in_channels, workload.out_channels) == channels
    assert workload.kernel_sizes == kernel_sizes
    assert graph.num_edges / graph.num_vertices == pytest.approx(degree)
    assert graph.pseudo is not None
    assert graph.pseudo.shape[1] == workload.dim == dim
    if workload.has_spirals:
        assert graph.spirals is not None
        assert graph.spirals.shape[1] == max(kernel_sizes)


def test_every_operator_is_measured_with_and_without_skip() -> None:
    assert set(ORDER) == set(OPERATORS.names())
    found = [(p.operator, p.slots, p.skip) for pair in problems(FACES) for p in pair]
    assert len(found) == len(set(found)) == 2 * (2 * 5 + 2)
    assert {(o, m) for o, m, _ in found} >= {("monet", 9), ("monet", 14), ("gcn", 1), ("gin", 1)}
    assert {p.operator for pair in problems(SUPERPIXELS) for p in pair} == set(ORDER) - {"spiral"}


def test_spline_sizes_multiply_to_the_kernel_size() -> None:
    for workload in (FACES, BODIES, SUPERPIXELS):
        for slots in workload.kernel_sizes:
            sizes = spline_sizes(slots, workload.dim)
            assert len(sizes) == workload.dim
            assert math.prod(sizes) == slots
    assert spline_sizes(4, 3) == (4, 1, 1)


def test_quick_is_smaller() -> None:
    quick = chosen_workloads(None, quick=True)
    assert [(w.name, w.batch, len(w.kernel_sizes)) for w in quick] == [
        ("faces", 4, 1),
        ("bodies", 1, 1),
        ("superpixels", 1, 1),
    ]
    assert "batch 4, 5,023 vertices, 32 → 32 channels" in quick[0].about


def test_smallest_kernel_alone() -> None:
    (faces,) = chosen_workloads(["faces"], smallest=True)
    assert (faces.batch, faces.kernel_sizes) == (32, (9,))


def test_a_mesh_of_ones_own_size() -> None:
    own = own_workload("3,40,4,5,6")
    graph = own.make_graph()
    assert (own.batch, graph.num_vertices, own.in_channels, own.out_channels, own.kernel_sizes) == (3, 40, 4, 5, (6,))
    assert own.about == "batch 3, 40 vertices, 4 → 5 channels"
    for wrong in ("3,40,4,5", "3,40,4,5,x", "0,40,4,5,6"):
        with pytest.raises(ValueError, match=f"own: expected .*, got '{wrong}'"):
            own_workload(wrong)


def test_names_are_checked_and_ordered() -> None:
    assert checked_operators(["gcn", "monet"]) == ["monet", "gcn"]
    with pytest.raises(ValueError, match="operator: unknown name 'gat'; choose from monet, feast"):
        checked_operators(["gat"])
    with pytest.raises(ValueError, match="workload: unknown name 'hands'; choose from faces, bodies, superpixels"):
        chosen_workloads(["hands"])
