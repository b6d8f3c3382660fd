"""The node tree of a glTF scene: which meshes it shows, and where."""

import numpy as np

from geoskip.meshes.files.gltf_json import Json, natural, naturals, numbers, objects, pick
from geoskip.meshes.mesh import MeshError


def placed_meshes(document: Json) -> list[tuple[Json, np.ndarray]]:
    """The meshes of the default scene, depth first, each with the 4 × 4 matrix that places it.

    A file without nodes shows every mesh where it lies. A node that is reached twice (a cycle, a second
    parent) is refused, as by the standard.
    """
    nodes, meshes = objects(document, "nodes"), objects(document, "meshes")
    if not nodes:
        return [(mesh, np.eye(4)) for mesh in meshes]
    placed = []
    seen: set[int] = set()
    waiting = [(index, np.eye(4)) for index in reversed(_roots(document, nodes))]
    while waiting:
        index, parent = waiting.pop()
        node = pick(nodes, index, "node")
        if index in seen:
            raise MeshError(f"glTF node {index} is reached twice")
        seen.add(index)
        place = parent @ _transform(node)
        if "mesh" in node:
            placed.append((pick(meshes, natural(node, "mesh"), "mesh"), place))
        waiting += [(child, place) for child in reversed(naturals(node, "children"))]
    return placed


def _roots(document: Json, nodes: list[Json]) -> list[int]:
    scenes = objects(document, "scenes")
    if scenes:
        return naturals(pick(scenes, natural(document, "scene", 0), "scene"), "nodes")
    children = {child for node in nodes for child in naturals(node, "children")}
    return [index for index in range(len(nodes)) if index not in children]


def _transform(node: Json) -> np.ndarray:
    """The node's matrix (column-major in the file), or translation · rotation · scale."""
    if "matrix" in node:
        return np.array(numbers(node, "matrix", [0.0] * 16)).reshape(4, 4).T
    transform = np.eye(4)
    transform[:3, :3] = _rotation(numbers(node, "rotation", [0.0, 0.0, 0.0, 1.0]))
    transform[:3, :3] *= numbers(node, "scale", [1.0] * 3)
    transform[:3, 3] = numbers(node, "translation", [0.0] * 3)
    return transform


def _rotation(quaternion: list[float]) -> np.ndarray:
    x, y, z, w = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
