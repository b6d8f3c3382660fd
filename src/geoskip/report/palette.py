"""The colors of the page, figures and docs, chosen so that color-blind readers can tell them apart.

The color maps of errors change in lightness monotonically, so that they also work in grayscale: ``ember`` goes from
pale clay (no error) to deep violet; ``viridis`` and ``cividis`` are matplotlib's. Lines show the skip by color, and the
operator by dash and marker.
"""

from __future__ import annotations

import numpy as np

from geoskip.shapes import Float

# Colors of the skips on a light and on a dark background, after Okabe and Ito (2008).
SERIES = {
    "none": ("#6b7280", "#a3abb8"),
    "residual": ("#0072b2", "#56b4e9"),
    "affine": ("#c44e00", "#ff9a4d"),
    "polynomial": ("#007a5a", "#2fc79a"),
    "other": ("#a8478a", "#e08fc4"),
}
CLAY = (0.80, 0.73, 0.68)
# Vertices without a label, whose error is unknown: a color that no map contains.
UNKNOWN = np.array((0.58, 0.68, 0.82))
# Nine colors of matplotlib's viridis and cividis (CC0).
TABLES = {
    "viridis": (
        (0.267, 0.005, 0.329), (0.279, 0.175, 0.483), (0.230, 0.322, 0.546), (0.173, 0.449, 0.558),
        (0.128, 0.567, 0.551), (0.158, 0.684, 0.502), (0.369, 0.789, 0.383), (0.678, 0.864, 0.190),
        (0.993, 0.906, 0.144),
    ),
    "cividis": (
        (0.000, 0.135, 0.305), (0.118, 0.211, 0.432), (0.255, 0.300, 0.421), (0.364, 0.389, 0.435),
        (0.480, 0.485, 0.470), (0.605, 0.586, 0.449), (0.734, 0.692, 0.401), (0.865, 0.805, 0.318),
        (0.996, 0.909, 0.218),
    ),
}  # fmt: skip
MAPS = ("ember", *TABLES)
# Lightness, chroma and hue (degrees) in OKLCh of four points of ember.
_EMBER = ((0.80, 0.028, 60.0), (0.72, 0.13, 58.0), (0.52, 0.19, 22.0), (0.27, 0.12, -48.0))
_EMBER_NODES = (0.0, 0.25, 0.6, 1.0)


def color_map(name: str, count: int = 256) -> Float[np.ndarray, "count 3"]:
    """``count`` colors from the smallest value to the largest, as sRGB in [0, 1]."""
    if name not in MAPS:
        raise ValueError(f"color map: unknown name {name!r}; choose from {', '.join(MAPS)}")
    table = np.array(TABLES.get(name, _EMBER))
    nodes = np.linspace(0, 1, len(table)) if name in TABLES else _EMBER_NODES
    colors = np.stack([np.interp(np.linspace(0, 1, count), nodes, channel) for channel in table.T], axis=1)
    return colors if name in TABLES else np.clip(srgb(colors), 0, 1)


def colored(
    values: Float[np.ndarray, " vertices"], high: float, name: str = "ember"
) -> Float[np.ndarray, "vertices 3"]:
    """Colors of values from 0 to ``high``, clipped beyond; NaN (unknown) is blue-gray."""
    table, known = color_map(name), ~np.isnan(values)
    colors = np.tile(UNKNOWN, (len(values), 1))
    colors[known] = table[np.round(np.clip(values[known] / high, 0, 1) * (len(table) - 1)).astype(np.int64)]
    return colors


def position_colors(verts: Float[np.ndarray, "vertices 3"]) -> Float[np.ndarray, "vertices 3"]:
    """A color for each vertex of a mesh, for a correspondence to transfer.

    Lightness follows the height (y), hue the direction from the center, so that neighbors look alike, whereas left and
    right, front and back do not.
    """
    low, high = verts.min(axis=0), verts.max(axis=0)
    unit = (verts - (low + high) / 2) / np.maximum((high - low) / 2, 1e-12)
    lightness = 0.62 + 0.22 * unit[:, 1]
    lab = np.stack([lightness, 0.13 * unit[:, 0], 0.10 * unit[:, 2] + 0.06 * unit[:, 1]], axis=1)
    return np.clip(srgb_of_lab(lab), 0, 1)


def srgb(lch: Float[np.ndarray, "colors 3"]) -> Float[np.ndarray, "colors 3"]:
    """sRGB of OKLCh (lightness, chroma, hue in degrees)."""
    hue = np.radians(lch[:, 2])
    return srgb_of_lab(np.stack([lch[:, 0], lch[:, 1] * np.cos(hue), lch[:, 1] * np.sin(hue)], axis=1))


def srgb_of_lab(lab: Float[np.ndarray, "colors 3"]) -> Float[np.ndarray, "colors 3"]:
    """sRGB of OKLab (Björn Ottosson, "A perceptual color space for image processing", 2020)."""
    to_lms = np.array(
        [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip((lab @ to_lms.T) ** 3 @ to_rgb.T, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def css() -> str:
    """The colors as CSS custom properties, for light and dark themes. Paper is light."""
    light = "".join(f"--{name}:{pair[0]};" for name, pair in SERIES.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in SERIES.items())
    clay, unknown = ("#" + "".join(f"{round(255 * channel):02x}" for channel in color) for color in (CLAY, UNKNOWN))
    return (
        f":root{{{light}--clay:{clay};--unknown:{unknown}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )
