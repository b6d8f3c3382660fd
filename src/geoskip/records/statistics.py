"""Results over seeds: mean and 95 % confidence interval, and paired comparisons of two methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
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
    """Two methods on the same seeds.

    gain: the mean of b - a over the seeds; positive if ``a`` is smaller.
    half: half the width of its 95 % confidence interval; None for a single pair.
    pairs: the number of seeds that both have.
    t_p: two-sided p-value of the paired t-test; None for a single pair.
    """

    gain: float
    half: float | None
    pairs: int
    t_p: float | None


def compare(a: Mapping[int, float], b: Mapping[int, float]) -> Comparison | None:
    """Compare values by seed. Only seeds that both have count; None if there are none."""
    seeds = sorted(set(a) & set(b))
    if not seeds:
        return None
    gains = [b[seed] - a[seed] for seed in seeds]
    summary = summarize(gains)
    return Comparison(summary.mean, summary.half, len(seeds), paired_t(gains))


def paired_t(gains: Sequence[float]) -> float | None:
    """p = P(|T| ≥ |mean| √n / s), where T has Student's distribution with n - 1 degrees of freedom."""
    if len(gains) < 2:
        return None
    spread, mean = stdev(gains), fmean(gains)
    statistic = abs(mean) * sqrt(len(gains)) / spread if spread > 0 else (inf if mean else 0.0)
    return float(2 * student.sf(statistic, len(gains) - 1))
