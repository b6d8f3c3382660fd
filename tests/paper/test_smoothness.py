"""Smoothness of a model's filters: which are found, and that they are those that the layers apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from geoskip.graphs import Graph
from geoskip.operators import ChebConv, GCNConv, MoNetConv, SplineConv, make_operator
from geoskip.paper.findings import by_method
from geoskip.paper.measures import run_smoothness
from geoskip.paper.smoothness import (
    edge_pseudo,
    filter_roughness,
    kernel_grams,
    model_smoothness,
    overall,
)
from tests.models.small import autoencoder
from tests.paper.small_run import small_run
from tests.specimens import features


@pytest.mark.parametrize("skip", ["none", "affine"])
@pytest.mark.parametrize("chosen", [("monet", 4), ("spline", 3), ("cheb", 4)])
def test_every_layer_is_found_under_one_name(chosen: tuple[str, int], skip: str) -> None:
    rows = model_smoothness(autoencoder(operator=chosen[0], kernel_size=chosen[1], skip=skip))
    assert [row.layer for row in rows] == ["encoder.0", "encoder.1", "decoder.0", "decoder.1", "output"]
    assert all(row.slope > 0 and row.bend > 0 and row.size > 0 for row in rows)


@pytest.mark.parametrize("operator", ["monet", "spline"])
def test_the_filter_is_what_one_neighbor_is_multiplied_by(operator: str) -> None:
    """A vertex with one neighbor at u puts out x_j f(u): from outputs at many u the energy of f is recovered."""
    torch.manual_seed(0)
    conv: Any = make_operator(operator, 3, 2, kernel_size=3, dim=2, bias=False).double()
    points = torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    responses = []
    for u in points:
        graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 2, u.unsqueeze(0))
        basis = torch.stack([torch.eye(3, dtype=torch.float64), torch.zeros(3, 3).double()], dim=1)
        responses.append(conv(basis, graph)[:, 1].detach())
    measured = torch.stack(responses).square().sum((1, 2)).mean()
    grams = kernel_grams(conv, points)
    inner = torch.einsum("mio,nio->mn", conv.theta, conv.theta).detach()
    assert_close((inner * grams.size).sum(), measured)


@pytest.mark.parametrize(
    "conv",
    [
        MoNetConv(2, 3, kernel_size=4, dim=1),
        SplineConv(2, 3, kernel_size=4, dim=1, degree=2),
        ChebConv(2, 3, kernel_size=4),
    ],
    ids=repr,
)
def test_the_whole_range_is_the_limit_of_many_points(conv: Any) -> None:
    torch.manual_seed(0)
    conv.reset_parameters()
    high = 2.0 if isinstance(conv, ChebConv) else 1.0
    count = 4000
    points = (torch.arange(count, dtype=torch.float64) + 0.5).unsqueeze(1) * high / count
    everywhere, sampled = (filter_roughness(conv.theta.detach(), kernel_grams(conv, p)) for p in (None, points))
    assert sampled.slope == pytest.approx(everywhere.slope, rel=1e-3)
    assert sampled.bend == pytest.approx(everywhere.bend, rel=1e-3)


def test_narrow_gaussians_are_rough() -> None:
    torch.manual_seed(0)
    model: Any = autoencoder(operator="monet", kernel_size=3)
    before = model_smoothness(model)
    with torch.no_grad():
        model.decoder[1].scale.mul_(0.2)
    after = model_smoothness(model)
    assert after[3].basis_slope > 2 * before[3].basis_slope
    assert after[0] == before[0]
    assert overall(after)["basis_slope"] > overall(before)["basis_slope"]


def test_one_number_for_a_model_is_the_geometric_mean() -> None:
    rows = model_smoothness(autoencoder(operator="spline", kernel_size=3))
    product = torch.tensor([row.slope for row in rows]).double().prod()
    assert overall(rows)["slope"] == pytest.approx(float(product) ** (1 / 5))
    flat = model_smoothness(autoencoder(operator="cheb", kernel_size=1))
    assert overall(flat)["slope"] == 0


def test_a_run_is_measured_at_start_and_end(tmp_path: Path) -> None:
    run, task = small_run(tmp_path / "a", steps=(3,))
    found = run_smoothness(run, task)
    assert found["method"] == "Aff-MoNet M=3"
    assert found["start"]["overall"] == pytest.approx(found["end"]["overall"]), "only the skips have moved"
    assert "start" not in run_smoothness(run)
    other, _ = small_run(tmp_path / "b", seed=1)
    columns = by_method([found, run_smoothness(other)], "slope")
    assert columns == {"Aff-MoNet M=3": pytest.approx([found["end"]["overall"]["slope"], columns["Aff-MoNet M=3"][1]])}
    assert columns["Aff-MoNet M=3"][0] != columns["Aff-MoNet M=3"][1]
    assert by_method([run_smoothness(other)], "slope", "start") == {}


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match="conv: the basis of GCNConv is not a function"):
        kernel_grams(GCNConv(2, 2))
    with pytest.raises(TypeError, match="conv: the basis of GCNConv is not a function"):
        kernel_grams(GCNConv(2, 2), features(3, 2))
    with pytest.raises(ValueError, match="model: MeshAutoencoder has no MoNet, SplineCNN or ChebNet layer"):
        model_smoothness(autoencoder(operator="gcn"))


@pytest.mark.parametrize("skip", ["none", "affine"])
def test_layers_are_measured_at_the_edges_that_they_meet(skip: str) -> None:
    model = autoencoder(operator="monet", kernel_size=3, skip=skip)
    met = edge_pseudo(model, lambda model: model(torch.zeros(42, 3)))
    levels = model.hierarchy().levels
    for layer, level in (("encoder.0", 0), ("encoder.1", 1), ("decoder.0", 1), ("decoder.1", 0), ("output", 0)):
        assert torch.equal(met[layer], levels[level].pseudo)
    rows = model_smoothness(model, met)
    conv: Any = model.output.conv if skip == "affine" else model.output
    expected = filter_roughness(conv.theta.detach(), kernel_grams(conv, levels[0].pseudo)).slope
    assert rows[-1].edge_slope == pytest.approx(expected)
    assert {row.edge_slope for row in model_smoothness(model)} == {None}
    assert "edge_slope" not in overall(model_smoothness(model))


def test_a_needle_that_no_edge_meets_is_not_counted_at_the_edges() -> None:
    """Over the whole box it is."""
    model: Any = autoencoder(operator="monet", kernel_size=2)
    edges = {"output": model.hierarchy().levels[0].pseudo}
    with torch.no_grad():
        model.output.mean.copy_(torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]))
        model.output.scale.copy_(torch.tensor([[1.0, 1.0, 1.0], [0.02, 0.02, 0.02]]))
        model.output.theta.fill_(1)
    with_needle = model_smoothness(model, edges)[-1]
    with torch.no_grad():
        model.output.theta[1].zero_()
    without = model_smoothness(model, edges)[-1]
    assert with_needle.bend > 1.5 * without.bend
    assert with_needle.edge_slope == pytest.approx(without.edge_slope)


def test_few_edges_stand_for_many() -> None:
    model = autoencoder(operator="monet", kernel_size=2)
    met = edge_pseudo(model, lambda model: model(torch.zeros(42, 3)), most=10)
    assert {len(pseudo) for pseudo in met.values()} == {10}
