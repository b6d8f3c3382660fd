"""Images classified by a model that was trained on superpixel graphs."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from geoskip.data.graph_set import GraphLevel, GraphSet
from geoskip.data.levels import find_clusters, gaussian_weights, with_levels
from geoskip.data.radius import radius_edges
from geoskip.data.slic import Slic, superpixels
from geoskip.data.split import Split
from geoskip.shapes import Float, Shaped
from geoskip.training.inference.opening import wants
from geoskip.training.pretrained import Trained
from geoskip.training.tasks.base import in_parts
from geoskip.training.tasks.classification import Classification

CHUNK = 64
# The outermost superpixels of an image may lie somewhat further in or out than those of others of its size.
LARGEST_CHANGE = 0.25
MNIST_NAMES = ("superpixels", "mnist", "fashion-mnist")


class ImageClassifier(Classification):
    """The classification task without its data: images become graphs as they did for training, with its radius."""

    def __init__(self, trained: Trained) -> None:
        wants(trained, "classification", "classifying images")
        facts = trained.context.facts
        self.config, self.model, self.device = trained.config, trained.model, trained.device
        self.class_names: tuple[str, ...] = tuple(facts["class_names"])
        self.largest = tuple(facts["largest"])
        self.radius: float = facts["radius"]
        self.in_channels: int = facts["in_channels"]
        self.num_segments: int = facts["vertices"]
        self.extent: list[float] = facts["extent"]
        if len(self.extent) != 2:
            raise ValueError("classifying images needs a model of graphs in the plane, and this is one of other graphs")

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the training images, where the configuration tells; positions are in their pixels."""
        given = self.config.data_options.get("size")
        if given is None and self.config.data in MNIST_NAMES:
            return 28, 28
        return None if given is None else (int(given[0]), int(given[1]))

    def classify(self, images: Shaped[np.ndarray, "images height width *channels"]) -> Float[Tensor, "images classes"]:
        """The probability of each class, for 8-bit images of the size that the model was trained on."""
        channels = images.shape[3] if images.ndim == 4 else 1
        if channels != self.in_channels:
            raise ValueError(f"images: {channels} channels, and the model was trained on {self.in_channels}")
        graphs = self._graphs(images)
        self._check_extent(graphs.levels[0].pos)
        self.data = graphs.to(self.device)
        self.__dict__.pop("_evaluated", None)

        def probabilities(part: Tensor) -> Tensor:
            return self.scores(self.model, store.batch(part.to(self.device))).float().softmax(-1).cpu()

        store = self.part_store("test")
        return torch.cat(in_parts(len(images), CHUNK, probabilities))

    def _check_extent(self, pos: Float[Tensor, "vertices 2"]) -> None:
        """Positions are in pixels, so images of another size would be graphs that the model never saw."""
        found = pos.amax(0).tolist()
        if any(abs(here - there) > LARGEST_CHANGE * there for here, there in zip(found, self.extent, strict=True)):
            reached, trained = ("{:.0f} × {:.0f}".format(*extent) for extent in (found, self.extent))
            raise ValueError(
                f"images: superpixels as far as {reached} pixels, and those of the training reached {trained}; scale "
                "the images to the size of the training's with --size HEIGHT,WIDTH"
            )

    def _graphs(self, images: np.ndarray) -> GraphSet:
        compactness = self.config.data_options.get("compactness", Slic.compactness)
        centroids, means = superpixels(images, Slic(self.num_segments, compactness), workers=1)
        pos, x = centroids.astype(np.float32), means.astype(np.float32)
        edges, edge_offsets = radius_edges(pos, self.radius)
        offsets = torch.arange(len(pos) + 1) * pos.shape[1]
        flat = torch.from_numpy(pos).flatten(0, 1)
        finest = GraphLevel(flat, offsets, torch.from_numpy(edges), torch.from_numpy(edge_offsets))
        clusters = []
        if self.coarsening is None:
            weigh = partial(gaussian_weights, sigma=self.radius / 2)
            clusters = find_clusters(finest, weigh, len(self.largest) - 1)
        items, none = torch.arange(len(images)), torch.zeros(0, dtype=torch.int64)
        return GraphSet(
            torch.from_numpy(x).flatten(0, 1),
            with_levels(finest, clusters),
            torch.zeros(len(images), dtype=torch.int64),
            self.class_names,
            Split(none, items),
        )
