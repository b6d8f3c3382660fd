"""Spirals: the vertices around each vertex, ring by ring, as one sequence (SpiralNet++, Gong et al. 2019).

The spiral of v is a breadth-first walk from v that turns counter-clockwise, seen from outside. First comes v,
then its neighbours; then, for each vertex r of the sequence in turn, those neighbours of r that are not yet in
it, counter-clockwise from the vertex through which r came in. So ring follows ring, and all turn the same way.

- Start: the neighbour nearest to v. Only between exactly equal distances does the lower index decide, so
  spirals follow the vertices when these are relabelled. (SpiralNet++ starts where its mesh library does.)
- Orientation: the winding of the faces.
- Borders: a ring that meets a border goes on at the other side of the gap. Where the component ends before
  the spiral does, -1 fills the rest. (SpiralNet++ fills up with vertices that are near in space.)
- A vertex in several fans, as where two cones touch: each fan from its nearest vertex, nearest fan first.
- A vertex around which the winding contradicts itself (an edge of three faces, or neighbours of opposite
  winding) has no rotation: its neighbours come nearest first.

A dilated spiral is every ``dilation``-th entry of a longer one.
"""

from itertools import chain, islice, pairwise

import numpy as np

from geoskip.arguments import check_type, whole_number
from geoskip.meshes.mesh import Mesh
from geoskip.shapes import Int


def spirals(mesh: Mesh, length: int, dilation: int = 1) -> Int[np.ndarray, "vertices {length}"]:
    """The spiral of every vertex, itself first; -1 where the mesh ends."""
    check_type("mesh", mesh, Mesh)
    length = whole_number("length", length, "a spiral")
    dilation = whole_number("dilation", dilation, "a spiral")
    around = ordered_neighbours(mesh)
    reach = (length - 1) * dilation + 1
    table = np.full((mesh.num_verts, length), -1, dtype=np.int64)
    for v in range(mesh.num_verts):
        walk = _walk(v, around, reach)[::dilation]
        table[v, : len(walk)] = walk
    return table


def ordered_neighbours(mesh: Mesh) -> list[list[int]]:
    """The neighbours of every vertex, counter-clockwise from the nearest one."""
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
                if len(walk) == reach:  # or every walk past a hub would list all its neighbours
                    break
        position += 1
    return walk[:reach]


def _turn(near: list[int], fan: set[tuple[int, int]]) -> list[int]:
    """The neighbours ``near``, given nearest first, in the order of the pairs (w, the next after w)."""
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
    """From start on, to the end of the chain or once around."""
    chain, w = [start], following.get(start)
    while w is not None and w != start:
        chain.append(w)
        w = following.get(w)
    return chain


def _by_distance(mesh: Mesh) -> list[list[int]]:
    """The neighbours of every vertex, nearest first, lower index first between equals."""
    edges = mesh.edges()
    v, w = np.concatenate([edges, edges[:, ::-1]]).T
    squares = ((mesh.verts[w] - mesh.verts[v]) ** 2).sum(axis=1)
    order = np.lexsort([w, squares, v])
    ends = np.cumsum(np.bincount(v, minlength=mesh.num_verts)).tolist()
    nearest_first = w[order].tolist()
    return [nearest_first[start:end] for start, end in pairwise([0, *ends])]


def _fans(mesh: Mesh) -> list[set[tuple[int, int]]]:
    """For every vertex a, the pairs (b, c) of its faces a b c."""
    fans: list[set[tuple[int, int]]] = [set() for _ in range(mesh.num_verts)]
    for a, b, c in mesh.faces.tolist():
        fans[a].add((b, c))
        fans[b].add((c, a))
        fans[c].add((a, b))
    return fans
