"""The comparison in small."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geoskip.experiments.demo import deformed, demo_runs, fit
from geoskip.meshes import icosphere
from tests.models.small import autoencoder


def test_shapes_repeat_and_differ() -> None:
    sphere = icosphere(1)
    shapes = deformed(sphere, 5, seed=0)
    assert np.array_equal(shapes, deformed(sphere, 5, seed=0))
    assert not np.allclose(shapes, deformed(sphere, 5, seed=1))
    assert not np.allclose(shapes[0], shapes[1])


def test_twist_leaves_its_axis_alone() -> None:
    sphere = icosphere(1)
    poles = np.abs(sphere.verts[:, :2]).max(axis=1) < 1e-12
    assert poles.sum() == 2
    shapes = deformed(sphere, 20, seed=0)
    assert np.abs(shapes[:, poles, :2]).max() < 1e-12
    assert np.abs(np.abs(shapes[:, poles, 2]) - 1).min() > 0, "stretched or swollen"


def test_training_helps() -> None:
    shapes = torch.from_numpy(deformed(icosphere(1), 48, seed=0)).float()
    early, late = (fit(autoencoder(operator="gcn", skip="affine"), shapes[:32], shapes[32:], n) for n in (1, 60))
    assert late < 0.6 * early


def test_runs_repeat() -> None:
    first, second = ([next(demo_runs(seeds=1, epochs=1))] for _ in range(2))
    assert first[0].error == second[0].error
    assert first[0].params == second[0].params > 0


@pytest.mark.parametrize(("seeds", "epochs", "named"), [(0, 1, "seeds"), (1, 0, "epochs")])
def test_at_least_one(seeds: int, epochs: int, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named}: need at least 1, got 0"):
        next(demo_runs(seeds, epochs))
