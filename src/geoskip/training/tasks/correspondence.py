"""Dense correspondence: each vertex of a mesh is classified as one of the target's, the paper's experiment on FAUST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from geoskip.data import CorrespondenceSet
from geoskip.graphs import Graph, RecordBuffers, attach
from geoskip.kernels import linear_cross_entropy
from geoskip.kernels.packing import relative_coordinates
from geoskip.meshes.mesh import Mesh
from geoskip.models import CorrespondenceNet
from geoskip.operators import operator_info
from geoskip.shapes import Float, Int
from geoskip.training.config import Config, Optim
from geoskip.training.graph_store import GraphStore, own_scale, store_graphs
from geoskip.training.metrics import correspondence_metrics, geodesic_curve, geodesic_errors
from geoskip.training.tasks.base import Context, Evaluation, Program, Task, spiral_length, spread_widely


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchContext(Context):
    """What a correspondence network needs to know about its meshes.

    target_verts, target_faces: the mesh whose vertices are the classes.
    unit_mm: millimeters per unit of the positions.
    target_topology: hash of the faces of the target.
    """

    target_verts: Tensor
    target_faces: Tensor
    unit_mm: float
    target_topology: str

    def __post_init__(self) -> None:
        self._check_rows("target_verts", torch.float64)
        self._check_rows("target_faces", torch.int64)
        self._check_range("unit_mm", positive=True)
        self.target()  # checks the faces

    def target(self) -> Mesh:
        return Mesh(self.target_verts.cpu().numpy(), self.target_faces.cpu().numpy())

    def check_model(self, model: nn.Module) -> None:
        assert isinstance(model, CorrespondenceNet)
        if len(self.target_verts) != (size := model.output.out_features):
            raise ValueError(f"context: {len(self.target_verts)} target vertices, but the model has {size}")


class Correspondence(Task):
    """Cross-entropy, averaged over the labelled vertices of each mesh and then over meshes.

    Features are positions in meters, and pseudo-coordinates are relative to the longest offset of each mesh, as in the
    paper. The unit of the files makes no difference.
    """

    name = "correspondence"
    model_class = CorrespondenceNet
    context_class = MatchContext
    from_data = ("num_classes", "in_channels", "dim", "graph")
    actions: ClassVar[Mapping[str, Any]] = {"transfer": "geoskip.inference.apply:transfer"}
    output_layer = "output"
    data: CorrespondenceSet

    def __init__(self, config: Config, data: CorrespondenceSet | None = None) -> None:
        super().__init__(config, data)
        train = self.train.tolist()
        self.labels = torch.cat([self.data.labels[item] for item in train])
        counts = torch.stack([(self.data.labels[item] >= 0).sum() for item in train])
        self.shares = 1 / counts.clamp(min=1)
        self.store = self._store([self.data.meshes[item] for item in train])

    @classmethod
    def defaults(cls, operator: str) -> dict[str, Any]:
        # The paper trains FeaStNet with rates of its own.
        rates: dict[str, Any] = {"lr": 0.01, "lr_decay": 0.5, "decay_every": 100} if operator == "feast" else {}
        return {"data": "bodies", "kernel_size": 10, "optim": Optim(epochs=1000, batch_size=1, **rates)}

    def _store(self, meshes: Sequence[Mesh]) -> GraphStore:
        # Meshes of one connectivity share a graph.
        topologies = [mesh.topology_hash() for mesh in meshes]
        unique = {key: connect(meshes[topologies.index(key)], self.config) for key in dict.fromkeys(topologies)}
        verts = [in_meters(mesh, self.data.unit_mm) for mesh in meshes]
        operator = operator_info(self.config.operator)
        coordinates = self.config.pseudo if operator.uses_pseudo else None
        graphs = [unique[key] for key in topologies]
        return store_graphs(graphs, verts, coordinates, looped=operator.adds_self_loops)

    def model_arguments(self) -> dict[str, Any]:
        dim = 3 if self.config.pseudo == "position" else 1
        return {"num_classes": self.data.num_classes, "dim": dim, "in_channels": 3}

    def to(self, device: torch.device | str) -> Correspondence:
        moved = cast(Correspondence, super().to(device))
        moved.store = self.store.to(device, padded=moved.device.type == "cuda")
        return moved

    def prepare(self, num_items: int) -> None:
        self.store.prepare(num_items)

    def batch(self, items: Int[Tensor, " items"]) -> tuple[Any, Tensor, Tensor]:
        packed = self.store.batch(items)
        verts = packed.verts[0]
        shares = verts.spread(self.shares[items]) / len(items)
        return packed, verts.take(self.labels, padding=-1), shares

    def before_training(self) -> None:
        _ = self.distances

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        packed, labels, shares = batch
        assert isinstance(model, CorrespondenceNet)
        features = model.features(packed.x, packed.graphs.levels[0])
        # The scores, one for each pair of vertices, are the largest tensor by far: they are held once.
        return linear_cross_entropy(features, model.output.weight, model.output.bias, labels, shares)

    def predict(self, model: nn.Module, mesh: Mesh) -> Int[Tensor, " vertices"]:
        """The target vertex that each vertex of a mesh is matched with."""
        return match_scores(model, mesh, self.config, self.data.unit_mm).argmax(-1).cpu()

    @cached_property
    def distances(self) -> Float[Tensor, "targets targets"]:
        """Geodesic distances between all vertices of the target, out of the cache when they were computed before."""
        from geoskip.data import geodesics

        return torch.from_numpy(geodesics(self.data.target))

    def evaluate(self, model: nn.Module, split: str = "test") -> Evaluation:
        model.eval()
        chosen = self.split_items(split).tolist()
        if not chosen:
            raise ValueError(f"data: {self.config.data} has no items for the {split}")
        predicted = [self.predict(model, self.data.meshes[item]) for item in chosen]
        matches, labels = torch.cat(predicted), torch.cat([self.data.labels[item] for item in chosen])
        errors = geodesic_errors(matches, labels, self.distances)
        sizes = list(map(len, predicted))
        by_vertex = _where_labelled(errors, labels)
        correct = torch.where(labels >= 0, (matches == labels).float(), torch.nan)
        arrays = {
            "predicted": matches.numpy(),
            "offsets": torch.tensor([0, *sizes]).cumsum(0).numpy(),
            "error_pct": by_vertex.numpy(),
            "per_item_accuracy_pct": torch.stack([100 * part.nanmean() for part in correct.split(sizes)]).numpy(),
            "per_item_geodesic_mean_pct": torch.stack([part.nanmean() for part in by_vertex.split(sizes)]).numpy(),
        }
        return Evaluation(
            correspondence_metrics(matches, labels, errors), {"geodesic": geodesic_curve(errors)}, arrays=arrays
        )

    def samples(self, model: nn.Module, count: int, split: str = "test") -> Any:
        from geoskip.records.samples import CorrespondenceSamples

        model.eval()
        items = self.split_items(split)[spread_widely(len(self.split_items(split)), count)].tolist()
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

    def context_fields(self) -> dict[str, Any]:
        target = self.data.target
        tensors = {"target_verts": torch.tensor(target.verts), "target_faces": torch.tensor(target.faces)}
        return {**tensors, "unit_mm": self.data.unit_mm, "target_topology": target.topology_hash()}

    @classmethod
    def program(cls, config: Config, model: nn.Module, context: Context) -> Program:
        assert isinstance(context, MatchContext)
        target = context.target()
        return Program(
            MatchingProgram(model, target, config, context.unit_mm).eval(), torch.tensor(target.verts).float()
        )


def connect(mesh: Mesh, config: Config) -> Graph:
    """The edges of a mesh, with spirals if the operator needs them."""
    graph = Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
    if (length := spiral_length(config)) is None:
        return graph
    from geoskip.meshes import spirals

    return graph.with_spirals(torch.tensor(spirals(mesh, length)))


def mesh_graph(mesh: Mesh, config: Config) -> Graph:
    """A mesh as the model takes it, on the CPU."""
    graph = connect(mesh, config)
    if not operator_info(config.operator).uses_pseudo:
        return graph
    pos = torch.tensor(mesh.verts, dtype=torch.float32) if config.pseudo == "position" else None
    return attach(graph, relative_coordinates(graph.pattern, pos, own_scale(graph, pos)))


def in_meters(mesh: Mesh, unit_mm: float) -> Float[Tensor, "vertices 3"]:
    """Positions as features."""
    return torch.from_numpy(mesh.verts * (unit_mm / 1000)).float()


def match_scores(model: nn.Module, mesh: Mesh, config: Config, unit_mm: float) -> Float[Tensor, "vertices targets"]:
    """The score of every target vertex for each vertex of a mesh, on the model's device."""
    device = next(model.parameters()).device
    with torch.inference_mode():
        return model(in_meters(mesh, unit_mm).to(device), mesh_graph(mesh, config).to(device))


class MatchingProgram(nn.Module):
    """Positions of one mesh of the target's connectivity to scores of the target's vertices."""

    def __init__(self, model: nn.Module, target: Mesh, config: Config, unit_mm: float) -> None:
        super().__init__()
        self.model, self.meters = model, unit_mm / 1000
        # Not ``graph``: a traced module has an attribute of that name.
        self.topology = RecordBuffers(mesh_graph(target, config))
        self.relative = operator_info(config.operator).uses_pseudo and config.pseudo == "position"

    def forward(self, verts: Float[Tensor, "vertices 3"]) -> Float[Tensor, "vertices targets"]:
        graph: Graph = self.topology()
        if self.relative:
            graph = attach(graph, relative_coordinates(graph.pattern, verts, own_scale(graph, verts)))
        return self.model(verts * self.meters, graph)


def _where_labelled(values: Float[Tensor, " labelled"], labels: Int[Tensor, " vertices"]) -> Float[Tensor, " vertices"]:
    """Values of the labelled vertices among all, NaN for those without a label."""
    spread = values.new_full(labels.shape, float("nan"))
    spread[labels >= 0] = values
    return spread
