"""Shapes made of blend shapes and a few bones: small to keep, decoded by batch on any device, with nothing but torch."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from geoskip.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class SkinnedShapes:
    """Linear blend skinning; the ``Shapes`` of a mesh set. Frame t of subject s(t) is

        x_tv = b_tv + Σ_j w_vj (M_tk b_tv + p_tk)  with  b_t = B_s(t) + Σ_a c_ta D_a  and  k = k(v, j).

    A bone that rotates by R about its head h and then moves by q has M = R - 1 and p = h - R h + q, so that zeros mean
    rest, and what no bone moves needs no weight.

    rests: B, the subjects at rest.
    displacements: D, where each action at full strength moves each vertex; the same for all subjects.
    coefficients: c.
    subject: s, the subject of each frame.
    bones: k, the bones that move each vertex.
    weights: w, how much of each bone's motion the vertex takes.
    transforms: M and p side by side, for each bone.
    """

    rests: Float[Tensor, "subjects vertices 3"]
    displacements: Float[Tensor, "actions vertices 3"]
    coefficients: Float[Tensor, "items actions"]
    subject: Int[Tensor, " items"]
    bones: Int[Tensor, "vertices few"]
    weights: Float[Tensor, "vertices few"]
    transforms: Float[Tensor, "items bones 3 4"]

    def __len__(self) -> int:
        return len(self.subject)

    def decode(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """Positions of the chosen frames."""
        items = items.to(self.subject.device)
        rests = self.neutral(items)
        moved = torch.addmm(rests.flatten(1), self.coefficients[items], self.displacements.flatten(1))
        moved = moved.unflatten(1, rests.shape[1:])
        # Weighted one bone at a time, and not by a matrix product, which TensorFloat-32 would round to centimeters.
        transforms = self.transforms[items]
        result = moved
        for bone, weight in zip(self.bones.T, self.weights.T, strict=True):
            matrix, shift = transforms[:, bone].split((3, 1), dim=-1)
            turned = (matrix * moved.unsqueeze(2)).sum(-1) + shift.squeeze(-1)
            result = result + weight.unsqueeze(-1) * turned
        return result

    def neutral(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """The subjects of the chosen frames at rest."""
        return self.rests[self.subject[items.to(self.subject.device)]]

    def to(self, device: torch.device | str) -> "SkinnedShapes":
        return SkinnedShapes(*(getattr(self, field.name).to(device) for field in fields(self)))


def strongest_bones(
    weights: Float[Tensor, "vertices bones"],
) -> tuple[Int[Tensor, "vertices few"], Float[Tensor, "vertices few"]]:
    """``bones`` and ``weights`` of :class:`SkinnedShapes` from a dense matrix: as many as the busiest vertex has."""
    few = max(int((weights != 0).sum(1).max()), 1)
    values, bones = weights.sort(dim=1, descending=True, stable=True)
    return bones[:, :few].contiguous(), values[:, :few].contiguous()
