"""Bytes and operations, counted here by hand."""

from __future__ import annotations

import pytest
from benchmarks.roofline import Ceilings, Work, measure_ceilings, work_of

from tests.benchmarks.tiny import CPU, PACKED, case

# Of the meshes: 3 items, 40 vertices, 2 · (3 · 40 - 6) edges, 4 → 5 channels, M = 4.
B, V, E, C, OUT, M = 3, 40, 228, 4, 5, 4
PRODUCT = 2 * B * V * C * OUT
FEATURES = 3 * B * V * C + 2 * B * V * OUT
INDICES = 8 * (3 * E + 3 * V)


@pytest.mark.parametrize(
    ("operator", "skip", "operations"),
    [
        ("monet", False, 3 * M * PRODUCT + 3 * 2 * B * E * M * C),
        ("monet", True, 3 * (M + 1) * PRODUCT + 3 * 2 * B * E * M * C),
        ("feast", False, 3 * M * PRODUCT + 3 * 2 * B * E * M * C),
        ("cheb", False, 3 * M * PRODUCT + 2 * B * E * (M - 1) * (C + OUT)),
        ("gcn", False, 3 * PRODUCT + 2 * 2 * B * E * C),
        ("gin", False, 3 * PRODUCT + 3 * 2 * B * V * OUT * OUT + 2 * 2 * B * E * C),
        ("spiral", True, 3 * (M + 1) * PRODUCT),
        # Of 4 × 1 × 1 splines of degree 1, two are not 0 on an edge.
        ("spline", False, 3 * M * PRODUCT + 2 * 2 * B * E * 2 * C),
    ],
)
def test_operations(operator: str, skip: bool, operations: int) -> None:
    assert work_of(case(operator, skip)).operations == operations


@pytest.mark.parametrize(
    ("operator", "num_bytes"),
    [
        ("monet", 4 * (FEATURES + 3 * (M * C * OUT + 2 * M * 3 + OUT)) + INDICES + 2 * 4 * 3 * E),
        ("gcn", 4 * (FEATURES + 3 * (C * OUT + OUT)) + INDICES),
        ("spiral", 4 * (FEATURES + 3 * (M * C * OUT + OUT)) + 8 * 3 * M * V),
    ],
)
def test_bytes(operator: str, num_bytes: int) -> None:
    assert work_of(case(operator, skip=False)).num_bytes == num_bytes


def test_skip_adds_its_matrix() -> None:
    bare, skip = (work_of(case("feast", skip, PACKED)) for skip in (False, True))
    assert skip.num_bytes - bare.num_bytes == 4 * 3 * C * OUT


def test_floor_is_the_slower_of_the_two() -> None:
    ceilings = Ceilings(bytes_per_second=1e9, operations_per_second=1e12, eager_milliseconds=0.1)
    assert ceilings.floor_milliseconds(Work(num_bytes=10**6, operations=0)) == pytest.approx(1)
    assert ceilings.floor_milliseconds(Work(num_bytes=10**6, operations=3 * 10**9)) == pytest.approx(3)


def test_ceilings_are_rates_of_a_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.roofline.SIZES", {"cpu": (1 << 22, 128)})
    found = measure_ceilings(CPU, seconds=0.0)
    assert 1e6 < found.bytes_per_second < 1e15
    assert 1e6 < found.operations_per_second < 1e16
    assert 1e-4 < found.eager_milliseconds < 1e3
