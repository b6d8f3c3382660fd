"""The graph classifier."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.blocks.pooling import max_pool, mean_over_graphs
from geoskip.kernels import use_path
from geoskip.kernels.paths import recorded_launches
from geoskip.models import VertexNorm
from tests.models.small import GRAPH_OPERATORS, PACKED, SINGLES, classifier, name, relabelled
from tests.specimens import features

X = features(30, 1, dtype=torch.float32)


@pytest.mark.parametrize("chosen", GRAPH_OPERATORS, ids=name)
def test_packed_graphs_are_scored_as_alone(chosen: dict[str, Any]) -> None:
    model = classifier(skip="affine", **chosen).double().eval()
    x = features(30, 1)
    alone = [model(part, single.to(torch.float64)) for part, single in zip(x.split([9, 13, 8]), SINGLES, strict=True)]
    assert_close(model(x, PACKED.to(torch.float64)), torch.cat(alone), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("chosen", GRAPH_OPERATORS, ids=name)
def test_names_of_vertices_do_not_matter(chosen: dict[str, Any], pooling: str) -> None:
    model = classifier(skip="affine", pooling=pooling, **chosen).double().eval()
    graphs = SINGLES[1].to(torch.float64)
    x = features(13, 1)
    labels = [torch.randperm(level.num_vertices, generator=torch.Generator().manual_seed(3)) for level in graphs.levels]
    moved = torch.empty_like(x)
    moved[labels[0]] = x
    assert not torch.equal(moved, x)
    assert_close(model(moved, relabelled(graphs, labels)), model(x, graphs), atol=1e-12, rtol=1e-12)


def test_matches_the_architecture_written_out() -> None:
    model = classifier(operator="monet", kernel_size=2).eval()
    elu, first, second = nn.functional.elu, *PACKED.clusters
    x = max_pool(elu(model.convs[0](X, PACKED.levels[0])), first)
    x = max_pool(elu(model.convs[1](x, PACKED.levels[1])), second)
    x = mean_over_graphs(elu(model.convs[2](x, PACKED.levels[2])), PACKED.levels[2])
    assert torch.equal(model(X, PACKED), model.output(elu(model.head(x))))


@pytest.mark.compiled
@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_each_pooling_is_one_launch_each_way(pooling: str) -> None:
    model = classifier(operator="gcn", pooling=pooling)
    with use_path("interpreter"), recorded_launches() as launches:
        model(X, PACKED).sum().backward()
    names = [kernel.__name__ for kernel, *_ in launches]
    assert [name for name in names if "pool" in name or "segment" in name] == [
        *["_pool_kernel"] * 3,
        *("_segment_gradients_kernel", "_pool_gradients_kernel", "_pool_gradients_kernel"),
    ]


def test_gin_alone_is_normalised() -> None:
    assert all(isinstance(norm, VertexNorm) for norm in classifier(operator="gin").norms)
    assert all(isinstance(norm, nn.Identity) for norm in classifier(operator="gcn").norms)
    assert all(isinstance(norm, nn.Identity) for norm in classifier(operator="gin", normalize=False).norms)
    assert all(isinstance(norm, VertexNorm) for norm in classifier(operator="gcn", normalize=True).norms)


def test_normalisation_is_over_all_vertices() -> None:
    x = 3 + 2 * features(2, 30, 5)
    y = VertexNorm(5).double()(x)
    assert_close(y.mean((0, 1)), torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert_close(y.var((0, 1), correction=0), torch.ones(5, dtype=torch.float64), atol=1e-5, rtol=0)


def test_training_repeats_bitwise() -> None:
    def gradients() -> list[Tensor]:
        model = classifier(operator="feast", kernel_size=2, skip="affine")
        model(X, PACKED).square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    assert all(torch.equal(a, b) for a, b in zip(gradients(), gradients(), strict=True))
