"""Shapes made of blend shapes and a few bones: small to keep, decoded by batch on any device with torch alone."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from geoskip.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class SkinnedShapes:
    """Linear blend skinning; the ``Shapes`` of a mesh set. Frame t of subject s(t) is

        x_tv = b_tv + Σ_k w_vk (M_tk b_tv + p_tk)  with  b_t = B_s(t) + Σ_a c_ta D_a.

    A bone that rotates by R about its head h and then moves by q has M = R - 1 and p = h - R h + q, so that zeros mean
    rest, and what no bone moves needs no weight.

    rests: B, the subjects at rest.
    displacements: D, where each action at full strength moves each vertex; the same for all subjects.
    coefficients: c.
    subject: s, the subject of each frame.
    weights: w, how much of each bone's motion a vertex takes.
    transforms: M and p side by side, for each bone.
    """

    rests: Float[Tensor, "subjects vertices 3"]
    displacements: Float[Tensor, "actions vertices 3"]
    coefficients: Float[Tensor, "items actions"]
    subject: Int[Tensor, " items"]
    weights: Float[Tensor, "vertices bones"]
    transforms: Float[Tensor, "items bones 3 4"]

    def __len__(self) -> int:
        return len(self.subject)

    def decode(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """Positions of the chosen frames."""
        items = items.to(self.subject.device)
        rests = self.neutral(items)
        moved = torch.addmm(rests.flatten(1), self.coefficients[items], self.displacements.flatten(1))
        moved = moved.unflatten(1, rests.shape[1:])
        # In float64 where a product of float32 may be rounded to TensorFloat-32, which is off by up to a millimeter.
        dtype = torch.float64 if moved.is_cuda else moved.dtype
        transforms = self.transforms[items].flatten(2)
        blended = (self.weights.to(dtype) @ transforms.to(dtype)).to(moved.dtype).unflatten(2, (3, 4))
        matrix, shift = blended.split((3, 1), dim=-1)
        return moved + (matrix * moved.unsqueeze(2)).sum(-1) + shift.squeeze(-1)

    def neutral(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """The subjects of the chosen frames at rest."""
        return self.rests[self.subject[items.to(self.subject.device)]]

    def to(self, device: torch.device | str) -> "SkinnedShapes":
        return SkinnedShapes(*(getattr(self, field.name).to(device) for field in fields(self)))
