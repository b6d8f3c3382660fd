"""Shape reconstruction: meshes of one connectivity through a short code, the paper's Table 1."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss

from geoskip.data import MeshSet
from geoskip.data.template import Template, prepare_template
from geoskip.graphs import attach, target_degree
from geoskip.models import MeshAutoencoder
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.metrics import reconstruction_errors, reconstruction_metrics
from geoskip.training.tasks.base import Evaluation, Task, chosen_split, in_parts, load_data, spread_evenly

# Coordinates that hardly move are divided by this share of the usual deviation instead of their own, which may be 0.
LEAST_DEVIATION = 1e-3
CHANNELS = (32, 32, 32, 64)


class Reconstruction(Task):
    """L1 loss of standardised positions: each coordinate of each vertex less its mean over the training items, divided
    by its standard deviation there."""

    Model = MeshAutoencoder
    from_data = ("hierarchy", "in_channels")
    own: ClassVar[Mapping[str, str]] = {"factors": "Sequence[int]"}

    def __init__(self, config: Config, data: MeshSet | None = None) -> None:
        self.config = config
        self.check()
        data = load_data(config) if data is None else data
        self.data = replace(data, split=chosen_split(data.split, config, data.names))
        self.names = [self.data.names[item] for item in self.data.split.train.tolist()]
        mean, deviation = self.data.moments()
        self.mean: Tensor = mean
        usual = float(deviation.square().mean().sqrt()) or 1.0
        self.deviation = deviation.clamp(min=LEAST_DEVIATION * usual)
        self.train = self.data.split.train
        self.device = torch.device("cpu")

    @property
    def num_items(self) -> int:
        return len(self.train)

    @cached_property
    def template(self) -> Template:
        """The levels of the set's template, with what the operator needs."""
        channels = self.config.model.get("channels", CHANNELS)
        factors = self.config.model.get("factors", (4,) * len(channels))
        template = prepare_template(self.data.template, factors, spiral_length=self.spiral_length())
        if self.config.pseudo == "position":
            return template
        levels = tuple(attach(level, target_degree(level)) for level in template.hierarchy.levels)
        return replace(template, hierarchy=replace(template.hierarchy, levels=levels))

    def build(self) -> nn.Module:
        return MeshAutoencoder(self.template.hierarchy, **self.chosen())

    def outline(self) -> nn.Module:
        assert self.template  # part of the data, so it must exist before weights are only outlined
        return super().outline()

    def to(self, device: torch.device | str) -> Reconstruction:
        moved = copy(self)
        moved.device, moved.data = torch.device(device), self.data.to(device)
        moved.mean, moved.deviation = self.mean.to(device), self.deviation.to(device)
        moved.train = self.train.to(device)
        return moved

    def batch(self, items: Int[Tensor, " items"]) -> Float[Tensor, "items vertices 3"]:
        return self.standardise(self.data.verts(self.train[items]))

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        return l1_loss(model(batch), batch)

    def standardise(self, verts: Float[Tensor, "*batch vertices 3"]) -> Float[Tensor, "*batch vertices 3"]:
        return (verts - self.mean) / self.deviation

    def restore(self, x: Float[Tensor, "*batch vertices 3"]) -> Float[Tensor, "*batch vertices 3"]:
        """Positions from standardised ones."""
        return x * self.deviation + self.mean

    def reconstruct(
        self, model: nn.Module, verts: Float[Tensor, "*batch vertices 3"]
    ) -> Float[Tensor, "*batch vertices 3"]:
        """Positions through the model and back."""
        return self.restore(model(self.standardise(verts)))

    def evaluate(self, model: nn.Module, part: str = "test") -> Evaluation:
        model.eval()
        chosen = self.part(part)

        def errors(items: Tensor) -> Tensor:
            true = self.data.verts(chosen[items].to(self.device))
            return reconstruction_errors(self.reconstruct(model, true), true, self.data.unit_mm).cpu()

        all_errors = torch.cat(in_parts(len(chosen), 64, errors)) if len(chosen) else torch.zeros(0, len(self.mean))
        arrays = {"per_vertex_mm": all_errors.mean(0).numpy(), "per_item_mm": all_errors.mean(1).numpy()}
        return Evaluation(reconstruction_metrics(all_errors), arrays=arrays)

    def samples(self, model: nn.Module, count: int, part: str = "test") -> Any:
        from geoskip.blocks.skips import only
        from geoskip.records.samples import MeshLevel, MeshSamples

        assert isinstance(model, MeshAutoencoder)
        model.eval()
        items = self.part(part)[spread_evenly(len(self.part(part)), count)]
        with torch.inference_mode():
            verts = self.data.verts(items.to(self.device))
            parts = {"input": verts, "full": self.reconstruct(model, verts)}
            if self.config.skip != "none":
                code = model.encode(self.standardise(verts))
                for part in ("affine", "convolution"):
                    with only(model, part):
                        parts[part] = self.restore(model.decode(code))
        names = tuple(self.data.names[item] for item in items.tolist())
        arrays = {name: part.cpu().numpy() for name, part in parts.items()}
        meshes = self.template.meshes
        # A level keeps some vertices of the one before, those some of the finest.
        kept = list(accumulate(meshes.kept, lambda finer, own: finer[own]))
        levels = tuple(MeshLevel(own, mesh.faces) for own, mesh in zip(kept, meshes.levels[1:], strict=True))
        return MeshSamples(names, self.data.template.faces, self.data.unit_mm, arrays, levels)

    def constants(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "deviation": self.deviation}

    def facts(self) -> dict[str, Any]:
        return {"unit_mm": self.data.unit_mm, "topology": self.data.template.topology_hash()}
