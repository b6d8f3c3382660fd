"""Statistics against their definitions and against scipy."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from geoskip.records.statistics import compare, summarize


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


def test_comparison_is_scipys_welch_test() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.0, 1.0, 3).tolist(), rng.normal(0.5, 4.0, 5).tolist()
    found, expected = compare(a, b), stats.ttest_ind(b, a, equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert found is not None
    assert found.half is not None
    assert found.seeds == 3
    assert found.p == pytest.approx(float(expected.pvalue))
    assert (found.gain - found.half, found.gain + found.half) == pytest.approx((low, high))


def test_comparison_at_the_edges() -> None:
    assert compare([], [1.0]) is None
    one = compare([1.0, 2.0], [4.0])
    assert one is not None
    assert (one.gain, one.half, one.seeds, one.p) == (2.5, None, 1, None)
    for gain, p in ((0.0, 1.0), (2.0, 0.0)):
        always = compare([1.0] * 3, [1.0 + gain] * 3)
        assert always is not None
        assert (always.gain, always.half, always.p) == (gain, 0.0, p)


def test_comparison_is_rarely_significant_by_chance() -> None:
    """Two samples of three with different spreads and equal means: p < 0.05 in at most 5 % of the cases."""
    rng = np.random.default_rng(0)
    pairs = zip(rng.normal(0.0, 1.0, (2000, 3)).tolist(), rng.normal(0.0, 3.0, (2000, 3)).tolist(), strict=True)
    wrong = sum((found := compare(a, b)) is not None and found.p is not None and found.p < 0.05 for a, b in pairs)
    assert 0.02 < wrong / 2000 < 0.05 + 3 * sqrt(0.95 * 0.05 / 2000)
