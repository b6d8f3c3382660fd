"""What a run keeps for the report to show."""

from __future__ import annotations

import numpy as np
import pytest

from geoskip.training.tasks import make_task
from geoskip.training.tasks.base import spread_evenly, spread_widely
from geoskip.training.tasks.reconstruction import Reconstruction
from tests.training.sets import config, meshes


def test_samples_of_an_autoencoder_have_the_levels_of_its_hierarchy() -> None:
    """Each vertex of a level is one of the finest mesh: at its place."""
    task = make_task(config(skip="affine"), data=meshes())
    assert isinstance(task, Reconstruction)
    samples = task.samples(task.make_model(), 2)
    template, *coarser = task.template.meshes.levels
    assert len(samples.levels) == len(coarser) == 2
    for level, mesh in zip(samples.levels, coarser, strict=True):
        np.testing.assert_array_equal(template.verts[level.kept], mesh.verts)
        np.testing.assert_array_equal(level.faces, mesh.faces)


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [
        (10, 4, [0, 2, 5, 7]),
        (3, 3, [0, 1, 2]),
        (3, 9, [0, 1, 2]),
        (3, None, [0, 1, 2]),
        (5, 1, [0]),
        (0, 4, []),
        (4, 0, []),
    ],
)
def test_items_are_chosen_as_far_apart_as_can_be(total: int, count: int | None, expected: list[int]) -> None:
    assert spread_evenly(total, count).tolist() == expected


def test_samples_are_of_different_people_and_expressions() -> None:
    """Twelve people with twelve expressions of ten frames each, in this order, as in the generated faces."""
    items = spread_widely(12 * 12 * 10, 4)
    assert len(set((items // 120).tolist())) == 4
    assert len(set((items // 10 % 12).tolist())) == 4
    assert len(set((spread_evenly(12 * 12 * 10, 4) // 10 % 12).tolist())) == 1


@pytest.mark.parametrize("total", range(9))
@pytest.mark.parametrize("count", range(9))
def test_as_many_samples_as_asked_for_or_as_there_are(total: int, count: int) -> None:
    items = spread_widely(total, count).tolist()
    assert len(items) == min(total, count)
    assert items == sorted(set(items) & set(range(total)))
