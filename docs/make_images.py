"""The pictures of these pages, made by the code they are about: ``python docs/make_images.py [FOLDER]``.

Generated people come from the cache, or are made with the extra ``people``; nothing is random.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from geoskip.data import bodies, faces
from geoskip.meshes import Mesh, geodesic_distances, grid, mesh_hierarchy, spirals
from geoskip.report.palette import CLAY, colored
from geoskip.report.pictures import picture, sheet, view_of, write_png
from geoskip.report.sheets import level_sheet

IMAGES = Path(__file__).parent / "images"
EXPRESSIONS = ("bareteeth", "eyebrow", "high_smile", "mouth_extreme", "mouth_middle", "mouth_side")


def levels() -> np.ndarray:
    """The mean face at five levels, and what the up matrices rebuild from each."""
    return level_sheet(mesh_hierarchy(faces().template), size=190)


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
    return sheet(shown, columns=len(EXPRESSIONS))


def body_set() -> np.ndarray:
    """Two people in eight poses each."""
    people = bodies()
    view = view_of(np.concatenate([mesh.verts for mesh in people.meshes[:10]]), 25.0, 8.0)
    shown = [picture(people.meshes[10 * person + pose], view, size=150) for person in (0, 1) for pose in range(8)]
    return sheet(shown, columns=8)


def spiral_walks() -> np.ndarray:
    """Spirals of 19 vertices on a sheet, from violet at the start to yellow: inside it, and at its border."""
    flat = bent_sheet()
    return sheet([_spiral(flat, vertex) for vertex in (7 * 13 + 6, 4 * 13)], columns=2)


def distances() -> np.ndarray:
    """Distances from the left hand of a body, heat and exact, in bands of 10 cm."""
    body = bodies().target
    hand = int(body.verts[:, 0].argmax())
    view = view_of(body.verts, 20.0, 8.0)
    rows = [geodesic_distances(body, np.array([hand]), method)[0] for method in ("heat", "exact")]
    return sheet([picture(body, view, _bands(row, 0.1), size=300) for row in rows], columns=2)


def bent_sheet() -> Mesh:
    flat = grid(13, 13)
    x, y, _ = flat.verts.T
    return flat.with_verts(np.stack([x, y, 1.5 * np.sin(0.4 * x) * np.cos(0.3 * y)], axis=1))


def _spiral(mesh: Mesh, vertex: int) -> np.ndarray:
    walk = spirals(mesh, 19)[vertex]
    walk = walk[walk >= 0]
    colours = np.tile(np.array(CLAY), (mesh.num_vertices, 1))
    colours[walk] = colored(np.arange(len(walk), dtype=np.float64), len(walk) - 1, "viridis")
    return picture(mesh, view_of(mesh.verts, 15.0, 25.0), colours, size=300, edges=True)


def _bands(row: np.ndarray, width: float) -> np.ndarray:
    """A colour for each distance, every second band darker."""
    return colored(row, row.max(), "viridis") * np.where(np.floor(row / width) % 2, 0.72, 1.0)[:, None]


PICTURES: dict[str, Callable[[], np.ndarray]] = {
    "bodies": body_set,
    "faces": face_set,
    "geodesics": distances,
    "levels": levels,
    "spirals": spiral_walks,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        write_png(folder / f"{name}.png", make())
        print(f"{folder / name}.png: {(folder / f'{name}.png').stat().st_size / 1000:.0f} kB")
