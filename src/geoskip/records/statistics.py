"""Results over seeds: mean and 95 % confidence interval, and paired comparisons of two methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf, sqrt
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
    wins: the number of seeds for which ``a`` is smaller.
    t_p: two-sided p-value of the paired t-test; None for a single pair.
    sign_p: two-sided p-value of the exact sign test, without ties.
    """

    gain: float
    half: float | None
    pairs: int
    wins: int
    t_p: float | None
    sign_p: float


def compare(a: Mapping[int, float], b: Mapping[int, float]) -> Comparison | None:
    """Compare values by seed. Only seeds that both have count; None if there are none."""
    seeds = sorted(set(a) & set(b))
    if not seeds:
        return None
    gains = [b[seed] - a[seed] for seed in seeds]
    summary = summarize(gains)
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return Comparison(summary.mean, summary.half, len(seeds), wins, paired_t(gains), sign_test(wins, losses))


def paired_t(gains: Sequence[float]) -> float | None:
    """p = P(|T| ≥ |mean| √n / s), where T has Student's distribution with n - 1 degrees of freedom."""
    if len(gains) < 2:
        return None
    spread, mean = stdev(gains), fmean(gains)
    statistic = abs(mean) * sqrt(len(gains)) / spread if spread > 0 else (inf if mean else 0.0)
    return float(2 * student.sf(statistic, len(gains) - 1))


def sign_test(wins: int, losses: int) -> float:
    """Exact p-value: how often fair coins are at least as one-sided, p = min(1, 2 Σ_{k ≤ min} C(n, k) / 2ⁿ)."""
    count = wins + losses
    tail = sum(comb(count, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**count)
