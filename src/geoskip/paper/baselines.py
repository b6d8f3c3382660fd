"""Baselines without a mesh network.

- Reconstruction: PCA, an MLP on PCA coefficients, the subject at rest, the nearest training item. Errors are those of
  the reconstruction task: Euclidean distances of all vertices of all test items, in millimeters.
- Correspondence: the pattern of the edges alone, and positions alone. The first shows how far the connectivity gives
  vertices away: after as many Weisfeiler-Lehman rounds as a network has convolutions, a network without positions
  cannot distinguish vertices of one color.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor, nn

from geoskip.data import CorrespondenceSet, MeshSet, find_data_set, geodesics
from geoskip.graphs.coarsening import mix
from geoskip.meshes import Mesh
from geoskip.paper.experiments import Experiment
from geoskip.paper.findings import AnalysisRecord, read_analysis
from geoskip.shapes import Float, Int
from geoskip.training.metrics import (
    correspondence_metrics,
    geodesic_errors,
    reconstruction_errors,
    reconstruction_metrics,
)

CHUNK = 256
# The number of PCA coefficients for the MLP and for distances between shapes.
NUM_COEFFICIENTS = 150
# Of the subspace iteration, and of the training of the MLP, whose hidden layers have this width.
ITERATIONS, STEPS, HIDDEN = 6, 12_000, 256


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """x ≈ mean + basis c, with the training items' directions of largest variance, largest first."""

    mean: Float[Tensor, " coordinates"]
    basis: Float[Tensor, "coordinates components"]

    def encode(self, verts: Float[Tensor, "items vertices 3"]) -> Float[Tensor, "items components"]:
        return (verts.flatten(1) - self.mean) @ self.basis

    def decode(self, coefficients: Float[Tensor, "items some"]) -> Float[Tensor, "items vertices 3"]:
        """Positions from the first coefficients, however many are given."""
        flat = self.mean + coefficients @ self.basis[:, : coefficients.shape[1]].T
        return flat.unflatten(1, (-1, 3))


def principal_components(data: MeshSet, count: int) -> PrincipalComponents:
    """By subspace iteration over the training items, a chunk at a time: the whole set is never in memory.

    A few components more than asked for are iterated, so that those asked for are accurate to a small part of a
    percent of their variance.
    """
    mean = data.moments()[0].flatten()
    parts = data.split.train.split(CHUNK)
    num_components = min(count, len(data.split.train) - 1, len(mean))
    width = min(num_components + 20, len(data.split.train), len(mean))
    basis = torch.randn(len(mean), width, generator=torch.Generator().manual_seed(0))
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(basis).Q
        product = torch.zeros_like(basis)
        for part in parts:
            centered = data.verts(part).flatten(1) - mean
            product.addmm_(centered.T, centered @ basis)
        basis, previous = product, basis
    # In the last subspace the covariance is a small matrix, whose eigenvectors turn the basis.
    _, turn = torch.linalg.eigh((previous.T @ basis).double())
    return PrincipalComponents(mean, (previous @ turn.flip(1).float())[:, :num_components].contiguous())


def train_autoencoder(
    coefficients: Float[Tensor, "items channels"], code: int, steps: int = STEPS, seed: int = 0
) -> Callable[[Tensor], Tensor]:
    """An MLP autoencoder, trained, as a function of coefficients; Adam, with a rate that falls to zero along a cosine.

    The loss is the mean distance between coefficients, so that, as in the error that counts, outliers weigh no more
    than their size. Coefficients are divided by one number: each keeps its share of the distance.
    """
    scale = coefficients.square().mean().sqrt()
    items = coefficients / scale
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        channels = items.shape[1]
        model = nn.Sequential(_perceptron(channels, code), _perceptron(code, channels))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            part = items[torch.randint(len(items), (128,))]
            optimizer.zero_grad()
            loss = (model(part) - part).norm(dim=1).mean()
            loss.backward()
            optimizer.step()
            schedule.step()

    def reconstruct(x: Tensor) -> Tensor:
        with torch.no_grad():
            return scale * model(x / scale)

    return reconstruct


def _perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, outputs)
    )


def reconstruction_baselines(
    data: MeshSet, sizes: Sequence[int] = (8, 16, 32, 64), code: int = 16, steps: int = STEPS
) -> dict[str, dict[str, float]]:
    """Errors by name: PCA of each size, the MLP, the subject at rest (if known), the nearest training item."""
    train, test = data.split.train, data.split.test
    components = principal_components(data, max(*sizes, NUM_COEFFICIENTS))
    known, asked = (_in_chunks(items, lambda x: components.encode(data.verts(x))) for items in (train, test))
    autoencoder = train_autoencoder(known[:, :NUM_COEFFICIENTS], code, steps)
    nearest = _in_chunks(torch.arange(len(test)), lambda part: torch.cdist(asked[part], known).argmin(1))

    # Each method gives the positions of test items, by their number among these.
    def pca(size: int, part: Tensor) -> Tensor:
        return components.decode(asked[part, :size])

    methods: dict[str, Callable[[Tensor], Tensor]] = {
        **{f"PCA {size}": partial(pca, size) for size in sizes},
        f"MLP {code}": lambda part: components.decode(autoencoder(asked[part, :NUM_COEFFICIENTS])),
    }
    if (neutral := getattr(data.shapes, "neutral", None)) is not None:
        methods["subject at rest"] = lambda part: neutral(test[part])
    methods["nearest training item"] = lambda part: data.verts(train[nearest[part]])

    def errors(reconstruct: Callable[[Tensor], Tensor]) -> Tensor:
        return _in_chunks(
            torch.arange(len(test)),
            lambda part: reconstruction_errors(reconstruct(part), data.verts(test[part]), data.unit_mm),
        )

    return {name: reconstruction_metrics(errors(reconstruct)) for name, reconstruct in methods.items()}


def _in_chunks(items: Int[Tensor, " items"], function: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.cat([function(part) for part in items.split(CHUNK)])


ROUNDS = 3  # the convolutions of the paper's network


def vertex_colors(mesh: Mesh, rounds: int = ROUNDS) -> Int[np.ndarray, " vertices"]:
    """Weisfeiler-Lehman colors that mean the same on every mesh. The first color of a vertex is its degree."""
    edges = mesh.edges().T
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    return refine(edges, np.bincount(edges[1], minlength=mesh.num_vertices), rounds)


def refine(
    edges: Int[np.ndarray, "2 edges"], colors: Int[np.ndarray, " vertices"], rounds: int
) -> Int[np.ndarray, " vertices"]:
    r"""Weisfeiler-Lehman colors as 64-bit numbers that mean the same on every graph:

    .. math:: c_i \leftarrow \big(c_i,\ \{\!\{ c_j : j \in \mathcal N(i) \}\!\}\big)

    edges: senders and receivers.
    """
    (senders, receivers), refined = torch.from_numpy(edges), torch.from_numpy(colors)
    for _ in range(rounds):
        # A sum of mixed colors is the same in any order, and differs where the colors do.
        around = torch.zeros_like(refined).index_add_(0, receivers, mix(refined[senders]))
        refined = mix(mix(refined + 1) ^ around)
    return refined.numpy()


def majority_by_color(data: CorrespondenceSet) -> tuple[Int[Tensor, " vertices"], float]:
    """The label that most training vertices of the same color have, for each vertex of the test; the commonest label
    where the color is new. Also how many percent of the test vertices have a color that occurs in training."""
    train = [(vertex_colors(data.meshes[item]), data.labels[item].numpy()) for item in data.split.train.tolist()]
    colors, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    colors, labels = colors[labels >= 0], labels[labels >= 0]
    known, number = np.unique(colors, return_inverse=True)
    votes, counts = np.unique(number * data.num_classes + labels, return_counts=True)
    # Of a color's labels the one with most votes comes last, and the smaller of two with as many.
    votes = votes[np.lexsort((-votes, counts, votes // data.num_classes))]
    winners = votes[np.flatnonzero(np.diff(votes // data.num_classes, append=-1))] % data.num_classes
    asked = np.concatenate([vertex_colors(data.meshes[item]) for item in data.split.test.tolist()])
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
    data: CorrespondenceSet, distances: Float[Tensor, "targets targets"]
) -> dict[str, dict[str, float]]:
    """Figures by name, as the correspondence task gives them."""
    voted, seen = majority_by_color(data)
    majority = f"majority of {ROUNDS} Weisfeiler-Lehman rounds"
    labels = torch.cat([data.labels[item] for item in data.split.test.tolist()])
    figures = {}
    for name, predicted in ((majority, voted), ("nearest position", nearest_by_position(data))):
        figures[name] = correspondence_metrics(predicted, labels, geodesic_errors(predicted, labels, distances))
    figures[majority]["seen_pct"] = seen
    return figures


def baselines_of(name: str, split: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """The baselines of a data set by its name, one row each, and the key of the data.

    split: the option of that name, where the data set has one.
    """
    data = find_data_set(name).read({} if split is None else {"split": split})
    if isinstance(data, MeshSet):
        figures = reconstruction_baselines(data, steps=STEPS)
    elif isinstance(data, CorrespondenceSet):
        figures = correspondence_baselines(data, torch.from_numpy(geodesics(data.target)))
    else:
        raise ValueError(f"data: there are baselines for reconstruction and correspondence, and {name} is for neither")
    return [{"method": method, **numbers} for method, numbers in figures.items()], data.content


def baselines_path(records: Path, data: str, split: str | None = None) -> Path:
    return records / f"baselines-{data}{'' if split is None else f'-{split}'}.json"


def stored_baselines(experiment: Experiment, results: Path, data: str) -> dict[str, dict[str, float]]:
    """The baselines of a data set that belong into the table of an experiment; none if there is no record."""
    path = baselines_path(results / "analysis", data)
    if experiment.name not in ("table1", "correspondence") or not path.is_file():
        return {}
    return _figures(read_analysis(path))


def all_baselines(records: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Those in a folder of records by data set, without those of a split of its own."""
    found = map(read_analysis, sorted(records.glob("baselines-*.json")))
    return {record.settings["data"]: _figures(record) for record in found if "split" not in record.settings}


def _figures(record: AnalysisRecord) -> dict[str, dict[str, float]]:
    return {row["method"]: {key: value for key, value in row.items() if key != "method"} for row in record.rows}
