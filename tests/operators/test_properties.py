"""What holds for every operator, whatever its basis."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.graphs import Graph, pack, separate
from geoskip.kernels import paths, use_path
from geoskip.operators import SpiralConv
from tests.operators.cases import IN, OUT, Case, expected
from tests.specimens import features

SKIP = features(IN, OUT, seed=2)
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-10}


def permutation(size: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(size))


def gradients(conv: nn.Module, x: Tensor, graph: Graph, skip: Tensor) -> dict[str, Tensor]:
    """y, and the gradients of a fixed functional of y."""
    leaves = {"x": x.clone().requires_grad_(), "skip": skip.clone().requires_grad_()}
    y = conv(leaves["x"], graph, skip=leaves["skip"])
    leaves |= dict(conv.named_parameters())
    found = torch.autograd.grad((y * features(*y.shape, seed=3, dtype=y.dtype)).sum(), list(leaves.values()))
    return {"y": y.detach()} | dict(zip(leaves, found, strict=True))


@pytest.mark.parametrize("skip", [None, SKIP], ids=["plain", "skip"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_oracle(case: Case, directed: bool, skip: Tensor | None) -> None:
    conv, graph, x = case.make(), case.specimen(directed=directed), features(7, IN)
    assert_close(conv(x, graph.graph(), skip=skip), expected(case, conv, x, graph.lists(), skip), **EXACT)


def test_oracle_tells_parameters_apart(case: Case) -> None:
    """The comparison above can fail: any parameter that changes, changes what the oracle says."""
    graph, x = case.specimen(), features(7, IN)
    for name, _ in case.make().named_parameters():
        conv = case.make()
        with torch.no_grad():
            conv.get_parameter(name).view(-1)[0] += 0.25
        difference = expected(case, conv, x, graph.lists()) - expected(case, case.make(), x, graph.lists())
        assert difference.abs().max() > 1e-6, name


def test_vertex_relabelling(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen(), features(7, IN)
    labels = permutation(7)
    renamed = torch.empty_like(x)
    renamed[labels] = x
    assert_close(conv(renamed, graph.relabelled(labels).graph())[labels], conv(x, graph.graph()), **EXACT)


def test_edge_order_does_not_matter_bitwise(case: Case) -> None:
    conv, graph, x = case.make(torch.float32), case.specimen(simple=True), features(7, IN, dtype=torch.float32)
    order = permutation(graph.edge_index.shape[1])
    shuffled = graph.reordered(order)
    assert not torch.equal(shuffled.edge_index, graph.edge_index)
    assert torch.equal(conv(x, shuffled.graph(torch.float32)), conv(x, graph.graph(torch.float32)))


def test_order_of_edges_listed_twice_does_not_matter(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen(), features(7, IN)
    shuffled = graph.reordered(permutation(graph.edge_index.shape[1]))
    assert_close(conv(x, shuffled.graph()), conv(x, graph.graph()), **EXACT)


def test_packed_equals_separate(case: Case) -> None:
    conv = case.make()
    parts = [
        case.specimen(),
        case.edgeless(0),
        case.specimen(num_vertices=5, seed=4, directed=True),
        case.edgeless(3),
    ]
    xs = [features(part.num_vertices, IN, seed=k) for k, part in enumerate(parts)]
    graphs = [part.graph() for part in parts]
    packed = pack(graphs)
    apart, again = (
        torch.cat([conv(x, graph) for x, graph in zip(xs, some, strict=True)]) for some in (graphs, separate(packed))
    )
    assert_close(conv(torch.cat(xs), packed), apart, **EXACT)
    assert_close(again, apart, **EXACT)


def test_batch_equals_loop(case: Case) -> None:
    conv, graph = case.make(), case.specimen().graph()
    x = features(2, 3, 7, IN)
    looped = torch.stack([torch.stack([conv(item, graph, skip=SKIP) for item in row]) for row in x])
    assert_close(conv(x, graph, skip=SKIP), looped, **EXACT)


@pytest.mark.parametrize("batch", [(), (1,), (2,), (2, 3)])
def test_outputs_may_change_in_place(case: Case, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``relu_(conv(x, graph))``."""
    monkeypatch.setattr(paths, "SMALL", 0)
    conv, graph, x = case.make(), case.specimen().graph(), features(*batch, 7, IN).requires_grad_()
    (expected_gradient,) = torch.autograd.grad((2 * conv(x, graph)).sum(), x)
    (gradient,) = torch.autograd.grad(conv(x, graph).mul_(2).sum(), x)
    assert_close(gradient, expected_gradient, **EXACT)


def test_an_empty_batch_is_empty(case: Case) -> None:
    assert case.make()(features(0, 7, IN), case.specimen().graph()).shape == (0, 7, OUT)


def test_features_need_not_be_contiguous(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)
    strided = features(IN, 7, 2).permute(2, 1, 0)
    assert_close(conv(strided, graph), conv(strided.contiguous(), graph), **EXACT)
    assert_close(conv(x.expand(2, 7, IN), graph)[1], conv(x, graph), **EXACT)


@pytest.mark.parametrize("num_vertices", [0, 1, 4])
def test_vertices_without_edges(case: Case, num_vertices: int) -> None:
    conv, graph, x = case.make(), case.edgeless(num_vertices), features(num_vertices, IN)
    y = conv(x, graph.graph(), skip=SKIP)
    assert y.shape == (num_vertices, OUT)
    assert_close(y, expected(case, conv, x, graph.lists(), SKIP), **EXACT)


@pytest.mark.parametrize("num_vertices", [0, 3])
def test_gradients_without_edges_are_finite(case: Case, num_vertices: int) -> None:
    graph = case.edgeless(num_vertices).graph()
    for name, value in gradients(case.make(), features(num_vertices, IN), graph, SKIP).items():
        assert value.isfinite().all(), name


def test_an_isolated_vertex_hears_nobody(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)
    others = x.clone()
    others[:-1] += 1
    assert torch.equal(conv(others, graph)[-1], conv(x, graph)[-1])
    assert not torch.equal(conv(others, graph)[:-1], conv(x, graph)[:-1])


def test_parameter_count_is_the_docstrings(case: Case) -> None:
    assert sum(parameter.numel() for parameter in case.make().parameters()) == case.counted


def test_state_dict_round_trip(case: Case) -> None:
    conv, other = case.make(seed=0), case.make(seed=1)
    graph, x = case.specimen().graph(), features(7, IN)
    assert not torch.equal(other(x, graph), conv(x, graph))
    file = io.BytesIO()
    torch.save(conv.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x, graph), conv(x, graph))


def test_deepcopy_is_equal_and_independent(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)
    before = conv(x, graph)
    twin, twin_graph = copy.deepcopy((conv, graph))
    assert torch.equal(twin(x, twin_graph), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(conv(x, graph), before)


def test_reset_parameters_draws_anew(case: Case) -> None:
    conv = case.make()
    before = copy.deepcopy(conv.state_dict())
    conv.reset_parameters()
    assert not torch.equal(conv.state_dict()["theta"], before["theta"])
    assert conv.bias is None or not conv.bias.any()


def test_float32_is_near_float64(case: Case) -> None:
    x, graph = features(7, IN), case.specimen()
    y = case.make(torch.float32)(x.float(), graph.graph(torch.float32), skip=SKIP.float())
    assert y.dtype == torch.float32
    wanted = case.make()(x, graph.graph(), skip=SKIP).detach()
    assert_close(y.detach().double(), wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("path", ["fast", "reference"])
@pytest.mark.parametrize(("dtype", "digits"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)])
def test_a_module_of_low_precision_is_near(case: Case, dtype: torch.dtype, digits: float, path: str) -> None:
    """Features and parameters are rounded, basis weights are not."""
    conv, graph, x = case.make(dtype), case.specimen().graph(torch.float32), features(7, IN).to(dtype)
    wanted = copy.deepcopy(conv).double()(x.double(), graph.to(torch.float64)).detach()
    leaf = x.clone().requires_grad_()
    with use_path(path):
        y = conv(leaf, graph)
    y.sum().backward()
    assert y.dtype == dtype
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert_close(y.detach().double(), wanted, rtol=0, atol=8 * digits * float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pseudo_coordinates_of_another_precision(case: Case, dtype: torch.dtype) -> None:
    other = torch.float64 if dtype == torch.float32 else torch.float32
    conv, x = case.make(dtype), features(7, IN, dtype=dtype)
    y = conv(x, case.specimen().graph(other))
    assert y.dtype == dtype
    assert_close(y, conv(x, case.specimen().graph(dtype)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_is_near(case: Case, dtype: torch.dtype) -> None:
    """A bfloat16 has 8 bits, so a relative error of 2⁻⁸ is expected of each rounding; layers before give bfloat16."""
    conv, graph, x = case.make(torch.float32), case.specimen().graph(torch.float32), features(7, IN).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        y = conv(x.to(dtype), graph, skip=SKIP.float())
        y.float().square().sum().backward()
    wanted = conv(x.float(), graph, skip=SKIP.float())
    assert (y - wanted).norm() < 4 * 2**-8 * wanted.norm()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in conv.parameters())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=["f32", "f64"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
def test_fast_path_equals_reference(case: Case, batch: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    """Values and gradients, relative to the largest entry of each."""
    conv, x = case.make(dtype), features(*batch, 7, IN, dtype=dtype)
    graph, skip = case.specimen().graph(dtype), SKIP.to(dtype)
    fast = gradients(conv, x, graph, skip)
    with use_path("reference"):
        wanted = gradients(conv, x, graph, skip)
    for name, value in wanted.items():
        assert_close(fast[name], value, rtol=tolerance, atol=tolerance * float(value.abs().max()), msg=name)


def test_results_repeat_bitwise(case: Case) -> None:
    conv, graph, x = case.make(torch.float32), case.specimen().graph(torch.float32), features(2, 7, IN).float()
    first, second = (gradients(conv, x, graph, SKIP.float()) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_edge_index_in_place_of_a_graph(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen(), features(7, IN)
    if case.operator is SpiralConv:
        with pytest.raises(ValueError, match="graph: SpiralConv needs spirals"):
            conv(x, graph.edge_index)
        return
    name, values = ("pseudo", graph.pseudo) if case.sees_pseudo else ("edge_weight", graph.edge_weight)
    given = () if values is None else (values,)
    y = conv(x, graph.edge_index, *given)
    assert torch.equal(y, conv(x, graph.graph()))
    bare = Graph.from_edge_index(graph.edge_index, graph.num_vertices)
    assert torch.equal(conv(x, bare, *given), y)
    assert torch.equal(conv(x, bare, **{name: values}), y)


def test_evaluated_first_trained_after(case: Case) -> None:
    """What a graph remembers from inference mode must serve training."""
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)
    with torch.inference_mode():
        evaluated = conv(x, graph, skip=SKIP)
    found = gradients(conv, x, graph, SKIP)
    assert torch.equal(found["y"], evaluated)
    fresh = gradients(conv, x, case.specimen().graph(), SKIP)
    assert all(torch.equal(found[name], fresh[name]) for name in fresh)


@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode])
@pytest.mark.parametrize("made_in", [nullcontext, torch.inference_mode])
def test_a_change_of_the_graph_in_place_is_seen(
    case: Case, made_in: Callable[[], Any], mode: Callable[[], Any]
) -> None:
    conv, x = case.make(), features(7, IN)
    for name in ("pseudo", "spirals", "given_edge_weight"):
        with made_in():
            graph = case.specimen().graph()
            other = case.specimen(seed=5).weighted(seed=5).graph()
        if getattr(graph, name) is None:
            continue
        with mode():
            conv(x, graph)
            getattr(graph, name).copy_(getattr(other, name))
            fresh = Graph(graph.pattern, graph.order, graph.pseudo, graph.spirals, None, graph.given_edge_weight)
            assert torch.equal(conv(x, graph), conv(x, fresh))


def test_a_graph_made_in_inference_mode_still_evaluates(case: Case) -> None:
    conv, x = case.make(), features(7, IN)
    with torch.inference_mode():
        y = conv(x, case.specimen().graph())
    assert torch.equal(y, conv(x, case.specimen().graph()))


@pytest.mark.parametrize("edit", [lambda g: g.to(torch.float32).to(torch.float64), copy.deepcopy, copy.copy])
def test_copies_of_a_graph_serve_as_well(case: Case, edit: Callable[[Graph], Graph]) -> None:
    conv, x = case.make(), features(7, IN)
    # A copy in float32 and back is exact for values that float32 has.
    graph = case.specimen().graph().to(torch.float32).to(torch.float64)
    y = conv(x, graph)
    assert torch.equal(conv(x, edit(graph)), y)
