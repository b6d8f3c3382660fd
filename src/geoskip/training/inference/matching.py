"""Vertices of any mesh matched with those of the target that a model was trained on."""

import numpy as np

from geoskip.meshes import Mesh
from geoskip.shapes import Int, Shaped
from geoskip.training.inference.opening import wants
from geoskip.training.pretrained import Trained
from geoskip.training.tasks.correspondence import Correspondence


class Matcher(Correspondence):
    """The correspondence task without its data: meshes become graphs here exactly as they did in training."""

    def __init__(self, trained: Trained) -> None:
        wants(trained, "correspondence", "matching meshes")
        self.config, self.model, self.device = trained.config, trained.model, trained.device
        constants = trained.context.constants
        self.target = Mesh(constants["target_verts"].numpy(), constants["target_faces"].numpy())

    def match(self, mesh: Mesh) -> Int[np.ndarray, " vertices"]:
        """The target's vertex that each vertex of ``mesh`` is matched with."""
        return self.predict(self.model, mesh).numpy()

    def transfer(
        self, mesh: Mesh, values: Shaped[np.ndarray, "targets *channels"]
    ) -> Shaped[np.ndarray, "vertices *channels"]:
        """Values at the target's vertices, such as labels of parts, carried to the vertices of ``mesh``."""
        self.check_values(values)
        return values[self.match(mesh)]

    def check_values(self, values: Shaped[np.ndarray, "targets *channels"], name: str = "values") -> None:
        """ValueError unless there is one value for each vertex of the target."""
        if len(values) != self.target.num_vertices:
            wanted = f"{self.target.num_vertices} values, one for each vertex of the target"
            raise ValueError(f"{name}: expected {wanted}, got {len(values)}")
