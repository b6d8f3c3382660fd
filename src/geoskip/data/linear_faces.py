"""Faces in linear form: small to keep, decoded by batch on any device, with nothing but torch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from geoskip.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class LinearFaces:
    """Frame t of subject s(t) is x_t = B_s(t) + Σ_a c_ta D_a; the ``Shapes`` of a mesh set.

    rests: B, the subjects at rest.
    displacements: D, where each action at full strength moves each vertex; the same for all subjects.
    coefficients: c.
    subject: s, the subject of each frame.
    """

    rests: Float[Tensor, "subjects vertices 3"]
    displacements: Float[Tensor, "actions vertices 3"]
    coefficients: Float[Tensor, "items actions"]
    subject: Int[Tensor, " items"]

    def __len__(self) -> int:
        return len(self.subject)

    def decode(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """Positions of the chosen frames, by one matrix product."""
        items = items.to(self.subject.device)
        rests = self.neutral(items).flatten(1)
        moved = torch.addmm(rests, self.coefficients[items], self.displacements.flatten(1))
        return moved.unflatten(1, self.rests.shape[1:])

    def neutral(self, items: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen vertices 3"]:
        """The subjects of the chosen frames at rest."""
        return self.rests[self.subject[items.to(self.subject.device)]]

    def to(self, device: torch.device | str) -> "LinearFaces":
        moved = (part.to(device) for part in (self.rests, self.displacements, self.coefficients, self.subject))
        return LinearFaces(*moved)
