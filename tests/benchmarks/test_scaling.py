"""Growth: the fit, and the result at one size from that at another."""

from __future__ import annotations

import pytest
import torch
from benchmarks.checking import reference_results
from benchmarks.scaling import SHEET, Point, _case, expected_at, exponent, growth, measure_scaling, sizes_up_to
from benchmarks.workloads import Problem
from torch.testing import assert_close

from geoskip.operators import operator_info
from tests.benchmarks.tiny import ALL_OPERATORS, CPU, plant


@pytest.mark.parametrize("power", [0.5, 1.0, 1.05, 2.0])
def test_fit_finds_a_power_law(power: float) -> None:
    pairs = [(float(v), 3.0 * v**power) for v in (2**16, 2**18, 2**20, 2**22)]
    assert exponent(pairs) == pytest.approx(power)


def test_fit_is_least_squares() -> None:
    """Errors that cancel leave the slope: +d, -d, -d, +d at even distances."""
    d = 1.1
    pairs = [(2.0, 2 * d), (4.0, 4 / d), (8.0, 8 / d), (16.0, 16 * d)]
    assert exponent(pairs) == pytest.approx(1)
    assert exponent(pairs[:2]) is None


def test_small_sizes_do_not_count() -> None:
    def point(vertices: int, milliseconds: float | None) -> Point:
        return Point("gcn", vertices, 6 * vertices, milliseconds, peak_bytes=2 * vertices)

    points = [point(1 << k, 2.0**k if k >= 16 else 1e6) for k in range(10, 20)]
    found = growth("gcn", [*points, point(1 << 20, None), Point("monet", 1 << 20, 0, 1.0)])
    assert found.time == pytest.approx(1)
    assert found.memory == pytest.approx(1)
    assert growth("monet", points).time is None


@pytest.mark.parametrize("operator", ALL_OPERATORS)
def test_results_of_a_patch_tell_those_of_a_sheet(operator: str) -> None:
    problem = Problem(SHEET, operator, 9 if operator_info(operator).has_kernel_size else 1, skip=True)
    reference = reference_results(_case(problem, 1024, CPU))
    direct = reference_results(_case(problem, 2048, CPU))
    expected = expected_at(2048, reference)
    assert expected.keys() == direct.keys()
    for name, value in expected.items():
        assert_close(direct[name], value, rtol=1e-9, atol=1e-9)


def test_points_are_measured() -> None:
    points = list(measure_scaling("monet", [1024, 2048], CPU, seconds=0.0))
    assert [point.vertices for point in points] == [1024, 2048]
    assert [point.edges for point in points] == [6 * 1024, 6 * 2048]
    for point in points:
        assert point.problem is None
        assert point.milliseconds is not None
        assert point.milliseconds > 0
        assert point.error is not None
        assert point.error < 1e-5
        assert point.repeats


def test_wrong_result_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    (point,) = measure_scaling("monet", [1024], CPU, seconds=0.0)
    assert point.milliseconds is None
    assert point.problem is not None
    assert point.problem.startswith("wrong result: conv.theta is off by")


def test_failure_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError("no memory\nleft")

    monkeypatch.setattr("benchmarks.scaling.check", fail)
    (point,) = measure_scaling("gcn", [1024], CPU, seconds=0.0)
    assert point.problem == "failed: OutOfMemoryError: no memory left"


def test_sizes() -> None:
    assert sizes_up_to(5000) == [1024, 2048, 4096]
    assert len(sizes_up_to(1 << 22)) == 13
    with pytest.raises(ValueError, match="max-vertices: at least 1024, got 1000"):
        sizes_up_to(1000)
