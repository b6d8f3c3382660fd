"""The picture of a hierarchy's levels."""

import numpy as np

from geoskip.meshes import grid, icosphere, mesh_hierarchy
from geoskip.report.picture_grids import level_grid
from geoskip.report.pictures import AZIMUTH, ELEVATION, picture, view_of


def test_levels_above_and_what_they_rebuild_below() -> None:
    """The first column shows the template itself twice; what a flat mesh loses is nothing."""
    meshes = mesh_hierarchy(grid(9, 9), factors=(4, 4))
    shown = level_grid(meshes, size=40)
    assert shown.shape == (80, 120, 3)
    view = view_of(meshes.levels[0].verts, AZIMUTH, ELEVATION)
    np.testing.assert_array_equal(shown[:40, 40:80], picture(meshes.levels[1], view, size=40, edges=True))
    np.testing.assert_array_equal(shown[40:, :40], picture(meshes.levels[0], view, size=40))
    np.testing.assert_array_equal(shown[40:, 80:], shown[40:, :40])


def test_what_a_coarse_level_has_lost_shows() -> None:
    shown = level_grid(mesh_hierarchy(icosphere(2), factors=(8,)), size=40)
    assert (shown[40:, :40] != shown[40:, 40:]).any()


def test_the_axis_that_points_up_does() -> None:
    """A wall from the front; with z up it lies flat, and one looks along it."""
    wall = mesh_hierarchy(grid(5, 5), factors=())
    shown = [level_grid(wall, 40, "y")[40:], level_grid(wall, 40, "z")[40:]]
    upright, lying = ((picture != picture[0, 0]).any(axis=2).sum() for picture in shown)
    assert upright > 5 * lying
