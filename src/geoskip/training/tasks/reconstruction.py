"""Shape reconstruction: meshes of one connectivity through a short code, the paper's Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss

from geoskip.data import MeshSet, Template, prepare_template
from geoskip.graphs import Graph, Hierarchy, attach, record_from_buffers, target_degree
from geoskip.graphs.validation import check_hierarchy
from geoskip.meshes.mesh import Mesh
from geoskip.models import MeshAutoencoder
from geoskip.operators import operator_info
from geoskip.shapes import Float, Int
from geoskip.training.config import Config, Optim
from geoskip.training.metrics import reconstruction_errors, reconstruction_metrics
from geoskip.training.tasks.base import Context, Evaluation, Program, Task, in_parts, spiral_length, spread_widely

# Coordinates that hardly move are divided by this share of the usual deviation instead of their own, which may be 0.
LEAST_DEVIATION = 1e-3
CHANNELS = (32, 32, 32, 64)


@dataclass(frozen=True, eq=False, kw_only=True)
class MeshContext(Context):
    """What an autoencoder needs to know about its meshes.

    mean, deviation: of the training items; positions are normalized with them.
    faces: of every mesh.
    unit_mm: millimeters per unit of the positions.
    topology: hash of the faces.
    """

    mean: Tensor
    deviation: Tensor
    faces: Tensor
    unit_mm: float
    topology: str

    def __post_init__(self) -> None:
        self._check_rows("mean", torch.float32)
        self._check_rows("deviation", torch.float32)
        self._check_rows("faces", torch.int64)
        self._check_range("unit_mm", positive=True)
        if self.deviation.shape != self.mean.shape or not bool((self.deviation > 0).all()):
            raise ValueError("context: deviation must be positive, one number for each of mean")
        self.template()  # checks the faces

    def template(self) -> Mesh:
        """The mean of the training meshes."""
        return Mesh(self.mean.cpu().double().numpy(), self.faces.cpu().numpy())

    def check_model(self, model: nn.Module) -> None:
        assert isinstance(model, MeshAutoencoder)
        if len(self.mean) != (size := model.hierarchy().sizes[0]):
            raise ValueError(f"context: {len(self.mean)} vertices, but the model has {size}")


class Reconstruction(Task):
    """L1 loss of normalized positions: each coordinate of each vertex minus its mean over the training items, divided
    by its standard deviation there."""

    name = "reconstruction"
    model_class = MeshAutoencoder
    context_class = MeshContext
    from_data = ("hierarchy", "in_channels")
    data_arguments: ClassVar[Mapping[str, Any]] = {"factors": Sequence[int]}
    actions: ClassVar[Mapping[str, Any]] = {
        action: f"geoskip.inference.apply:{action}" for action in ("reconstruct", "encode", "decode", "interpolate")
    }
    data: MeshSet

    def __init__(self, config: Config, data: MeshSet | None = None) -> None:
        super().__init__(config, data)
        self.mean, deviation = self.data.moments()
        usual = float(deviation.square().mean().sqrt()) or 1.0
        self.deviation = deviation.clamp(min=LEAST_DEVIATION * usual)
        # The levels of the model that training starts from, if it does.
        self.given_levels: Hierarchy | None = None

    @classmethod
    def defaults(cls, operator: str) -> dict[str, Any]:
        return {"data": "faces", "kernel_size": 9, "optim": Optim()}

    @cached_property
    def template(self) -> Template:
        """The levels of the set's template, with what the operator needs."""
        channels = self.config.model.get("channels", CHANNELS)
        factors = self.config.model.get("factors", (4,) * len(channels))
        try:
            template = prepare_template(self.data.template, factors, spiral_length=spiral_length(self.config))
        except ValueError as error:
            if str(error).startswith("factors:"):
                raise ValueError(f"model.{error}, with as many model.channels") from error
            raise
        if self.config.pseudo == "position":
            return template
        levels = tuple(attach(level, target_degree(level)) for level in template.hierarchy.levels)
        return replace(template, hierarchy=replace(template.hierarchy, levels=levels))

    def model_arguments(self) -> dict[str, Any]:
        return {"hierarchy": self.given_levels or self.template.hierarchy, "in_channels": 3}

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        levels, template = stored_levels(self.config, weights), self.data.template
        finest, own = levels.levels[0], Graph.from_faces(template.faces, template.num_vertices)
        if not _same_edges(finest, own):
            raise ValueError(
                f"init_from: the model has another connectivity, with {finest.num_vertices:,} vertices and "
                f"{finest.num_edges:,} edges; the data have {own.num_vertices:,} and {own.num_edges:,}"
            )
        self.given_levels = levels

    @classmethod
    def stored_arguments(cls, config: Config, context: Context, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        return {"hierarchy": stored_levels(config, weights), "in_channels": 3}

    def batch(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        return self.normalize(self.data.verts(self.train[items]))

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        return l1_loss(model(batch), batch)

    def normalize(self, verts: Float[Tensor, "*batch vertices 3"]) -> Float[Tensor, "*batch vertices 3"]:
        return (verts - self.mean) / self.deviation

    def restore(self, x: Float[Tensor, "*batch vertices 3"]) -> Float[Tensor, "*batch vertices 3"]:
        """Positions from normalized ones."""
        return x * self.deviation + self.mean

    def reconstruct(
        self, model: nn.Module, verts: Float[Tensor, "*batch vertices 3"]
    ) -> Float[Tensor, "*batch vertices 3"]:
        """Positions through the model and back."""
        return self.restore(model(self.normalize(verts)))

    def evaluate(self, model: nn.Module, split: str = "test") -> Evaluation:
        model.eval()
        chosen = self.split_items(split)

        def errors(items: Tensor) -> Tensor:
            true = self.data.verts(chosen[items].to(self.device))
            return reconstruction_errors(self.reconstruct(model, true), true, self.data.unit_mm).cpu()

        all_errors = torch.cat(in_parts(len(chosen), 64, errors)) if len(chosen) else torch.zeros(0, len(self.mean))
        arrays = {"per_vertex_mm": all_errors.mean(0).numpy(), "per_item_mm": all_errors.mean(1).numpy()}
        return Evaluation(reconstruction_metrics(all_errors), arrays=arrays)

    def samples(self, model: nn.Module, count: int, split: str = "test") -> Any:
        from geoskip.blocks.skips import only
        from geoskip.records.samples import MeshLevel, MeshSamples

        assert isinstance(model, MeshAutoencoder)
        model.eval()
        items = self.split_items(split)[spread_widely(len(self.split_items(split)), count)]
        with torch.inference_mode():
            verts = self.data.verts(items.to(self.device))
            parts = {"input": verts, "full": self.reconstruct(model, verts)}
            if self.config.skip != "none":
                code = model.encode(self.normalize(verts))
                for part in ("affine", "convolution"):
                    with only(model, part):
                        parts[part] = self.restore(model.decode(code))
        names = tuple(self.data.names[item] for item in items.tolist())
        arrays = {name: part.cpu().numpy() for name, part in parts.items()}
        levels: tuple[MeshLevel, ...] = ()
        if self.given_levels is None:  # their faces are not known
            meshes = self.template.meshes
            # Vertices of each level, numbered in the finest mesh.
            kept = list(accumulate(meshes.kept, lambda finer, own: finer[own]))
            levels = tuple(MeshLevel(own, mesh.faces) for own, mesh in zip(kept, meshes.levels[1:], strict=True))
        return MeshSamples(names, self.data.template.faces, self.data.unit_mm, arrays, levels)

    def context_fields(self) -> dict[str, Any]:
        template = self.data.template
        tensors = {"mean": self.mean, "deviation": self.deviation, "faces": torch.tensor(template.faces)}
        return {**tensors, "unit_mm": self.data.unit_mm, "topology": template.topology_hash()}

    @classmethod
    def program(cls, config: Config, model: nn.Module, context: Context) -> Program:
        assert isinstance(context, MeshContext)
        mean, deviation = context.mean.cpu(), context.deviation.cpu()
        # Two different meshes: torch.export takes an axis of length 1 for a constant.
        example = torch.stack([mean, mean + deviation])
        module = ReconstructionProgram(model, mean, deviation).eval()
        return Program(module, example, {0: torch.export.Dim("meshes", min=1)})


def stored_levels(config: Config, weights: Mapping[str, Tensor]) -> Hierarchy:
    """The levels among the weights of an autoencoder; ValueError if they lack what the operator needs."""
    hierarchy = record_from_buffers(Hierarchy, weights, "hierarchy.")
    check_hierarchy(hierarchy, "hierarchy")
    length, uses_pseudo = spiral_length(config), operator_info(config.operator).uses_pseudo
    dims = [None if level.pseudo is None else level.pseudo.shape[1] for level in hierarchy.levels]
    for k, level in enumerate(hierarchy.levels):
        if length is not None and (level.spirals is None or level.spirals.shape[1] < length):
            raise ValueError(f"hierarchy.levels[{k}]: spirals of {length} vertices are needed")
        if dims[k] != dims[0] or (uses_pseudo and dims[k] is None):
            raise ValueError(f"hierarchy.levels[{k}]: other pseudo-coordinates than the operator needs")
    return hierarchy


def _same_edges(one: Graph, other: Graph) -> bool:
    """Whether two graphs join the same vertices."""
    keys = [(g.pattern.receivers * g.num_vertices + g.pattern.senders).sort().values for g in (one, other)]
    return one.num_vertices == other.num_vertices and torch.equal(*keys)


class ReconstructionProgram(nn.Module):
    """Positions to positions, ``[meshes, vertices, 3]``."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: nn.Module, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def forward(self, verts: Float[Tensor, "meshes vertices 3"]) -> Float[Tensor, "meshes vertices 3"]:
        return self.model((verts - self.mean) / self.deviation) * self.deviation + self.mean
