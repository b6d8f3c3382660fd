"""Figures over seeds: mean and 95 % interval, and comparisons of two methods on equal seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf, sqrt
from statistics import fmean, stdev

from scipy.stats import t as student

LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """Mean of some values, and half the width of the interval around it that holds the true mean with 95 %.

    half = t_{0.975, n-1} · s / √n, Student's t with the sample's standard deviation s; None for a single value.
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

    gain: mean of the differences b - a over the seeds, so above 0 where ``a`` is the smaller.
    half: half of its 95 % interval, None for a single pair.
    pairs: how many seeds both have.
    wins: with how many of them ``a`` is the smaller.
    t_p: two-sided p of the paired t test; None for a single pair.
    sign_p: two-sided p of the exact sign test, ties left out.
    """

    gain: float
    half: float | None
    pairs: int
    wins: int
    t_p: float | None
    sign_p: float


def compare(a: Mapping[int, float], b: Mapping[int, float]) -> Comparison | None:
    """Values by seed; only seeds that both have count. None where there is no such seed."""
    seeds = sorted(set(a) & set(b))
    if not seeds:
        return None
    gains = [b[seed] - a[seed] for seed in seeds]
    over = summarize(gains)
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return Comparison(over.mean, over.half, len(seeds), wins, paired_t(gains), sign_test(wins, losses))


def paired_t(gains: Sequence[float]) -> float | None:
    """p = P(|T| ≥ |mean| √n / s), T of Student's distribution with n - 1 degrees of freedom."""
    if len(gains) < 2:
        return None
    spread, centre = stdev(gains), fmean(gains)
    statistic = abs(centre) * sqrt(len(gains)) / spread if spread > 0 else (inf if centre else 0.0)
    return float(2 * student.sf(statistic, len(gains) - 1))


def sign_test(wins: int, losses: int) -> float:
    """Exact: how often a fair coin is at least as one-sided as this, p = 2 Σ_{k ≤ min} C(n, k) / 2ⁿ, at most 1."""
    count = wins + losses
    tail = sum(comb(count, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**count)
