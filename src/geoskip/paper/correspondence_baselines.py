"""What correspondence is worth without a network: the pattern of the edges alone, and positions alone.

The first baseline says how far the connectivity gives vertices away. After as many Weisfeiler-Lehman rounds as a
network has convolutions, vertices of one color cannot be told apart by a network that sees no positions.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.meshes.mesh import Mesh
from geoskip.shapes import Float, Int
from geoskip.training.metrics import correspondence_metrics, geodesic_errors

ROUNDS = 3  # the convolutions of the paper's network


def vertex_colors(mesh: Mesh, rounds: int = ROUNDS) -> Int[np.ndarray, vertices]:
    """Weisfeiler-Lehman colors as 64-bit numbers that mean the same on every mesh.

    The first color of a vertex is its degree. In each round it gets a new one, made of its own and of the colors of
    its neighbors, whatever their order.
    """
    senders, receivers = mesh.edges().T
    senders, receivers = np.concatenate([senders, receivers]), np.concatenate([receivers, senders])
    colors = np.bincount(receivers, minlength=mesh.num_vertices).astype(np.uint64)
    for _ in range(rounds):
        # A sum of scrambled colors is the same in any order, and differs where the colors do.
        around = np.zeros_like(colors)
        np.add.at(around, receivers, _scrambled(colors[senders]))
        colors = _scrambled(_scrambled(colors + np.uint64(1)) ^ around)
    return colors.view(np.int64)


def _scrambled(numbers: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014): one number to another, with no two to the same."""
    x = numbers + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def majority_by_color(data: CorrespondenceSet, rounds: int = ROUNDS) -> tuple[Int[Tensor, " vertices"], float]:
    """The label that most training vertices of the same color have, for each vertex of the test; the commonest label
    where the color is new. Also how many percent of the test vertices have a color that occurs in training."""
    train = [
        (vertex_colors(data.meshes[item], rounds), data.labels[item].numpy()) for item in data.split.train.tolist()
    ]
    colors, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    colors, labels = colors[labels >= 0], labels[labels >= 0]
    known, number = np.unique(colors, return_inverse=True)
    votes, counts = np.unique(number * data.num_classes + labels, return_counts=True)
    # Of a color's labels the one with most votes comes last, and the smaller of two with as many.
    votes = votes[np.lexsort((-votes, counts, votes // data.num_classes))]
    winners = votes[np.flatnonzero(np.diff(votes // data.num_classes, append=-1))] % data.num_classes
    asked = np.concatenate([vertex_colors(data.meshes[item], rounds) for item in data.split.test.tolist()])
    at = np.searchsorted(known, asked).clip(max=len(known) - 1)
    seen = known[at] == asked
    commonest = np.bincount(labels).argmax()
    return torch.from_numpy(np.where(seen, winners[at], commonest)), 100.0 * float(seen.mean())


def nearest_by_position(data: CorrespondenceSet) -> Int[Tensor, " vertices"]:
    """For each vertex of the test the label of the nearest vertex of all training meshes."""
    train = data.split.train.tolist()
    labels = torch.cat([data.labels[item] for item in train])
    positions = np.concatenate([data.meshes[item].verts for item in train])
    tree = KDTree(positions[labels.numpy() >= 0])
    asked = np.concatenate([data.meshes[item].verts for item in data.split.test.tolist()])
    return labels[labels >= 0][torch.from_numpy(tree.query(asked)[1])]


def correspondence_baselines(
    data: CorrespondenceSet, distances: Float[Tensor, "targets targets"] | None = None
) -> dict[str, dict[str, float]]:
    """Figures by name, as the correspondence task gives them; geodesic errors where ``distances`` are given."""
    voted, seen = majority_by_color(data)
    found = {f"majority of {ROUNDS} Weisfeiler-Lehman rounds": voted, "nearest position": nearest_by_position(data)}
    labels = torch.cat([data.labels[item] for item in data.split.test.tolist()])
    metrics = {name: _figures(predicted, labels, distances) for name, predicted in found.items()}
    metrics[f"majority of {ROUNDS} Weisfeiler-Lehman rounds"]["seen_pct"] = seen
    return metrics


def _figures(predicted: Tensor, labels: Tensor, distances: Tensor | None) -> dict[str, float]:
    if distances is not None:
        return dict(correspondence_metrics(predicted, labels, geodesic_errors(predicted, labels, distances)))
    known = labels >= 0
    return {"accuracy_pct": 100.0 * float((predicted[known] == labels[known]).double().mean())}
