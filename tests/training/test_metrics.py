"""Metrics against their definitions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from geoskip.data import geodesics
from geoskip.meshes import icosphere
from geoskip.training.metrics import (
    classification_metrics,
    confusion,
    correspondence_metrics,
    geodesic_curve,
    geodesic_errors,
    reconstruction_errors,
    reconstruction_metrics,
)


def test_errors_are_euclidean_and_in_millimetres() -> None:
    true = torch.zeros(1, 3, 3)
    found = torch.tensor([[[3.0, 4.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    assert reconstruction_errors(found, true, 1000.0).tolist() == [[5000.0, 1000.0, 0.0]]


@pytest.mark.parametrize("count", [7, 8])
def test_mean_deviation_and_median(count: int) -> None:
    errors = torch.rand(3, count, generator=torch.Generator().manual_seed(0))
    expected = errors.double().numpy()
    found = reconstruction_metrics(errors)
    assert found["mean_mm"] == pytest.approx(expected.mean())
    assert found["std_mm"] == pytest.approx(expected.std())
    assert found["median_mm"] == pytest.approx(np.median(expected))
    with pytest.raises(ValueError, match="test set is empty"):
        reconstruction_metrics(torch.zeros(0, 5))


def test_means_of_many_errors_do_not_drift() -> None:
    """In float32 the sum of 20 million equal numbers stops growing."""
    errors = torch.full((2000, 1000), 0.1)
    assert reconstruction_metrics(errors)["mean_mm"] == pytest.approx(float(errors[0, 0]), rel=1e-12)
    assert reconstruction_metrics(errors)["std_mm"] == pytest.approx(0, abs=1e-12)


def test_geodesic_errors_on_a_path() -> None:
    """Three vertices in a row, of which the ends are the diameter apart."""
    distances = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 3.0], [4.0, 3.0, 0.0]])
    predicted, labels = torch.tensor([0, 2, 1, 0]), torch.tensor([0, 0, 2, -1])
    errors = geodesic_errors(predicted, labels, distances)
    assert errors.tolist() == [0.0, 100.0, 75.0]
    assert correspondence_metrics(predicted, labels, errors) == {
        "accuracy_pct": pytest.approx(100 / 3),
        "geodesic_mean_pct": pytest.approx(175 / 3),
    }
    curve = dict(geodesic_curve(errors, (0.0, 74.0, 75.0, 100.0)))
    assert curve == {
        0.0: pytest.approx(100 / 3),
        74.0: pytest.approx(100 / 3),
        75.0: pytest.approx(200 / 3),
        100.0: 100.0,
    }


def test_another_component_is_as_far_as_can_be() -> None:
    distances = torch.tensor([[0.0, 2.0, math.inf], [2.0, 0.0, math.inf], [math.inf, math.inf, 0.0]])
    assert geodesic_errors(torch.tensor([2]), torch.tensor([0]), distances).tolist() == [100.0]


def test_the_scale_of_a_mesh_does_not_matter(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    sphere = icosphere(1)
    predicted, labels = (torch.randint(42, (42,), generator=random) for _ in range(2))
    small, large = (
        torch.from_numpy(geodesics(sphere.with_verts(size * sphere.verts), cache=tmp_path)) for size in (1.0, 1000.0)
    )
    one, other = (geodesic_errors(predicted, labels, distances) for distances in (small, large))
    assert torch.allclose(one, other, rtol=1e-4)
    antipode = int(torch.tensor(sphere.verts[0] @ sphere.verts.T).argmin())
    (half,) = geodesic_errors(torch.tensor([antipode]), torch.tensor([0]), small).tolist()
    assert half > 85, "antipodes of the sphere are about its diameter apart"


def test_the_curve_rises_from_the_accuracy_to_all() -> None:
    errors = torch.tensor([0.0, 0.0, 3.0, 8.0])
    curve = geodesic_curve(errors)
    assert curve[0] == (0.0, 50.0)
    assert curve[-1] == (10.0, 100.0)
    assert [share for _, share in curve] == sorted(share for _, share in curve)


def test_confusion_and_accuracy() -> None:
    predicted, labels = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1])
    counts = confusion(predicted, labels, 4)
    assert counts.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert classification_metrics(counts) == {"accuracy_pct": 60.0}


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="test set is empty"):
        classification_metrics(torch.zeros(2, 2).long())
    with pytest.raises(ValueError, match="no vertex of the test set has a label"):
        geodesic_curve(torch.zeros(0))
    with pytest.raises(ValueError, match="no vertex of the test set has one"):
        correspondence_metrics(torch.zeros(1).long(), torch.tensor([-1]), torch.zeros(0))
    with pytest.raises(ValueError, match="no extent"):
        geodesic_errors(torch.zeros(1).long(), torch.zeros(1).long(), torch.zeros(1, 1))
