"""Pictures: what is where, how bright, in which color; and the files they become."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from geoskip.meshes import Mesh, grid, icosphere
from geoskip.report import pictures
from geoskip.report.pictures import BACKGROUND, View, image_grid, picture, png_bytes, vertex_normals, view_of, write_png

BLANK = np.round(255 * np.array(BACKGROUND)).astype(np.uint8)


def drawn(image: np.ndarray) -> np.ndarray:
    return (image != BLANK).any(axis=2)


@pytest.mark.parametrize("up", ["y", "z"])
@pytest.mark.parametrize(("azimuth", "elevation"), [(0.0, 0.0), (35.0, 20.0), (-120.0, -70.0)])
def test_axes_are_a_right_handed_frame(azimuth: float, elevation: float, up) -> None:
    axes = View((0.0, 0.0, 0.0), 1.0, azimuth, elevation, up).axes()
    assert np.allclose(axes @ axes.T, np.eye(3))
    assert np.isclose(np.linalg.det(axes), 1)


def test_the_front_is_ahead_and_up_is_up() -> None:
    origin = (0.0, 0.0, 0.0)
    y_up, z_up = View(origin, 1.0).axes(), View(origin, 1.0, up="z").axes()
    assert np.allclose(y_up, np.eye(3))
    assert np.allclose(z_up, [[1, 0, 0], [0, 0, 1], [0, -1, 0]])
    assert np.allclose(View(origin, 1.0, azimuth=90.0).axes()[2], [1, 0, 0])
    assert np.allclose(View(origin, 1.0, elevation=90.0).axes()[2], [0, 1, 0])


def test_view_of_shows_everything_within_the_margin() -> None:
    verts = np.random.default_rng(0).normal(size=(50, 3)) * (1, 5, 2) + 7
    screen = view_of(verts, azimuth=30.0, elevation=10.0).on_screen(verts, 112)[:, :2]
    assert np.isclose(np.ptp(screen, axis=0).max(), 100)
    assert np.allclose((screen.min(axis=0) + screen.max(axis=0)) / 2, 56)


def test_one_point_is_a_view_too() -> None:
    assert view_of(np.ones((1, 3))).extent == 1.0


def test_a_sphere_is_a_disc_lit_from_above_left() -> None:
    image = picture(icosphere(3), size=128)
    radius = 128 / 2 / 1.12
    assert np.isclose(drawn(image).sum(), np.pi * radius**2, rtol=0.03)
    brightness = image.astype(float).mean(axis=2)
    assert brightness[40, 40] > brightness[64, 64] > brightness[96, 96]


def test_row_and_column_follow_up_and_right() -> None:
    """A small square up and to the right of the center, seen from the front."""
    mesh = grid(2, 2)
    inside = drawn(picture(mesh, View((0.0, 0.0, 0.0), 4.0), size=40))
    expected = np.zeros((40, 40), dtype=bool)
    expected[10:20, 20:30] = True
    assert (inside == expected).all()


def test_colors_are_interpolated() -> None:
    mesh = grid(2, 2)
    colors = np.array([[1.0, 0, 0], [0, 0, 1], [1.0, 0, 0], [0, 0, 1]])
    red, _, blue = picture(mesh, colors=colors, size=40)[20, [4, 20, 35]].astype(int).T
    assert red[0] > red[1] > red[2]
    assert blue[0] < blue[1] < blue[2]
    assert np.isclose(red[1], blue[1], rtol=0.1)


def test_edges_darken_and_faces_from_behind_are_dark() -> None:
    mesh = grid(2, 2)
    plain, edged = (picture(mesh, size=60, edges=edges).astype(int) for edges in (False, True))
    assert edged[29, 30].sum() < plain[29, 30].sum() - 60
    assert (edged[20, 18] == plain[20, 18]).all()
    behind = picture(Mesh(mesh.verts, mesh.faces[:, ::-1]), size=60)
    assert behind[20, 18].sum() < 0.8 * plain[20, 18].sum()


def test_more_samples_smooth_the_outline(monkeypatch: pytest.MonkeyPatch) -> None:
    shades = []
    for samples in (1, 3):
        monkeypatch.setattr(pictures, "SAMPLES", samples)
        shades.append(len(np.unique(picture(icosphere(2), size=48)[:, :, 0])))
    assert shades[1] > shades[0]


def test_vertex_normals_of_a_sphere_point_outwards_and_lone_vertices_have_none() -> None:
    sphere = icosphere(3)
    assert ((vertex_normals(sphere) * sphere.verts).sum(axis=1) > 0.999).all()
    lone = Mesh(np.concatenate([sphere.verts, np.zeros((1, 3))]), sphere.faces)
    assert (vertex_normals(lone)[-1] == 0).all()


def test_a_mesh_without_faces_is_an_empty_picture() -> None:
    cloud = Mesh(np.eye(3), np.zeros((0, 3), dtype=np.int64))
    assert not drawn(picture(cloud, size=16)).any()


def test_an_image_grid_fills_up_with_blanks() -> None:
    images = [np.full((2, 3, 3), shade, dtype=np.uint8) for shade in (10, 20, 30)]
    whole = image_grid(images, columns=2)
    assert whole.shape == (4, 6, 3)
    assert (whole[:2, 3:] == 20).all()
    assert (whole[2:, :3] == 30).all()
    assert (whole[2:, 3:] == BLANK).all()


def test_png_comes_back_as_written(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 11, 3), dtype=np.uint8)
    write_png(tmp_path / "noise.png", image)
    assert (np.round(255 * imread(tmp_path / "noise.png")) == image).all()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 2), (0, 4, 3)])
def test_png_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="uint8 of shape"):
        png_bytes(np.zeros(shape, dtype=np.uint8))


@pytest.mark.usefixtures("unchecked")
def test_pictures_refuse_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="no vertices"):
        picture(Mesh(np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64)))
    with pytest.raises(ValueError, match=r"colors must be of shape \(4, 3\)"):
        picture(grid(2, 2), colors=np.zeros((3, 3)))
    with pytest.raises(ValueError, match="at least 1"):
        picture(grid(2, 2), size=0)
    with pytest.raises(ValueError, match="at least one picture"):
        image_grid([], columns=3)
