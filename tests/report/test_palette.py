from itertools import combinations

import numpy as np
import pytest

from geoskip.report.palette import MAPS, SERIES, UNKNOWN, color_map, colored, css, position_colors, srgb

# Machado, Oliveira and Fernandes (2009), severity 1, on linear sRGB: protanopia, deuteranopia, tritanopia.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colors: np.ndarray) -> np.ndarray:
    return np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)


def seen(colors: np.ndarray, blindness: str) -> np.ndarray:
    """Lab (D65) of colors as they are seen."""
    rgb = np.clip(linear(colors) @ BLINDNESS[blindness].T, 0, 1)
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    xyz = rgb @ to_xyz.T / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("name", MAPS)
def test_lightness_goes_one_way_for_every_eye(name: str, blindness: str) -> None:
    lightness = seen(color_map(name, 33), blindness)[:, 0]
    steps = np.diff(lightness)
    assert (steps > 0).all() or (steps < 0).all()
    assert abs(lightness[-1] - lightness[0]) > 40


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("ground", [0, 1], ids=["light", "dark"])
def test_plain_residual_and_affine_are_told_apart(ground: int, blindness: str) -> None:
    hexes = [SERIES[skip][ground] for skip in ("none", "residual", "affine")]
    colors = np.array([[int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)] for text in hexes])
    lab = seen(colors, blindness)
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > 15


def test_colors_saturate() -> None:
    table = color_map("ember")
    found = colored(np.array([0.0, 5.0, 50.0]), 5.0)
    assert (found == table[[0, -1, -1]]).all()


def test_oklch_of_white_black_and_grey() -> None:
    gray = srgb(np.array([[1.0, 0, 0], [0.0, 0, 0], [0.6, 0, 0]]))
    assert gray[0] == pytest.approx(1, abs=1e-6)
    assert gray[1] == pytest.approx(0, abs=1e-9)
    assert np.ptp(gray[2]) < 1e-6
    assert linear(gray)[2] == pytest.approx(0.6**3, abs=1e-6)


def test_places_have_colors_of_their_own() -> None:
    corners = np.array(np.meshgrid([-1.0, 1], [-1.0, 1], [-1.0, 1])).reshape(3, -1).T
    lab = seen(position_colors(corners), "none")
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > 8
    assert position_colors(np.zeros((1, 3))).shape == (1, 3)


def test_an_unknown_map() -> None:
    with pytest.raises(ValueError, match="unknown name 'rainbow'; choose from ember"):
        color_map("rainbow")


def test_both_grounds_are_in_the_style() -> None:
    for light, dark in SERIES.values():
        assert light in css()
        assert css().count(dark) == 2


@pytest.mark.parametrize("name", MAPS)
def test_unknown_values_have_a_color_of_their_own(name: str) -> None:
    values = np.array([0.0, np.nan, 5.0, np.nan, 20.0])
    colors = colored(values, 10.0, name)
    assert (colors[[1, 3]] == UNKNOWN).all()
    assert (colors[[0, 2, 4]] == colored(values[[0, 2, 4]], 10.0, name)).all()
    for blindness in BLINDNESS:
        apart = np.linalg.norm(seen(color_map(name), blindness) - seen(UNKNOWN[None], blindness), axis=1)
        assert apart.min() > 10, blindness
