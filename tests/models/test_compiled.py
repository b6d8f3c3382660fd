"""Compiled models compute what eager ones do."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.graphs import attach
from geoskip.graphs.graph_hierarchy import Hierarchy, pack_pooled
from geoskip.kernels import use_path
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder, called_at_trace_time
from tests.compiled import MODES, assert_trains_compiled
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


def traced_functions(model: nn.Module, x: Tensor) -> set[str]:
    """Names of the functions in the one graph that ``torch.compile`` makes of ``model(x)``."""
    graphs = []

    def note(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    expected = copy.deepcopy(model)(x)
    assert_close(torch.compile(model, fullgraph=True, backend=note)(x), expected)
    (graph,) = graphs
    return {getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes}


@pytest.mark.parametrize("chosen", [OPERATORS[k] for k in (0, 2, 4, 5, 7)], ids=name)
def test_compiled_steps_of_models_do_not_sort_edges(chosen: dict[str, Any]) -> None:
    """Also without an uncompiled call before, after which the graphs remember the sorted edges."""
    x = features(2, 42, 3, dtype=torch.float32)
    sorting = {"argsort", "searchsorted"}
    assert not sorting & traced_functions(autoencoder(skip="affine", **chosen), x)
    net = CorrespondenceNet(5, channels=(4,), dropout=0.0, graph=hierarchy().levels[0], **chosen)
    assert not sorting & traced_functions(net, x)


def test_edges_that_are_not_prepared_are_sorted_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    monkeypatch.setattr("geoskip.models.prepare_graph", lambda block, graph: None)
    assert "argsort" in traced_functions(autoencoder(operator="feast", kernel_size=2), features(2, 42, 3).float())


def test_methods_are_marked_as_torch_marks_them() -> None:
    def method() -> None: ...

    own, torchs = called_at_trace_time(copy.copy(method)), torch.compiler.assume_constant_result(lambda: None)
    assert vars(own) == vars(torchs)


def test_a_change_of_the_pseudo_coordinates_reaches_compiled_code() -> None:
    """An uncompiled call comes first, so that there is something to remember."""
    own = hierarchy().levels[0]
    assert own.pseudo is not None
    graph = attach(own, own.pseudo.clone())
    assert graph.pseudo is not None
    net = CorrespondenceNet(5, channels=(4,), dropout=0.0, operator="spline", kernel_size=3)
    x = features(42, 3, dtype=torch.float32)
    before = net(x, graph)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x, graph), before)
    graph.pseudo.copy_(graph.pseudo.flip(0))
    after = compiled(x, graph)
    assert_close(after, net(x, graph))
    assert not torch.allclose(after, before)


@pytest.mark.parametrize(("operator", "pooling"), [("gcn", "mean"), ("gin", "max")])
def test_classifier(operator: str, pooling: str) -> None:
    graphs = pack_pooled([pooled_graph(12, seed=0), pooled_graph(9, seed=1)])
    model = GraphClassifier(operator=operator, skip="affine", channels=(4, 5, 6), dropout=0.0, pooling=pooling)
    assert_trains_the_same(model.eval(), features(21, 1, dtype=torch.float32), graphs)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chosen", [OPERATORS[k] for k in (0, 2, 4, 6, 7, 9)], ids=name)
def test_autoencoder_on_cuda(chosen: dict[str, Any], mode: str) -> None:
    model = autoencoder(skip="affine", **chosen).cuda()
    inputs = [features(size, 42, 3, seed=size, dtype=torch.float32).cuda() for size in (3, 5)]
    assert_trains_compiled(model, inputs, mode)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operator", ["monet", "feast", "gcn"])
def test_correspondence_on_cuda(operator: str, mode: str) -> None:
    graph = hierarchy().levels[0].to("cuda")
    chosen: dict[str, Any] = {"operator": operator, "skip": "affine"}
    if operator != "gcn":
        chosen["kernel_size"] = 2
    net = CorrespondenceNet(5, channels=(4, 5), dropout=0.0, **chosen).cuda()
    inputs = [features(42, 3, seed=seed, dtype=torch.float32).cuda() for seed in (1, 2)]
    assert_trains_compiled(net, inputs, graph, mode)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("operator", "pooling"), [("gcn", "mean"), ("gin", "max"), ("monet", "max")])
def test_classifier_on_cuda(operator: str, pooling: str, mode: str) -> None:
    graphs = pack_pooled([pooled_graph(12, seed=0), pooled_graph(9, seed=1)]).to("cuda")
    chosen: dict[str, Any] = {"kernel_size": 2, "dim": 2} if operator == "monet" else {}
    model = GraphClassifier(
        operator=operator, skip="affine", channels=(4, 5, 6), dropout=0.0, pooling=pooling, **chosen
    )
    inputs = [features(21, 1, seed=seed, dtype=torch.float32).cuda() for seed in (1, 2)]
    assert_trains_compiled(model.eval().cuda(), inputs, graphs, mode)


def test_hessians_and_transforms_of_the_models() -> None:
    """One of each, with all that it is made of: pooling along a hierarchy, over clusters and over graphs."""
    sphere, graphs = hierarchy(), pack_pooled([pooled_graph(12, seed=0), pooled_graph(9, seed=1)]).to(torch.float64)
    common: dict[str, Any] = {"operator": "gcn", "skip": "affine"}
    net = CorrespondenceNet(5, channels=(4, 5), dropout=0.0, **common).double().eval()
    classifier = GraphClassifier(channels=(4, 5, 6), dropout=0.0, pooling="max", **common).double().eval()
    autoencoding = autoencoder(**common).double().eval()
    calls = [
        (lambda x: autoencoding(x), features(1, 42, 3)),
        (lambda x: net(x, sphere.levels[0]), features(42, 3)),
        (lambda x: classifier(x, graphs), features(21, 1)),
    ]
    for call, x in calls:

        def function(x: Tensor, call: Any = call) -> Tensor:
            return call(x).sigmoid().sum()

        with use_path("reference"):
            expected = torch.func.hessian(function)(x).detach()
        assert float(expected.abs().max()) > 1e-6
        assert_close(torch.autograd.functional.hessian(function, x), expected)
        assert_close(torch.func.hessian(function)(x).detach(), expected)
