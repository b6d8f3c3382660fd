"""Results over seeds: mean and 95 % confidence interval, and comparisons of two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.stats import t as student

LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """The mean of ``count`` values and half the width of its 95 % confidence interval.

    half = t_{0.975, n-1} · s / √n, with Student's t and the sample standard deviation s; None for a single value.
    """

    mean: float
    half: float | None
    count: int


def summarize(values: Sequence[float]) -> Summary:
    if not values:
        raise ValueError("values: there is nothing to summarize")
    count = len(values)
    if count == 1:
        return Summary(values[0], None, 1)
    quantile = float(student.ppf((1 + LEVEL) / 2, count - 1))
    return Summary(fmean(values), quantile * stdev(values) / sqrt(count), count)


@dataclass(frozen=True)
class Comparison:
    """Two methods over their seeds.

    gain: the mean of b minus the mean of a; positive if ``a`` is smaller.
    half: half the width of its 95 % confidence interval; None if one of the two has a single seed.
    seeds: the number of seeds of the method that has fewer.
    p: two-sided p-value of Welch's t-test; None if one of the two has a single seed.
    """

    gain: float
    half: float | None
    seeds: int
    p: float | None


def compare(a: Sequence[float], b: Sequence[float]) -> Comparison | None:
    r"""Compare two methods, each with one value per seed; None if one of them has no value.

    Seeds are independent samples: two networks draw different initial values from the same seed. Welch's test lets
    the two variances differ. With the variance :math:`v = s^2 / n` of each mean,

    .. math:: T = \frac{\bar b - \bar a}{\sqrt{v_a + v_b}}, \qquad
        \nu = \frac{(v_a + v_b)^2}{v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1)}
    """
    if not a or not b:
        return None
    gain, seeds = fmean(b) - fmean(a), min(len(a), len(b))
    if seeds == 1:
        return Comparison(gain, None, 1, None)
    variances = [stdev(values) ** 2 / len(values) for values in (a, b)]
    total = sum(variances)
    if total == 0:
        # Every seed gives the same value.
        return Comparison(gain, 0.0, seeds, 0.0 if gain else 1.0)
    degrees = total**2 / sum(v**2 / (len(values) - 1) for v, values in zip(variances, (a, b), strict=True))
    half = float(student.ppf((1 + LEVEL) / 2, degrees)) * sqrt(total)
    return Comparison(gain, half, seeds, float(2 * student.sf(abs(gain) / sqrt(total), degrees)))
