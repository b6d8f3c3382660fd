"""The pictures of these pages that are not made from records: ``python docs/make_images.py [NAME…]``.

Generated people come from the cache, or are made with the extra ``people``; nothing is random.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geoskip.blocks.analogy import interpolant_block, interpolant_graph
from geoskip.data import bodies, faces
from geoskip.meshes import Mesh, geodesic_distances, grid, icosphere, mesh_hierarchy, spirals
from geoskip.rbf import RBFInterpolant, Warp, fit_rbf, thin_plate_spline, warp, warp_mesh
from geoskip.report.palette import CLAY, SERIES, colored
from geoskip.report.picture_grids import level_grid
from geoskip.report.pictures import image_grid, picture, view_of, write_png

IMAGES = Path(__file__).parent / "images"
EXPRESSIONS = ("bareteeth", "eyebrow", "high_smile", "mouth_extreme", "mouth_middle", "mouth_side")
# As in the report: gray without an affine part, orange for an affine part.
PLAIN, AFFINE, SUM, OTHER = (SERIES[name][0] for name in ("none", "affine", "polynomial", "other"))
WIDE: dict[str, Any] = {"linewidth": 4, "alpha": 0.5, "zorder": 1}
KNOTS = torch.tensor([0.02, 0.12, 0.2, 0.34, 0.42, 0.55, 0.62, 0.78, 0.86, 0.98], dtype=torch.float64)[:, None]
LANDMARKS = torch.tensor([[0.1, 0.15], [0.9, 0.1], [0.85, 0.9], [0.15, 0.8], [0.5, 0.45]], dtype=torch.float64)


def levels() -> np.ndarray:
    """The mean face at five levels, and what the up matrices rebuild from each."""
    return level_grid(mesh_hierarchy(faces().template), size=190)


def face_set() -> np.ndarray:
    """A row for each of two subjects: six expressions, each in the frame that is farthest from its first one."""
    people = faces()
    view = view_of(people.template.verts, 20.0, 5.0)
    shown = []
    for subject in ("000", "001"):
        for expression in EXPRESSIONS:
            frames = [i for i, name in enumerate(people.names) if name.startswith(f"{subject}/{expression}/")]
            verts = people.verts(torch.tensor(frames))
            farthest = int((verts - verts[0]).norm(dim=2).mean(dim=1).argmax())
            shown.append(picture(people.mesh(frames[farthest]), view, size=180))
    return image_grid(shown, columns=len(EXPRESSIONS))


def body_set() -> np.ndarray:
    """Two people in eight poses each."""
    people = bodies()
    view = view_of(np.concatenate([mesh.verts for mesh in people.meshes[:10]]), 25.0, 8.0)
    shown = [picture(people.meshes[10 * person + pose], view, size=150) for person in (0, 1) for pose in range(8)]
    return image_grid(shown, columns=8)


def spiral_walks() -> np.ndarray:
    """Spirals of 19 vertices on a sheet, from violet at the start to yellow: inside it, and at its border."""
    flat = bent_sheet()
    return image_grid([_spiral(flat, vertex) for vertex in (7 * 13 + 6, 4 * 13)], columns=2)


def distances() -> np.ndarray:
    """Distances from the left hand of a body, heat and exact, in bands of 10 cm."""
    body = bodies().target
    hand = int(body.verts[:, 0].argmax())
    view = view_of(body.verts, 20.0, 8.0)
    rows = [geodesic_distances(body, np.array([hand]), method)[0] for method in ("heat", "exact")]
    return image_grid([picture(body, view, _bands(row, 0.1), size=300) for row in rows], columns=2)


def bent_sheet() -> Mesh:
    flat = grid(13, 13)
    x, y, _ = flat.verts.T
    return flat.with_verts(np.stack([x, y, 1.5 * np.sin(0.4 * x) * np.cos(0.3 * y)], axis=1))


def _spiral(mesh: Mesh, vertex: int) -> np.ndarray:
    walk = spirals(mesh, 19)[vertex]
    walk = walk[walk >= 0]
    colors = np.tile(np.array(CLAY), (mesh.num_vertices, 1))
    colors[walk] = colored(np.arange(len(walk), dtype=np.float64), len(walk) - 1, "viridis")
    return picture(mesh, view_of(mesh.verts, 15.0, 25.0), colors, size=300, edges=True)


def _bands(row: np.ndarray, width: float) -> np.ndarray:
    """A color for each distance, every second band darker."""
    return colored(row, row.max(), "viridis") * np.where(np.floor(row / width) % 2, 0.72, 1.0)[:, None]


def flat_function() -> np.ndarray:
    """A line through ten values, and a rotated grid, each with and without the polynomial part."""
    turn = torch.tensor([[0.8, 0.45], [-0.45, 0.8]], dtype=torch.float64)

    def draw(line: Axes, *grids: Axes) -> None:
        draw_line(line)
        for axes, affine in zip(grids, (True, False), strict=True):
            draw_grid(axes, warp(LANDMARKS, LANDMARKS @ turn, affine=affine), AFFINE if affine else PLAIN)
            axes.set_title("thin plate, with A, b" if affine else "without", fontsize=10)

    return plotted(draw, 3, (10, 3.3), width_ratios=(1.5, 1, 1))


def spline_block() -> np.ndarray:
    """Splines computed by their blocks: the convolution, the skip, and the sum."""
    line = 0.4 + 1.2 * KNOTS
    shown = {"values on a wave": line + 0.35 * torch.sin(9 * KNOTS), "values on a line": line}

    def draw(*panels: Axes) -> None:
        for axes, (title, values) in zip(panels, shown.items(), strict=True):
            draw_block(axes, thin_plate_spline(KNOTS, values))
            axes.plot(KNOTS[:, 0], values[:, 0], "ko", markersize=4)
            axes.set_title(title, fontsize=10)
        panels[1].legend(frameon=False, fontsize=9, loc="upper left")

    return plotted(draw, 2, (9, 3.3), sharey=True)


def plotted(draw: Callable[..., None], columns: int, inches: tuple[float, float], **grid: Any) -> np.ndarray:
    """The pixels of panels side by side, with matplotlib's default settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        figure = Figure(inches, dpi=120)
        canvas = FigureCanvasAgg(figure)
        draw(*figure.subplots(1, columns, **grid))
        figure.tight_layout()
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def draw_block(axes: Axes, spline: RBFInterpolant) -> None:
    x = torch.linspace(-0.15, 1.15, 300, dtype=torch.float64)[:, None]
    block, (features, edges) = interpolant_block(spline), interpolant_graph(spline, x)
    with torch.no_grad():
        parts = block.convolution(features, edges), block.affine(features), block(features, edges)
    # The sum is wide and pale, since it covers the skip where the convolution is zero.
    looks = ("convolution", PLAIN, "--"), ("skip", AFFINE, "-."), ("block: their sum", SUM, "-")
    for part, (label, color, style) in zip(parts, looks, strict=True):
        axes.plot(x[:, 0], part[:300, 0], style, color=color, label=label, **(WIDE if style == "-" else {}))


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
    return image_grid(
        [picture(mesh, view, _dots(ball, of), size=210) for mesh, of in zip(shown, marks, strict=True)], 4
    )


def _dots(ball: Mesh, numbers: np.ndarray) -> np.ndarray:
    """Clay color, with blue dots around the landmarks."""
    near = np.linalg.norm(ball.verts[:, None] - ball.verts[numbers], axis=2).min(axis=1) < 0.09
    return np.where(near[:, None], np.array([0.0, 0.45, 0.7]), np.array(CLAY))


PICTURES: dict[str, Callable[[], np.ndarray]] = {
    "bodies": body_set,
    "faces": face_set,
    "geodesics": distances,
    "levels": levels,
    "rbf-analogy": spline_block,
    "rbf-flat": flat_function,
    "rbf-warp": warped_ball,
    "spirals": spiral_walks,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        write_png(IMAGES / f"{name}.png", PICTURES[name]())
        print(f"{name}.png: {(IMAGES / f'{name}.png').stat().st_size / 1000:.0f} kB")
