"""The mesh autoencoder: shapes, gradients, what a checkpoint carries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.blocks import AffineSkip
from geoskip.graphs import Graph, SparseMatrix
from geoskip.graphs.graph_hierarchy import Hierarchy
from geoskip.meshes import icosphere
from geoskip.meshes.hierarchy import mesh_hierarchy
from geoskip.models import GlorotLinear, MeshAutoencoder
from tests.models.small import OPERATORS, autoencoder, hierarchy, name
from tests.specimens import features

X = features(2, 42, 3, dtype=torch.float32)


def test_encode_and_decode_are_the_two_halves() -> None:
    model = autoencoder(operator="monet", kernel_size=3, skip="affine")
    code = model.encode(X)
    assert code.shape == (2, 5)
    assert model.decode(code).shape == (2, 42, 3)
    assert torch.equal(model.decode(code), model(X))


def test_matches_the_architecture_written_out() -> None:
    """The docstring's arrows, one after the other."""
    model = autoencoder(operator="gcn", skip="none")
    levels, down, up = hierarchy().levels, hierarchy().down, hierarchy().up
    elu = nn.functional.elu
    x = down[0] @ elu(model.encoder[0](X, levels[0]))
    x = down[1] @ elu(model.encoder[1](x, levels[1]))
    code = model.to_code(x.reshape(2, 8 * 6))
    x = model.from_code(code).reshape(2, 8, 6)
    x = elu(model.decoder[0](up[1] @ x, levels[1]))
    x = elu(model.decoder[1](up[0] @ x, levels[0]))
    assert_close(model(X), model.output(x, levels[0]))
    assert [conv.in_channels for conv in model.decoder] == [6, 6]
    assert [conv.out_channels for conv in model.decoder] == [6, 4]


def test_paper_widths() -> None:
    four = Hierarchy.from_meshes(mesh_hierarchy(icosphere(2), targets=(80, 40, 20, 10)))
    model = MeshAutoencoder(four, operator="gcn")
    widths = [(conv.in_channels, conv.out_channels) for conv in [*model.encoder, *model.decoder, model.output]]
    assert widths == [(3, 32), (32, 32), (32, 32), (32, 64), (64, 64), (64, 32), (32, 32), (32, 32), (32, 3)]
    assert (model.to_code.in_features, model.to_code.out_features) == (10 * 64, 16)


def test_a_checkpoint_of_another_topology_is_refused() -> None:
    """Of the same size; neither the model nor the hierarchy that it was made from changes."""
    saved = autoencoder(operator="monet", kernel_size=3)
    given = _relabelled(hierarchy(), torch.arange(41, -1, -1))
    chosen: dict[str, Any] = {"operator": "monet", "kernel_size": 3, "channels": (4, 6), "latent": 5}
    other, twin = (MeshAutoencoder(given, **chosen) for _ in range(2))
    senders, y = given.levels[0].pattern.senders.clone(), twin(X)
    with pytest.raises(RuntimeError, match=r"hierarchy: the weights were saved for another topology of the same size"):
        other.load_state_dict(saved.state_dict())
    assert torch.equal(given.levels[0].pattern.senders, senders)
    assert torch.equal(other.hierarchy().levels[0].pattern.senders, senders)
    assert torch.equal(twin(X), y)


def test_a_checkpoint_carries_the_values_of_the_hierarchy() -> None:
    saved, own = autoencoder(operator="monet", kernel_size=3), hierarchy()
    thick = replace(own, up=tuple(replace(step, values=2 * step.values) for step in own.up))
    other = MeshAutoencoder(thick, operator="monet", kernel_size=3, channels=(4, 6), latent=5)
    other.load_state_dict(saved.state_dict())
    assert torch.equal(other(X), saved(X))
    assert torch.equal(thick.up[0].values, 2 * own.up[0].values)


def _relabelled(given: Hierarchy, labels: Tensor) -> Hierarchy:
    """Vertex v of the finest level is called ``labels[v]``."""
    finest, down, up = given.levels[0], given.down[0], given.up[0]
    assert finest.spirals is not None
    spirals = torch.empty_like(finest.spirals)
    spirals[labels] = torch.where(finest.spirals < 0, finest.spirals, labels[finest.spirals])
    level = Graph.from_edge_index(labels[finest.edge_index], 42, finest.pseudo, spirals)
    down = SparseMatrix.from_entries(down.pattern.receivers, labels[down.pattern.senders], down.values, (20, 42))
    up = SparseMatrix.from_entries(labels[up.pattern.receivers], up.pattern.senders, up.values, (42, 20))
    return Hierarchy.from_matrices([level, *given.levels[1:]], [down, given.down[1]], [up, given.up[1]])


@pytest.mark.parametrize("chosen", OPERATORS, ids=name)
def test_relabelling_the_template_relabels_the_meshes(chosen: dict[str, Any]) -> None:
    labels = torch.randperm(42, generator=torch.Generator().manual_seed(1))
    model = autoencoder(skip="affine", **chosen).double()
    twin = MeshAutoencoder(_relabelled(hierarchy(), labels), skip="affine", channels=(4, 6), latent=5, **chosen)
    weights = {key: value for key, value in model.state_dict().items() if not key.startswith("hierarchy")}
    missing, unexpected = twin.double().load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(key.startswith("hierarchy") for key in missing)
    x = features(2, 42, 3)
    moved = torch.empty_like(x)
    moved[:, labels] = x
    assert_close(twin(moved)[:, labels], model(x), atol=1e-12, rtol=1e-12)


def test_double_moves_the_template_too() -> None:
    model = autoencoder(operator="monet", kernel_size=3, skip="affine").double()
    assert model.hierarchy().levels[0].pseudo.dtype == torch.float64
    assert model(X.double()).dtype == torch.float64


def test_own_operator_and_its_skip() -> None:
    """A function of the channels stands in for a name."""

    class Alone(nn.Module):
        def __init__(self, in_channels: int, out_channels: int) -> None:
            super().__init__()
            self.linear = nn.Linear(in_channels, out_channels, bias=False)

        def forward(self, x: Tensor, graph: object) -> Tensor:
            return self.linear(x)

    model = autoencoder(operator=lambda i, o: AffineSkip(Alone(i, o), i, o))
    assert isinstance(model.encoder[0], AffineSkip)
    assert model(X).shape == X.shape
    with pytest.raises(ValueError, match="kernel_size, self_loops: for an operator given by name"):
        autoencoder(operator=Alone, kernel_size=3, self_loops=False)


def test_a_convolution_of_pytorch_geometric_is_refused() -> None:
    """It takes an edge_index, and says nothing useful about a Graph."""
    with pytest.raises(TypeError, match=r"operator: the networks call conv\(x, graph\), but GCNConv of PyTorch Geom"):
        MeshAutoencoder(hierarchy(), operator=pyg_nn.GCNConv, channels=(4, 6))


def test_linear_layers_start_as_glorot_says() -> None:
    torch.manual_seed(0)
    layer = GlorotLinear(200, 100)
    bound = (6 / 300) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert torch.equal(layer.bias, torch.zeros(100))
