"""Compiled models compute what eager ones do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geoskip.graphs.hierarchy import Hierarchy
from geoskip.graphs.pooled import pack_pooled
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from tests.models.small import OPERATORS, hierarchy, name, pooled_graph
from tests.specimens import features

pytestmark = pytest.mark.compiled


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def assert_trains_the_same(model: nn.Module, *inputs: Any) -> None:
    """Traced as one graph: output and all gradients."""
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = []
    for module in (compiled, model):
        model.zero_grad(set_to_none=True)
        y = module(*inputs)
        y.square().sum().backward()
        found.append([y.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == 1 + len(list(model.parameters()))
    assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


def autoencoder(**chosen: Any) -> MeshAutoencoder:
    """Of one step, which is all that the others repeat."""
    one_step = Hierarchy(hierarchy().levels[:2], hierarchy().down[:1], hierarchy().up[:1])
    return MeshAutoencoder(one_step, channels=(4,), latent=5, **chosen)


@pytest.mark.parametrize("chosen", [OPERATORS[k] for k in (0, 2, 4, 6, 7, 9)], ids=name)
def test_autoencoder(chosen: dict[str, Any]) -> None:
    assert_trains_the_same(autoencoder(skip="affine", **chosen), features(2, 42, 3, dtype=torch.float32))


@pytest.mark.parametrize("skip", ["none", "residual", "polynomial"])
def test_autoencoder_with_other_skips(skip: str) -> None:
    assert_trains_the_same(autoencoder(skip=skip, operator="gcn"), features(2, 42, 3, dtype=torch.float32))


@pytest.mark.parametrize("held", [True, False])
def test_correspondence(held: bool) -> None:
    graph = hierarchy().levels[0]
    chosen: dict[str, Any] = {"operator": "monet", "kernel_size": 2, "skip": "affine"}
    net = CorrespondenceNet(5, channels=(4, 5), dropout=0.0, graph=graph if held else None, **chosen)
    assert_trains_the_same(net, features(42, 3, dtype=torch.float32), *([] if held else [graph]))


@pytest.mark.parametrize(("operator", "pooling"), [("gcn", "mean"), ("gin", "max")])
def test_classifier(operator: str, pooling: str) -> None:
    graphs = pack_pooled([pooled_graph(12, seed=0), pooled_graph(9, seed=1)])
    model = GraphClassifier(operator=operator, skip="affine", channels=(4, 5, 6), dropout=0.0, pooling=pooling)
    assert_trains_the_same(model.eval(), features(21, 1, dtype=torch.float32), graphs)
