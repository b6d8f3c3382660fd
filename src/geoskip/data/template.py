"""A template made ready for networks: its levels, the matrices between them, pseudo-coordinates and spirals."""

from collections.abc import Sequence
from dataclasses import dataclass

from geoskip.graphs.hierarchy import Hierarchy
from geoskip.meshes.hierarchy import MeshHierarchy, mesh_hierarchy
from geoskip.meshes.mesh import Mesh

# The paper's largest kernel, M = 14, and the centre, which the operators marked † leave out.
SPIRAL_LENGTH = 15


class TemplateError(ValueError):
    """A file that should hold a template and does not, or a mesh that is not of it; the message says why."""


@dataclass(frozen=True, eq=False)
class Template:
    """What all meshes of one connectivity share.

    meshes: the levels as meshes, and the matrices between them, in float64.
    hierarchy: the same as an operator sees it, in float32, with pseudo-coordinates and, where asked for, spirals.
    unit_mm: millimetres per unit of the coordinates, None where nobody said.
    """

    meshes: MeshHierarchy
    hierarchy: Hierarchy
    unit_mm: float | None = None

    def __post_init__(self) -> None:
        if self.unit_mm is not None and not 0 < self.unit_mm < float("inf"):
            raise ValueError(f"unit_mm is the length of one unit in millimetres, not {self.unit_mm}")

    @property
    def mesh(self) -> Mesh:
        """The finest level."""
        return self.meshes.levels[0]

    def check_fits(self, mesh: Mesh) -> None:
        """TemplateError unless ``mesh`` has the template's vertex count and faces, in the same order.

        A network trained on the template takes any mesh with as many vertices and makes nonsense of it if its
        vertices come in another order. Positions do not matter; nor could they tell.
        """
        if mesh.num_vertices != self.mesh.num_vertices:
            raise TemplateError(f"a mesh of {mesh.num_vertices} vertices under a template of {self.mesh.num_vertices}")
        if mesh.topology_hash() != self.mesh.topology_hash():
            raise TemplateError(
                "a mesh of the template's vertex count but another connectivity: its faces, or the order of its "
                "vertices or faces, differ from the template's, so its vertices do not correspond"
            )


def prepare_template(
    mesh: Mesh,
    factors: Sequence[int] = (4, 4, 4, 4),
    *,
    targets: Sequence[int] | None = None,
    spiral_length: int | None = SPIRAL_LENGTH,
    unit_mm: float | None = None,
) -> Template:
    """Levels by :func:`geoskip.meshes.mesh_hierarchy` and what the operators need on each of them.

    ``spiral_length`` None makes no spirals; only SpiralNet++ needs them, M vertices (M + 1 without the centre).
    """
    meshes = mesh_hierarchy(mesh, factors, targets=targets)
    return Template(meshes, Hierarchy.from_meshes(meshes, spiral_length), unit_mm)
