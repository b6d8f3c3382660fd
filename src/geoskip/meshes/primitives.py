"""Meshes with known geometry, for tests and examples. Normals point outwards; those of the grid point up."""

import numpy as np

from geoskip.meshes.mesh import Mesh


def icosphere(subdivisions: int = 3, radius: float = 1.0) -> Mesh:
    """A sphere: an icosahedron whose faces are split in four ``subdivisions`` times. It has 10·4^s + 2 vertices.

    The vertices of each level come first in the next level.
    """
    mesh = _icosahedron()
    for _ in range(subdivisions):
        mesh = _split_in_four(mesh)
    return mesh.with_verts(radius * mesh.verts)


def grid(rows: int, cols: int, spacing: float = 1.0) -> Mesh:
    """A flat grid of ``rows`` × ``cols`` vertices at z = 0; vertex r·cols + c is at (c, r)·spacing.

    Each cell is split along the diagonal from (c, r) to (c + 1, r + 1).
    """
    r, c = np.divmod(np.arange(rows * cols), cols)
    verts = spacing * np.stack([c, r, np.zeros_like(r)], axis=1).astype(np.float64)
    corner = np.arange(rows * cols).reshape(rows, cols)
    return Mesh(verts, _split_cells(corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]))


def torus(rings: int = 24, sides: int = 12, radius: float = 1.0, tube: float = 0.4) -> Mesh:
    """A torus around the z axis with ``rings`` × ``sides`` vertices: genus 1, no boundary."""
    ring, side = np.divmod(np.arange(rings * sides), sides)
    u, v = 2 * np.pi * ring / rings, 2 * np.pi * side / sides
    out = radius + tube * np.cos(v)
    verts = np.stack([out * np.cos(u), out * np.sin(u), tube * np.sin(v)], axis=1)
    corner = np.arange(rings * sides).reshape(rings, sides)
    ahead = np.roll(corner, -1, axis=0)
    return Mesh(verts, _split_cells(corner, ahead, np.roll(ahead, -1, axis=1), np.roll(corner, -1, axis=1)))


def _split_cells(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Two triangles per quadrilateral a b c d."""
    return np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)


def _icosahedron() -> Mesh:
    """Two poles, and two rings of five vertices at latitude ±atan(1/2)."""
    turn = 2 * np.pi * np.arange(5) / 5
    upper, lower = (
        np.stack([2 * np.cos(angle), 2 * np.sin(angle), np.full(5, height)], axis=1) / np.sqrt(5)
        for angle, height in [(turn, 1.0), (turn + np.pi / 5, -1.0)]
    )
    verts = np.concatenate([[[0.0, 0.0, 1.0]], upper, lower, [[0.0, 0.0, -1.0]]])
    i, j = np.arange(5), (np.arange(5) + 1) % 5
    north, south = np.zeros(5, dtype=np.int64), np.full(5, 11)
    caps = [[north, 1 + i, 1 + j], [south, 6 + j, 6 + i]]
    belt = [[1 + i, 6 + i, 1 + j], [1 + j, 6 + i, 6 + j]]
    return Mesh(verts, np.concatenate([np.stack(strip, axis=1) for strip in caps + belt]))


def _split_in_four(mesh: Mesh) -> Mesh:
    """Split every face in four. The edge midpoints, projected to the unit sphere, come after the old vertices."""
    edges = mesh.edges()
    keys = edges[:, 0] * mesh.num_vertices + edges[:, 1]
    a, b, c = mesh.faces.T

    def midpoint(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return mesh.num_vertices + np.searchsorted(keys, np.minimum(i, j) * mesh.num_vertices + np.maximum(i, j))

    ab, bc, ca = midpoint(a, b), midpoint(b, c), midpoint(c, a)
    faces = np.stack([a, ab, ca, b, bc, ab, c, ca, bc, ab, bc, ca], axis=1).reshape(-1, 3)
    middles = mesh.verts[edges].mean(axis=1)
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    return Mesh(np.concatenate([mesh.verts, middles]), faces)
