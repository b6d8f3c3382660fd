"""Models as ``torch.export`` programs: they run, after saving and loading too, and agree with the model."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geoskip.graphs.graph_hierarchy import pack_pooled
from geoskip.models import CorrespondenceNet, GraphClassifier
from tests.models.small import OPERATORS, autoencoder, hierarchy, name, pooled_graph
from tests.specimens import features

pytestmark = [pytest.mark.compiled, pytest.mark.filterwarnings("ignore")]
CHOSEN = [OPERATORS[k] for k in (0, 2, 4, 6, 7, 9)]


def assert_program_agrees(model: nn.Module, *inputs: Any, strict: bool) -> None:
    model.eval()
    program = torch.export.export(model, inputs, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for runs in (program, torch.export.load(file)):
        assert_close(runs.module()(*inputs), model(*inputs), rtol=1e-5, atol=1e-6)


def correspondence(**chosen: Any) -> CorrespondenceNet:
    torch.manual_seed(0)
    return CorrespondenceNet(5, channels=(4, 5), skip="affine", **chosen)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("chosen", CHOSEN, ids=name)
def test_correspondence_with_its_own_graph(chosen: dict[str, Any], used: bool, strict: bool) -> None:
    """``used``: the graph remembers what the operator derives from it."""
    net, x = correspondence(graph=hierarchy().levels[0], **chosen), features(42, 3, dtype=torch.float32)
    if used:
        net.eval()(x)
    assert_program_agrees(net, x, strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_correspondence_with_a_graph_at_each_call(strict: bool) -> None:
    graph, x = hierarchy().levels[0], features(42, 3, dtype=torch.float32)
    assert_program_agrees(correspondence(operator="monet", kernel_size=2), x, graph, strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_a_graph_at_the_call_replaces_the_networks_own(strict: bool) -> None:
    fine, coarse = hierarchy().levels[:2]
    net, x = correspondence(operator="gcn", graph=fine), features(20, 3, dtype=torch.float32)
    assert_program_agrees(net, x, coarse, strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_autoencoder(strict: bool) -> None:
    model = autoencoder(skip="affine", operator="spline", kernel_size=2)
    assert_program_agrees(model, features(2, 42, 3, dtype=torch.float32), strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_classifier(strict: bool) -> None:
    graphs = pack_pooled([pooled_graph(12, seed=0), pooled_graph(9, seed=1)])
    model = GraphClassifier(operator="monet", kernel_size=2, skip="affine", channels=(4, 5, 6))
    assert_program_agrees(model, features(21, 1, dtype=torch.float32), graphs, strict=strict)
