"""Dense correspondence: each vertex of a mesh is classified as one of the target's, the paper's experiment on FAUST."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.data import CorrespondenceSet
from geoskip.graphs import Graph, attach
from geoskip.kernels import linear_cross_entropy
from geoskip.meshes.mesh import Mesh
from geoskip.models import CorrespondenceNet
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.metrics import correspondence_metrics, geodesic_curve, geodesic_errors
from geoskip.training.packed import GraphStore, own_scale, relative, store_graphs
from geoskip.training.tasks.base import Evaluation, Task, chosen_split, load_data, spread_evenly


class Correspondence(Task):
    """Cross-entropy, averaged over the labelled vertices of each mesh and then over meshes.

    Features are positions, and pseudo-coordinates are relative to the longest offset of each mesh, as in the paper.
    """

    Model = CorrespondenceNet
    from_data = ("num_classes", "graph", "dim", "in_channels")

    def __init__(self, config: Config, data: CorrespondenceSet | None = None) -> None:
        self.config = config
        self.check()
        data = load_data(config) if data is None else data
        self.data = replace(data, split=chosen_split(data.split, config, data.names))
        self.device = torch.device("cpu")
        train = self.data.split.train.tolist()
        self.names = [self.data.names[item] for item in train]
        self.labels = torch.cat([self.data.labels[item] for item in train])
        counts = torch.stack([(self.data.labels[item] >= 0).sum() for item in train])
        self.shares = 1 / counts.clamp(min=1)
        self.store = self._store(train)

    @property
    def num_items(self) -> int:
        return len(self.data.split.train)

    def _store(self, items: list[int]) -> GraphStore:
        meshes = [self.data.meshes[item] for item in items]
        graphs = self._connected(meshes)
        verts = [torch.tensor(mesh.verts, dtype=torch.float32) for mesh in meshes]
        coordinates = self.config.pseudo if self.operator.uses_pseudo else None
        return store_graphs(graphs, verts, coordinates, looped=self.operator.adds_self_loops, padded=False)

    def _connected(self, meshes: Sequence[Mesh]) -> list[Graph]:
        """The graph of each mesh: for those of one connectivity that of the first."""
        kinds = [mesh.topology_hash() for mesh in meshes]
        shared = {kind: self._connect(meshes[kinds.index(kind)]) for kind in dict.fromkeys(kinds)}
        return [shared[kind] for kind in kinds]

    def _connect(self, mesh: Mesh) -> Graph:
        graph = Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
        if (length := self.spiral_length()) is None:
            return graph
        from geoskip.meshes.spirals import spirals

        return graph.with_spirals(torch.tensor(spirals(mesh, length)))

    def graph(self, mesh: Mesh) -> Graph:
        """A mesh as the model takes it, on the CPU."""
        graph = self._connect(mesh)
        if not self.operator.uses_pseudo:
            return graph
        verts = torch.tensor(mesh.verts, dtype=torch.float32)
        pos = verts if self.config.pseudo == "position" else None
        return attach(graph, relative(graph, pos, own_scale(graph, pos)))

    def build(self) -> nn.Module:
        dim = 3 if self.config.pseudo == "position" else 1
        return CorrespondenceNet(self.data.num_classes, dim=dim, **self.chosen())

    def to(self, device: torch.device | str) -> Correspondence:
        moved = copy(self)
        moved.device = torch.device(device)
        moved.labels, moved.shares = self.labels.to(device), self.shares.to(device)
        moved.store = self.store.to(device, padded=moved.device.type == "cuda")
        return moved

    def batch(self, items: Int[Tensor, " items"]) -> tuple[Any, Tensor, Tensor]:
        packed = self.store.batch(items)
        verts = packed.verts[0]
        shares = verts.spread(self.shares[items]) / len(items)
        return packed, verts.take(self.labels, padding=-1), shares

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        packed, labels, shares = batch
        assert isinstance(model, CorrespondenceNet)
        features = model.features(packed.x, packed.graphs.levels[0])
        # The scores, one for each pair of vertices, are the largest tensor by far: they are held once.
        return linear_cross_entropy(features, model.output.weight, model.output.bias, labels, shares)

    def predict(self, model: nn.Module, mesh: Mesh) -> Int[Tensor, " vertices"]:
        """The target vertex that each vertex of a mesh is matched with."""
        return self.scores(model, mesh).argmax(-1).cpu()

    def scores(self, model: nn.Module, mesh: Mesh) -> Float[Tensor, "vertices targets"]:
        """The score of every target vertex for each vertex of a mesh."""
        verts = torch.tensor(mesh.verts, dtype=torch.float32, device=self.device)
        with torch.inference_mode():
            return model(verts, self.graph(mesh).to(self.device))

    @cached_property
    def distances(self) -> Float[Tensor, "targets targets"]:
        """Geodesic distances between all vertices of the target, out of the cache when they were computed before."""
        from geoskip.data.geodesics import geodesics

        return torch.from_numpy(geodesics(self.data.target))

    def evaluate(self, model: nn.Module, part: str = "test") -> Evaluation:
        model.eval()
        chosen = self.part(part).tolist()
        if not chosen:
            raise ValueError(f"data: {self.config.data} has no items for the {part}")
        predicted = [self.predict(model, self.data.meshes[item]) for item in chosen]
        matches, labels = torch.cat(predicted), torch.cat([self.data.labels[item] for item in chosen])
        errors = geodesic_errors(matches, labels, self.distances)
        sizes = torch.tensor([0, *map(len, predicted)])
        arrays = {
            "predicted": matches.numpy(),
            "offsets": sizes.cumsum(0).numpy(),
            "error_pct": _where_labelled(errors, labels).numpy(),
        }
        return Evaluation(
            correspondence_metrics(matches, labels, errors), {"geodesic": geodesic_curve(errors)}, arrays=arrays
        )

    def samples(self, model: nn.Module, count: int, part: str = "test") -> Any:
        from geoskip.records.samples import CorrespondenceSamples

        model.eval()
        items = self.part(part)[spread_evenly(len(self.part(part)), count)].tolist()
        return CorrespondenceSamples(
            meshes=tuple(self._sample(model, item) for item in items),
            target_verts=self.data.target.verts.astype("float32"),
            target_faces=self.data.target.faces,
        )

    def _sample(self, model: nn.Module, item: int) -> Any:
        from geoskip.records.samples import MatchedMesh

        mesh, labels = self.data.meshes[item], self.data.labels[item]
        predicted = self.predict(model, mesh)
        errors = _where_labelled(geodesic_errors(predicted, labels, self.distances), labels)
        return MatchedMesh(
            name=self.data.names[item],
            verts=mesh.verts.astype("float32"),
            faces=mesh.faces,
            predicted=predicted.numpy(),
            labels=labels.numpy(),
            error_pct=errors.numpy(),
        )

    def facts(self) -> dict[str, Any]:
        return {"unit_mm": self.data.unit_mm, "target_topology": self.data.target.topology_hash()}


def _where_labelled(values: Float[Tensor, " labelled"], labels: Int[Tensor, " vertices"]) -> Float[Tensor, " vertices"]:
    """Values of the labelled vertices among all, NaN for those without a label."""
    spread = values.new_full(labels.shape, float("nan"))
    spread[labels >= 0] = values
    return spread
