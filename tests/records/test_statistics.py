"""Statistics against their definitions and against scipy."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from geoskip.records.statistics import compare, paired_t, summarize


def test_interval_is_students() -> None:
    values = [1.0, 2.0, 4.0, 7.0]
    over = summarize(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert over.mean == pytest.approx(3.5)
    assert over.half is not None
    assert (over.mean - over.half, over.mean + over.half) == pytest.approx((low, high))


def test_interval_covers_as_often_as_it_says() -> None:
    """Of many samples of three, 95 % of the intervals hold the true mean."""
    rng = np.random.default_rng(0)
    covered = 0
    for sample in rng.normal(5.0, 2.0, (2000, 3)).tolist():
        over = summarize(sample)
        covered += over.half is not None and abs(over.mean - 5.0) <= over.half
    assert covered / 2000 == pytest.approx(0.95, abs=3 * sqrt(0.95 * 0.05 / 2000))


def test_one_value_has_no_interval() -> None:
    assert summarize([3.0]).half is None
    with pytest.raises(ValueError, match="nothing to summarize"):
        summarize([])


def test_paired_t_is_scipys() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 6))
    assert paired_t((b - a).tolist()) == pytest.approx(float(stats.ttest_rel(a, b).pvalue))


def test_paired_t_at_the_edges() -> None:
    assert paired_t([1.0]) is None
    assert paired_t([0.0, 0.0, 0.0]) == 1.0
    assert paired_t([2.0, 2.0, 2.0]) == 0.0, "the same gain with every seed"


def test_comparison_pairs_equal_seeds() -> None:
    found = compare({0: 1.0, 1: 2.0, 5: 9.0}, {0: 1.5, 1: 2.25, 7: 0.0})
    assert found is not None
    assert found.pairs == 2
    assert found.gain == pytest.approx(0.375)
    assert compare({0: 1.0}, {1: 1.0}) is None


def test_comparison_uses_the_pairs() -> None:
    """Seeds that shift both methods alike do not blur the difference."""
    shifts = [0.0, 10.0, -7.0, 3.0]
    paired = compare(dict(enumerate(shifts)), {seed: shift + 0.1 + 0.01 * seed for seed, shift in enumerate(shifts)})
    assert paired is not None
    assert paired.t_p is not None
    assert paired.t_p < 0.01
    assert float(stats.ttest_ind(shifts, [shift + 0.1 for shift in shifts]).pvalue) > 0.9
