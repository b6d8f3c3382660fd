"""Make the pictures of rbf.md and analogy.md: ``python docs/make_rbf_images.py [FOLDER]``."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geoskip.blocks.analogy import interpolant_block, interpolant_graph
from geoskip.meshes import Mesh, icosphere
from geoskip.rbf import RBFInterpolant, Warp, fit_rbf, thin_plate_spline, warp, warp_mesh
from geoskip.report.palette import CLAY, SERIES
from geoskip.report.pictures import picture, sheet, view_of, write_png

IMAGES = Path(__file__).parent / "images"
# As in the report: gray without an affine part, orange for an affine part.
PLAIN, AFFINE, SUM, OTHER = (SERIES[name][0] for name in ("none", "affine", "polynomial", "other"))
KNOTS = torch.tensor([0.02, 0.12, 0.2, 0.34, 0.42, 0.55, 0.62, 0.78, 0.86, 0.98], dtype=torch.float64)[:, None]
LANDMARKS = torch.tensor([[0.1, 0.15], [0.9, 0.1], [0.85, 0.9], [0.15, 0.8], [0.5, 0.45]], dtype=torch.float64)


def plain(draw: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """Draw with matplotlib's default settings, regardless of what other code in the process has set."""

    @wraps(draw)
    def drawn() -> np.ndarray:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            return draw()

    return drawn


@plain
def flat_function() -> np.ndarray:
    """A line through ten values, and a rotated grid, each with and without the polynomial part."""
    figure, (line, with_affine, without) = plt.subplots(1, 3, figsize=(10, 3.3), width_ratios=(1.5, 1, 1), dpi=80)
    draw_line(line)
    turn = torch.tensor([[0.8, 0.45], [-0.45, 0.8]], dtype=torch.float64)
    for axes, affine in ((with_affine, True), (without, False)):
        draw_grid(axes, warp(LANDMARKS, LANDMARKS @ turn, affine=affine), AFFINE if affine else PLAIN)
        axes.set_title("thin plate, with A, b" if affine else "without", fontsize=10)
    return _pixels(figure)


@plain
def spline_block() -> np.ndarray:
    """Splines computed by their blocks: the convolution, the skip, and the sum."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.3), sharey=True, dpi=80)
    line = 0.4 + 1.2 * KNOTS
    for axes, title, values in (
        (panels[0], "values on a wave", line + 0.35 * torch.sin(9 * KNOTS)),
        (panels[1], "values on a line", line),
    ):
        draw_block(axes, thin_plate_spline(KNOTS, values))
        axes.plot(KNOTS[:, 0], values[:, 0], "ko", markersize=4)
        axes.set_title(title, fontsize=10)
    panels[1].legend(frameon=False, fontsize=9, loc="upper left")
    return _pixels(figure)


def draw_block(axes: Axes, spline: RBFInterpolant) -> None:
    x = torch.linspace(-0.15, 1.15, 300, dtype=torch.float64)[:, None]
    block, (features, edges) = interpolant_block(spline), interpolant_graph(spline, x)
    with torch.no_grad():
        parts = block.convolution(features, edges), block.affine(features), block(features, edges)
    looks = ("convolution", PLAIN, "--"), ("skip", AFFINE, "-."), ("block: their sum", SUM, "-")
    for part, (label, color, style) in zip(parts, looks, strict=True):
        axes.plot(x[:, 0], part[:300, 0], style, color=color, label=label)


def _pixels(figure: Figure) -> np.ndarray:
    figure.tight_layout()
    figure.canvas.draw()
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    drawn = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    plt.close(figure)
    return drawn


def draw_line(axes: Axes) -> None:
    values = 1 + 0.5 * KNOTS
    x = torch.linspace(-0.4, 1.4, 400, dtype=torch.float64)[:, None]
    curves: list[tuple[str, str, str, RBFInterpolant]] = [
        ("Gaussians alone", OTHER, "--", fit_rbf(KNOTS, values, "gaussian", degree=-1, epsilon=16.0)),
        ("r³ alone", PLAIN, "-.", thin_plate_spline(KNOTS, values, affine=False)),
        ("r³ with its affine part", AFFINE, "-", thin_plate_spline(KNOTS, values)),
    ]
    for label, color, style, fitted in curves:
        axes.plot(x[:, 0], fitted(x)[:, 0], style, color=color, label=label)
    axes.plot(KNOTS[:, 0], values[:, 0], "ko", markersize=4)
    axes.set_ylim(-0.1, 2.6)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_title("values of 1 + x/2", fontsize=10)


def draw_grid(axes: Axes, moves: Warp, color: str) -> None:
    steps = torch.linspace(-0.2, 1.2, 15, dtype=torch.float64)
    grid = moves(torch.stack(torch.meshgrid(steps, steps, indexing="ij"), dim=-1))
    for lines in (grid, grid.transpose(0, 1)):
        for row in lines:
            axes.plot(row[:, 0], row[:, 1], color=color, linewidth=0.8)
    axes.plot(*moves(LANDMARKS).T, "ko", markersize=4)
    # The extent of the exact map; the other one is cut off where it leaves it.
    axes.set(xlim=(-0.85, 1.25), ylim=(-0.35, 1.6), aspect="equal")
    axes.set_axis_off()


def warped_ball() -> np.ndarray:
    """A ball with six landmarks: warped with the affine part, without it, and locally by one landmark."""
    ball = icosphere(4)
    numbers = np.array([0, 11, 1, 3, 7, 9])
    landmarks = ball.verts[numbers]
    goals = landmarks * np.array([1.25, 0.85, 1.25])
    goals[0] += np.array([0.15, 0.0, 0.35])
    pulled = landmarks[:1] + np.array([[0.1, 0.0, 0.6]])
    shown = [
        ball,
        warp_mesh(ball, landmarks, goals),
        warp_mesh(ball, landmarks, goals, affine=False),
        warp_mesh(ball, landmarks[:1], pulled, "wendland_c2", affine=False, epsilon=1 / 0.8),
    ]
    view = view_of(np.concatenate([mesh.verts for mesh in shown]), 25.0, 20.0, up="z")
    marks = [numbers, numbers, numbers, numbers[:1]]
    return sheet([picture(mesh, view, _dots(ball, of), size=210) for mesh, of in zip(shown, marks, strict=True)], 4)


def _dots(ball: Mesh, numbers: np.ndarray) -> np.ndarray:
    """Clay color, with blue dots around the landmarks."""
    near = np.linalg.norm(ball.verts[:, None] - ball.verts[numbers], axis=2).min(axis=1) < 0.09
    return np.where(near[:, None], np.array([0.0, 0.45, 0.7]), np.array(CLAY))


PICTURES: dict[str, Callable[[], np.ndarray]] = {
    "rbf-analogy": spline_block,
    "rbf-flat": flat_function,
    "rbf-warp": warped_ball,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        write_png(folder / f"{name}.png", make())
        print(f"{folder / name}.png: {(folder / f'{name}.png').stat().st_size / 1000:.0f} kB")
