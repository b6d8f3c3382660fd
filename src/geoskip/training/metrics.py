"""How good a model is: pure functions of what it predicted and what is true."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geoskip.shapes import Float, Int

# Errors, in percent of the diameter, at which the cumulative curve is sampled: the paper's figure ends at 10.
THRESHOLDS = tuple(step / 10 for step in range(101))


def reconstruction_errors(
    predicted: Float[Tensor, "items vertices 3"], true: Float[Tensor, "items vertices 3"], unit_mm: float
) -> Float[Tensor, "items vertices"]:
    """The Euclidean distance of each vertex from where it should be, in millimeters."""
    return (predicted - true).norm(dim=-1) * unit_mm


def reconstruction_metrics(errors: Float[Tensor, "items vertices"]) -> dict[str, float]:
    """Mean, standard deviation and median over all vertices of all items, in float64.

    The standard deviation is that of the errors themselves (divided by their number); the median of an even number
    of errors is the mean of the two in the middle.
    """
    if errors.numel() == 0:
        raise ValueError("errors: there are none; the test set is empty")
    flat = errors.flatten().double()
    ordered = flat.sort().values
    middle = (ordered[(len(flat) - 1) // 2] + ordered[len(flat) // 2]) / 2
    return {"mean_mm": float(flat.mean()), "std_mm": float(flat.std(correction=0)), "median_mm": float(middle)}


def geodesic_errors(
    predicted: Int[Tensor, " vertices"], labels: Int[Tensor, " vertices"], distances: Float[Tensor, "targets targets"]
) -> Float[Tensor, " labelled"]:
    r"""Errors of the Princeton protocol (Kim, Lipman, Funkhouser 2011), in percent:
    :math:`100\, d(t_v, p_v) / \max_{ij} d(i, j)` for each vertex v with a true target :math:`t_v` (a label of -1 says
    that there is none) and a predicted one :math:`p_v`.

    One difference from that paper: distances are divided by the geodesic diameter of the target, as the authors of
    ours do, not by the root of its area. A prediction on another component of the target, at an infinite distance,
    counts as 100 %.
    """
    finite, known = distances[distances.isfinite()], labels >= 0
    diameter = float(finite.max()) if finite.numel() else 0.0
    if diameter <= 0:
        raise ValueError("distances: the target has no extent, so there is no diameter to compare errors with")
    return 100.0 / diameter * distances[labels[known], predicted[known]].clamp(max=diameter)


def geodesic_curve(
    errors: Float[Tensor, " labelled"], thresholds: Sequence[float] = THRESHOLDS
) -> list[tuple[float, float]]:
    """Points (error in % of the diameter, % of vertices with at most that error): the cumulative curve."""
    if errors.numel() == 0:
        raise ValueError("errors: there are none; no vertex of the test set has a label")
    ordered = errors.flatten().double().sort().values
    below = torch.searchsorted(ordered, torch.tensor(thresholds, dtype=torch.float64, device=errors.device), right=True)
    shares = 100.0 * below.double() / len(ordered)
    return list(zip(map(float, thresholds), shares.tolist(), strict=True))


def correspondence_metrics(
    predicted: Int[Tensor, " vertices"], labels: Int[Tensor, " vertices"], errors: Float[Tensor, " labelled"]
) -> dict[str, float]:
    """The percentage of labelled vertices matched exactly, and the mean error in percent of the diameter."""
    known = labels >= 0
    if not bool(known.any()):
        raise ValueError("labels: no vertex of the test set has one")
    exact = (predicted[known] == labels[known]).double().mean()
    return {"accuracy_pct": 100.0 * float(exact), "geodesic_mean_pct": float(errors.double().mean())}


def confusion(
    predicted: Int[Tensor, " items"], labels: Int[Tensor, " items"], classes: int
) -> Int[Tensor, "classes classes"]:
    """Row t, column p: how many items of class t were taken for class p."""
    return torch.bincount(labels.long() * classes + predicted.long(), minlength=classes**2).reshape(classes, classes)


def classification_metrics(counts: Int[Tensor, "classes classes"]) -> dict[str, float]:
    """The percentage on the diagonal of a confusion matrix."""
    total = int(counts.sum())
    if total == 0:
        raise ValueError("confusion: no item was classified; the test set is empty")
    return {"accuracy_pct": 100.0 * int(counts.diagonal().sum()) / total}
