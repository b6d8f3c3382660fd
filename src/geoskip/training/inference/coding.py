"""Meshes to latent codes and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from geoskip.data.template import TemplateError
from geoskip.meshes import Mesh
from geoskip.models import MeshAutoencoder
from geoskip.shapes import Float
from geoskip.training.inference.opening import wants
from geoskip.training.pretrained import Trained

# Meshes at once: bounds the memory that thousands of files would take.
CHUNK = 32


class MeshCoder:
    """An autoencoder with the standardisation that it was trained with; positions are in the units of its data."""

    def __init__(self, trained: Trained) -> None:
        wants(trained, "reconstruction", "coding meshes")
        assert isinstance(trained.model, MeshAutoencoder)
        self.model, self.device = trained.model, trained.device
        constants = {name: tensor.to(self.device) for name, tensor in trained.context.constants.items()}
        self.mean, self.deviation = constants["mean"], constants["deviation"]
        self.template = Mesh(self.mean.double().cpu().numpy(), constants["faces"].cpu().numpy())
        self.unit_mm: float = trained.context.facts["unit_mm"]

    @property
    def latent(self) -> int:
        return self.model.latent

    def check(self, mesh: Mesh, name: str = "mesh") -> None:
        """TemplateError unless ``mesh`` has the vertex count and the faces of the training meshes, in their order."""
        if mesh.topology_hash() == self.template.topology_hash():
            return
        if mesh.num_vertices != self.template.num_vertices:
            fault = f"{mesh.num_vertices} vertices, and the model was trained on meshes of {self.template.num_vertices}"
        else:
            fault = (
                "another connectivity than the model was trained on: its faces, or the order of its vertices, differ"
            )
        raise TemplateError(
            f"{name}: {fault}; export the mesh with the vertex order of the training meshes kept, or train a model on "
            "meshes of this template"
        )

    def encode(self, verts: Float[Tensor, "meshes vertices 3"]) -> Float[Tensor, "meshes latent"]:
        return self._in_parts(verts, lambda part: self.model.encode((part - self.mean) / self.deviation))

    def decode(self, codes: Float[Tensor, "meshes latent"]) -> Float[Tensor, "meshes vertices 3"]:
        return self._in_parts(codes, lambda part: self.model.decode(part) * self.deviation + self.mean)

    def reconstruct(self, verts: Float[Tensor, "meshes vertices 3"]) -> Float[Tensor, "meshes vertices 3"]:
        return self.decode(self.encode(verts))

    def meshes(self, verts: Float[Tensor, "meshes vertices 3"]) -> list[Mesh]:
        """Positions with the faces of the training meshes."""
        return [self.template.with_verts(one) for one in verts.double().numpy()]

    def _in_parts(self, items: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.inference_mode():
            parts = [function(part.to(self.device)).cpu() for part in items.float().split(CHUNK)]
        return torch.cat(parts)


def interpolated(
    first: Float[Tensor, " latent"], last: Float[Tensor, " latent"], steps: int
) -> Float[Tensor, "steps latent"]:
    """``steps`` codes on the straight line from ``first`` to ``last``, both included."""
    if steps < 2:
        raise ValueError(f"steps: an interpolation has at least 2, its two ends, got {steps}")
    return torch.stack([first.lerp(last, k / (steps - 1)) for k in range(steps)])


def verts_of(meshes: list[Mesh]) -> Float[Tensor, "meshes vertices 3"]:
    return torch.from_numpy(np.stack([mesh.verts for mesh in meshes])).float()
