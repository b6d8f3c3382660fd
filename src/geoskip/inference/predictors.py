"""Trained models applied to meshes and images: codes, matches and classes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from geoskip.arguments import check_type
from geoskip.data import GraphSet, Split, TemplateError
from geoskip.data.catalog import DATA_SETS
from geoskip.data.declaration import IdxDataSet
from geoskip.data.graph_sets import find_clusters, with_levels
from geoskip.data.mesh_sets import check_size
from geoskip.data.superpixels import COMPACTNESS, radius_graphs, superpixels
from geoskip.meshes import Mesh
from geoskip.models import MeshAutoencoder
from geoskip.shapes import Float, Int, Shaped
from geoskip.training.tasks.base import Context, in_parts
from geoskip.training.tasks.classification import GraphContext, graph_store
from geoskip.training.tasks.correspondence import MatchContext, match_scores
from geoskip.training.tasks.reconstruction import MeshContext
from geoskip.training.trained import Trained

log = logging.getLogger(__name__)

# How many times further than usual the vertices of a mesh may be from where a model expects them without a warning.
FAR_FROM_MEAN, FAR_FROM_TARGET = 10.0, 3.0
# Batch sizes that bound the memory used for thousands of files.
MESHES_AT_ONCE = 32
IMAGES_AT_ONCE = 64


C = TypeVar("C", bound=Context)


def required(trained: Trained, kind: type[C], purpose: str, task: str) -> C:
    """The context of a trained model; ValueError unless it is of the kind that ``purpose`` needs."""
    if not isinstance(trained.context, kind):
        raise ValueError(f"{purpose} needs a model of {task}, but this is one of {trained.config.task}")
    return trained.context


def _rms(offsets: Float[np.ndarray, "vertices 3"]) -> float:
    """Root mean square of the lengths."""
    return float(np.sqrt((offsets**2).sum(1).mean()))


class MeshCoder:
    """An autoencoder with the normalization that it was trained with; positions are in the units of its data."""

    def __init__(self, trained: Trained) -> None:
        context = required(trained, MeshContext, "coding meshes", "reconstruction")
        assert isinstance(trained.model, MeshAutoencoder)
        self.model, self.device, self.checked = trained.model, trained.device, trained.checked
        self.mean, self.deviation = context.mean.to(self.device), context.deviation.to(self.device)
        self.template, self.unit_mm = context.template(), context.unit_mm

    @property
    def latent(self) -> int:
        return self.model.latent

    def check(self, mesh: Mesh, name: str = "mesh") -> None:
        """TemplateError unless ``mesh`` has the vertex count and the faces of the training meshes, in their order;
        MeshError if it is in another unit. Logs a warning if its vertices are so far from those of
        the training meshes that its unit, position or axes must be others."""
        if mesh.topology_hash() == self.template.topology_hash():
            check_size(name, mesh.radius(), self.template.radius(), "the training meshes")
            distance = _rms(mesh.verts - self.template.verts)
            usual = float(self.deviation.square().mean().sqrt()) * 3**0.5
            if distance > FAR_FROM_MEAN * usual:
                log.warning(
                    "%s: its vertices are %s mm from the mean of the training meshes, %s times as far as theirs; "
                    "check its unit, position and axes",
                    name,
                    f"{distance * self.unit_mm:,.1f}",
                    f"{distance / usual:,.0f}",
                )
            return
        raise TemplateError(
            f"{name}: another connectivity than the model was trained on: {mesh.compared_with(self.template)}; export "
            "the mesh with the vertex order of the training meshes kept, or train a model on meshes of this template"
        )

    def encode(self, verts: Float[Tensor, "meshes vertices 3"]) -> Float[Tensor, "meshes latent"]:
        self._check_shape("verts", verts, len(self.mean), 3)
        return self._in_parts(verts, lambda part: self.model.encode((part - self.mean) / self.deviation))

    def decode(self, codes: Float[Tensor, "meshes latent"]) -> Float[Tensor, "meshes vertices 3"]:
        self._check_shape("codes", codes, self.latent)
        return self._in_parts(codes, lambda part: self.model.decode(part) * self.deviation + self.mean)

    def reconstruct(self, verts: Float[Tensor, "meshes vertices 3"]) -> Float[Tensor, "meshes vertices 3"]:
        return self.decode(self.encode(verts))

    def meshes(self, verts: Float[Tensor, "meshes vertices 3"]) -> list[Mesh]:
        """Positions with the faces of the training meshes."""
        return [self.template.with_verts(one) for one in verts.double().numpy()]

    def _check_shape(self, name: str, items: Tensor, *size: int) -> None:
        check_type(name, items, Tensor)
        if items.dim() != 1 + len(size) or items.shape[1:] != size:
            expected = ", ".join(map(str, ("meshes", *size)))
            raise ValueError(f"{name}: expected shape [{expected}], got {list(items.shape)}")

    def _in_parts(self, items: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.inference_mode():
            parts = [self.checked(function(part.to(self.device))).cpu() for part in items.float().split(MESHES_AT_ONCE)]
        return torch.cat(parts)


def verts_of(meshes: list[Mesh]) -> Float[Tensor, "meshes vertices 3"]:
    return torch.from_numpy(np.stack([mesh.verts for mesh in meshes])).float()


class Matcher:
    """A correspondence network: matches the vertices of any mesh with those of its target."""

    def __init__(self, trained: Trained) -> None:
        context = required(trained, MatchContext, "matching meshes", "correspondence")
        self.trained, self.target, self.unit_mm = trained, context.target(), context.unit_mm

    def check(self, mesh: Mesh, name: str = "mesh") -> None:
        """MeshError if ``mesh`` is in another unit than the target. Logs a warning if its vertices are much further
        away or closer, as after a shift or between centimeters and decimeters."""
        check_size(name, mesh.radius(), self.target.radius(), "the target")
        center = self.target.verts.mean(0)
        ratio = _rms(mesh.verts - center) / _rms(self.target.verts - center)
        if not 1 / FAR_FROM_TARGET <= ratio <= FAR_FROM_TARGET:
            log.warning(
                "%s: its vertices are %.3g times as far from the center of the target as those of the target; "
                "check its unit and position",
                name,
                ratio,
            )

    def match(self, mesh: Mesh) -> Int[np.ndarray, " vertices"]:
        """The target's vertex that each vertex of ``mesh`` is matched with."""
        scores = match_scores(self.trained.model, mesh, self.trained.config, self.unit_mm)
        return self.trained.checked(scores).argmax(-1).cpu().numpy()

    def transfer(
        self, mesh: Mesh, values: Shaped[np.ndarray, targets * channels]
    ) -> Shaped[np.ndarray, vertices * channels]:
        """Values at the target's vertices, such as labels of parts, carried to the vertices of ``mesh``."""
        self.check_values(values)
        return values[self.match(mesh)]

    def check_values(self, values: Shaped[np.ndarray, targets * channels], name: str = "values") -> None:
        """ValueError unless there is one value for each vertex of the target."""
        if len(values) != self.target.num_vertices:
            expected = f"{self.target.num_vertices} values, one for each vertex of the target"
            raise ValueError(f"{name}: expected {expected}, got {len(values)}")


# The outermost superpixels of an image may lie somewhat further in or out than those of others of its size.
LARGEST_CHANGE = 0.25


class ImageClassifier:
    """A classifier of images: they become graphs as they did for training."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.config = trained, trained.config
        self.context = required(trained, GraphContext, "classifying images", "classification")
        if len(self.context.extent) != 2:
            raise ValueError(
                "classifying images needs a model of graphs in the plane, but the graphs of this model are not"
            )

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.context.class_names)

    @property
    def in_channels(self) -> int:
        return self.context.arguments["in_channels"]

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the training images, if the configuration has them; positions are in their pixels."""
        data, size = self.config.data, self.config.data_options.get("size")
        if size is not None:
            return int(size[0]), int(size[1])
        is_idx = data in DATA_SETS and isinstance(DATA_SETS.get(data), IdxDataSet)
        return IdxDataSet.image_size if is_idx else None

    def classify(self, images: Shaped[np.ndarray, "images height width *channels"]) -> Float[Tensor, "images classes"]:
        """The probability of each class, for 8-bit images of the size that the model was trained on."""
        channels = images.shape[3] if images.ndim == 4 else 1
        if channels != self.in_channels:
            raise ValueError(f"images: {channels} channels, but the model was trained on {self.in_channels}")
        graphs = self._graphs(images)
        self._check_extent(graphs.levels[0].pos)
        model, device, context = self.trained.model, self.trained.device, self.context
        items = torch.arange(len(images))
        store = graph_store(self.config, graphs.to(device), items, context.radius, tuple(context.largest))
        store.redraw(self.config.optim.epochs)

        def probabilities(part: Tensor) -> Tensor:
            packed = store.batch(part.to(device))
            return self.trained.checked(model(packed.x, packed.graphs).float()).softmax(-1).cpu()

        return torch.cat(in_parts(len(images), IMAGES_AT_ONCE, probabilities))

    def _check_extent(self, pos: Float[Tensor, "vertices 2"]) -> None:
        """Positions are in pixels, so images of another size would be graphs that the model never saw."""
        extent, expected = pos.amax(0).tolist(), self.context.extent
        if any(abs(size - usual) > LARGEST_CHANGE * usual for size, usual in zip(extent, expected, strict=True)):
            reached, trained = ("{:.0f} × {:.0f}".format(*sizes) for sizes in (extent, expected))
            raise ValueError(
                f"images: superpixels reach {reached} pixels, but those of the training images reached {trained}; "
                "scale the images to the size of the training images with --size HEIGHT,WIDTH"
            )

    def _graphs(self, images: np.ndarray) -> GraphSet:
        compactness = self.config.data_options.get("compactness", COMPACTNESS)
        centroids, means = superpixels(images, self.context.num_vertices, compactness, workers=1)
        finest = radius_graphs(centroids.astype(np.float32), self.context.radius)
        clusters = []
        if not self.config.coarsening:
            clusters = find_clusters(finest, self.context.radius / 2, len(self.context.largest) - 1)
        items, none = torch.arange(len(images)), torch.zeros(0, dtype=torch.int64)
        return GraphSet(
            torch.from_numpy(means.astype(np.float32)).flatten(0, 1),
            with_levels(finest, clusters),
            torch.zeros(len(images), dtype=torch.int64),
            self.class_names,
            Split(none, items),
        )
