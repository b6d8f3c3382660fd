"""Spirals: the vertices around each vertex, ring by ring, as one sequence (SpiralNet++, Gong et al. 2019).

The spiral of v is a breadth-first walk from v that turns counter-clockwise seen from outside. It starts with v and its
neighbors. Then, for each vertex r of the sequence in turn, it appends the neighbors of r that are not in it yet,
counter-clockwise from the vertex through which r was reached. The result is ring after ring, all with the same
orientation.

- Start: the neighbor nearest to v. The index only breaks ties between exactly equal distances, so spirals do not depend
  on the vertex numbering. (SpiralNet++ starts wherever its mesh library does.)
- Orientation: the winding of the faces.
- Borders: a ring that reaches a border continues on the other side of the gap. If the component ends before the spiral
  is complete, the rest is -1. (SpiralNet++ fills it with vertices that are near in space.)
- A vertex with several fans, as where two cones touch: each fan starts at its nearest vertex, nearest fan first.
- A vertex with inconsistent winding (an edge of three faces, or neighboring faces of opposite winding) has no rotation:
  its neighbors are ordered by distance.

A dilated spiral is every ``dilation``-th entry of a longer one.
"""

from itertools import chain, islice, pairwise

import numpy as np

from geoskip.arguments import check_type, whole_number
from geoskip.meshes.mesh import Mesh
from geoskip.shapes import Int


def spirals(mesh: Mesh, length: int, dilation: int = 1) -> Int[np.ndarray, "vertices {length}"]:
    """The spiral of every vertex, starting with the vertex itself; -1 where the mesh ends."""
    check_type("mesh", mesh, Mesh)
    length = whole_number("length", length, "a spiral")
    dilation = whole_number("dilation", dilation, "a spiral")
    around = ordered_neighbors(mesh)
    reach = (length - 1) * dilation + 1
    table = np.full((mesh.num_vertices, length), -1, dtype=np.int64)
    for v in range(mesh.num_vertices):
        walk = _walk(v, around, reach)[::dilation]
        table[v, : len(walk)] = walk
    return table


def ordered_neighbors(mesh: Mesh) -> list[list[int]]:
    """The neighbors of every vertex, counter-clockwise from the nearest one."""
    return [_turn(near, fan) for near, fan in zip(_by_distance(mesh), _fans(mesh), strict=True)]


def _walk(v: int, around: list[list[int]], reach: int) -> list[int]:
    walk = [v, *around[v]]
    came_from = dict.fromkeys(walk, v)
    position = 1
    while position < len(walk) < reach:
        r = walk[position]
        turn = around[r]
        entry = turn.index(came_from[r])
        for w in chain(islice(turn, entry + 1, None), islice(turn, entry)):
            if w not in came_from:
                came_from[w] = r
                walk.append(w)
                if len(walk) == reach:  # otherwise every walk past a hub would list all its neighbors
                    break
        position += 1
    return walk[:reach]


def _turn(near: list[int], fan: set[tuple[int, int]]) -> list[int]:
    """The neighbors ``near`` (sorted by distance) in the order given by the pairs (w, the one after w)."""
    after, before = dict(fan), {w: v for v, w in fan}
    if not len(after) == len(before) == len(fan):
        return near
    turn: dict[int, None] = {}
    for start in near:
        if start not in turn:
            turn.update(dict.fromkeys(_chain(start, after)))
            turn.update(dict.fromkeys(reversed(_chain(start, before))))
    return list(turn)


def _chain(start: int, following: dict[int, int]) -> list[int]:
    """The chain from ``start`` to its end, or once around."""
    chain, w = [start], following.get(start)
    while w is not None and w != start:
        chain.append(w)
        w = following.get(w)
    return chain


def _by_distance(mesh: Mesh) -> list[list[int]]:
    """The neighbors of every vertex, nearest first; ties by index."""
    edges = mesh.edges()
    v, w = np.concatenate([edges, edges[:, ::-1]]).T
    squares = ((mesh.verts[w] - mesh.verts[v]) ** 2).sum(axis=1)
    order = np.lexsort([w, squares, v])
    ends = np.cumsum(np.bincount(v, minlength=mesh.num_vertices)).tolist()
    nearest_first = w[order].tolist()
    return [nearest_first[start:end] for start, end in pairwise([0, *ends])]


def _fans(mesh: Mesh) -> list[set[tuple[int, int]]]:
    """For every vertex a, the pairs (b, c) of its faces a b c."""
    fans: list[set[tuple[int, int]]] = [set() for _ in range(mesh.num_vertices)]
    for a, b, c in mesh.faces.tolist():
        fans[a].add((b, c))
        fans[b].add((c, a))
        fans[c].add((a, b))
    return fans
