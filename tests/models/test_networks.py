"""What holds for all three networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.models.small import (
    GRAPH_OPERATORS,
    OPERATORS,
    PACKED,
    SKIPS,
    autoencoder,
    classifier,
    correspondence,
    hierarchy,
    name,
)
from tests.specimens import features

GRAPH = hierarchy().levels[0]


class Network(NamedTuple):
    """How it is made, the shapes of what it gets and gives, and the graphs that it gets at each call."""

    make: Callable[..., nn.Module]
    shape: tuple[int, int]
    scores: tuple[int, int]
    graphs: tuple[Any, ...]
    operators: list[dict[str, Any]]


NETWORKS = [
    Network(autoencoder, (42, 3), (42, 3), (), OPERATORS),
    Network(correspondence, (42, 3), (42, 11), (GRAPH,), OPERATORS),
    Network(classifier, (30, 1), (3, 4), (PACKED,), GRAPH_OPERATORS),
]
CASES = [
    pytest.param(network, chosen, id=f"{network.make.__name__}-{name(chosen)}")
    for network in NETWORKS
    for chosen in network.operators
]


MONET = {"operator": "monet", "kernel_size": 3}
WITH_SKIPS = [
    *(pytest.param(*case.values, "affine", id=f"{case.id}-affine") for case in CASES),
    *(
        pytest.param(network, MONET, skip, id=f"{network.make.__name__}-{name(MONET)}-{skip}")
        for network in NETWORKS
        for skip in SKIPS
        if skip != "affine"
    ),
]


@pytest.mark.parametrize(("network", "chosen", "skip"), WITH_SKIPS)
def test_every_operator_and_every_skip_trains(network: Network, chosen: dict[str, Any], skip: str) -> None:
    model = network.make(skip=skip, **chosen)
    x = features(2, *network.shape, dtype=torch.float32)
    y = model(x, *network.graphs)
    assert y.shape == (2, *network.scores)
    (y - torch.linspace(-1, 1, y.numel()).view_as(y)).square().sum().backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert torch.isfinite(parameter.grad).all(), path
        # The autoencoder's last layer has no activation and hears all others: where its weights get no gradient,
        # nothing works.
        if path.startswith("output") and "theta" in path:
            assert parameter.grad.abs().sum() > 0, path


@pytest.mark.parametrize(("network", "chosen", "skip"), WITH_SKIPS)
def test_batch_equals_one_by_one(network: Network, chosen: dict[str, Any], skip: str) -> None:
    model = network.make(skip=skip, **chosen).double().eval()
    graphs = [graph.to(torch.float64) for graph in network.graphs]
    x = features(2, 2, *network.shape)
    single = torch.stack([torch.stack([model(item, *graphs) for item in row]) for row in x])
    assert_close(model(x, *graphs), single, atol=1e-12, rtol=1e-12)


COPIED: list[tuple[nn.Module, tuple[Any, ...]]] = [
    (autoencoder(operator="monet", kernel_size=3, skip="affine"), (features(2, 42, 3).float(),)),
    (correspondence(operator="feast", kernel_size=2, graph=GRAPH), (features(42, 3).float(),)),
    (classifier(operator="gin", skip="affine"), (features(30, 1).float(), PACKED)),
]


@pytest.mark.parametrize(("model", "inputs"), COPIED, ids=["autoencoder", "correspondence", "classifier"])
def test_copy_is_independent(model: nn.Module, inputs: tuple[Any, ...]) -> None:
    y: Tensor = model.eval()(*inputs)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(*inputs), y)
    with torch.no_grad():
        for tensor in [*twin.parameters(), *(b for b in twin.buffers() if b.is_floating_point())]:
            tensor.zero_()
    assert torch.equal(model(*inputs), y)
    assert twin(*inputs).abs().sum() == 0


@pytest.mark.parametrize("skip", SKIPS)
def test_without_a_bias_the_skip_has_none_either(skip: str) -> None:
    model = correspondence(operator="gcn", skip=skip, bias=False)
    assert not [name for name, _ in model.convs.named_parameters() if name.endswith(".bias")]
    biased = correspondence(operator="gcn", skip=skip)
    assert len([name for name, _ in biased.convs.named_parameters() if name.endswith(".bias")]) == 2
