"""The same work by PyTorch Geometric: its convolutions, with our parameters, called in the ways that it documents.

Items that share a connectivity become one graph of disjoint copies, which is how PyTorch Geometric batches; that is
prepared before the clock starts. Where several documented calls compute the same, all are tried and the fastest is
the peer: ``edge_index``; the sorted and cached ``EdgeIndex``; a CSR matrix where the convolution takes one. MoNet has
a root weight there (``root_weight=False`` raises AttributeError in 2.8), which is the affine skip, so its peer is our
block with the skip.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Case, Contender, compile_module, training_step
from benchmarks.translation import translated
from benchmarks.workloads import Problem
from geoskip.shapes import Float, Int

HAS_PEER = ("monet", "feast", "cheb", "gcn", "gin")


@dataclass(frozen=True)
class Union:
    """Disjoint copies of a graph, one for each item, edges in receiver order."""

    edge_index: Int[Tensor, "2 edges"]
    pseudo: Float[Tensor, "edges dim"]
    num_vertices: int


@dataclass(frozen=True)
class Call:
    """One documented call: its text, what makes the convolution, what the convolution takes after x."""

    text: str
    make: Callable[[], nn.Module]
    arguments: Callable[[], tuple[Any, ...]]


class PlusLinear(nn.Module):
    """A convolution with a linear map of the vertex's own features added, as one writes it without geoskip."""

    def __init__(self, conv: nn.Module, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = conv
        self.linear = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        return self.conv(x, *args) + self.linear(x)


def has_same_work(problem: Problem) -> bool:
    """Whether PyTorch Geometric does this very work: SplineConv needs pyg-lib there, and plain MoNet does not run."""
    return problem.operator in HAS_PEER and (problem.operator != "monet" or problem.skip)


def disjoint_union(case: Case) -> Union:
    graph, batch = case.graph, case.problem.workload.batch
    starts = torch.arange(batch, device=graph.device) * graph.num_vertices
    edge_index = (graph.edge_index.unsqueeze(1) + starts[None, :, None]).flatten(1)
    assert graph.pseudo is not None
    return Union(edge_index, graph.pseudo.repeat(batch, 1), batch * graph.num_vertices)


def pyg_calls(case: Case) -> list[Call]:
    """The calls of PyTorch Geometric that compute what the case's block computes."""
    union, problem = disjoint_union(case), case.problem
    return _CALLS[problem.operator](problem, union)


def pyg_contender(case: Case, call: Call, path: str = "PyG", mode: str | None = None) -> Contender:
    """A call with our parameters and inputs, eager or in a mode of ``torch.compile``."""
    w, arguments = case.problem.workload, call.arguments()
    module = call.make()
    if case.problem.skip and case.problem.operator != "monet":
        module = PlusLinear(module, w.in_channels, w.out_channels)
    module = module.to(case.device)
    ours = {name: parameter.detach() for name, parameter in case.block.named_parameters()}
    module.load_state_dict(translated(case.problem.operator, ours), strict=False)
    names = [name for name, _ in module.named_parameters()]
    inputs = [tuple(values.flatten(0, -2) for values in pair) for pair in case.inputs]
    if mode is not None:
        # Once as it is, so that what the convolution caches is not part of the trace.
        module(inputs[0][0], *arguments)
        compile_module(module, mode)
    steps = [training_step(module, x, grad_y, *arguments) for x, grad_y in inputs]

    def expected(results: dict[str, Tensor]) -> dict[str, Tensor]:
        y, grad_x = results.pop("y"), results.pop("x")
        theirs = translated(case.problem.operator, results)
        return {"y": y.flatten(0, -2), "x": grad_x.flatten(0, -2), **{name: theirs[name] for name in names}}

    text = call.text if mode is None else f"{call.text}, torch.compile(mode={mode!r})"
    return Contender(path, text, steps, expected)


def _sorted(edge_index: Tensor, num_vertices: int) -> Any:
    from torch_geometric import EdgeIndex

    size = (num_vertices, num_vertices)
    return EdgeIndex(edge_index, sparse_size=size, sort_order="col", is_undirected=True).fill_cache_()


def _matrix(union: Union) -> Tensor:
    from torch_geometric.utils import to_torch_csr_tensor

    with warnings.catch_warnings():
        # Torch announces that its CSR matrices are in beta.
        warnings.simplefilter("ignore", UserWarning)
        return to_torch_csr_tensor(union.edge_index.flip(0), size=(union.num_vertices, union.num_vertices))


def _with_loops(union: Union) -> Tensor:
    loops = torch.arange(union.num_vertices, device=union.edge_index.device).repeat(2, 1)
    both = torch.cat([union.edge_index, loops], dim=1)
    return both[:, torch.argsort(both[1], stable=True)]


def _monet(problem: Problem, union: Union) -> list[Call]:
    from torch_geometric.nn import GMMConv

    def make() -> nn.Module:
        w = problem.workload
        return GMMConv(w.in_channels, w.out_channels, w.dim, problem.slots, separate_gaussians=False, aggr="add")

    text = "GMMConv(aggr='add', separate_gaussians=False)(x, {}, pseudo)"
    return [
        Call(text.format("edge_index"), make, lambda: (union.edge_index, union.pseudo)),
        Call(text.format("EdgeIndex"), make, lambda: (_sorted(union.edge_index, union.num_vertices), union.pseudo)),
    ]


def _feast(problem: Problem, union: Union) -> list[Call]:
    from torch_geometric.nn import FeaStConv

    def make(add_self_loops: bool) -> nn.Module:
        w = problem.workload
        return FeaStConv(w.in_channels, w.out_channels, problem.slots, add_self_loops=add_self_loops)

    text, looped = "FeaStConv(heads=M, add_self_loops=False)(x, {} with self-loops)", _with_loops(union)
    return [
        Call("FeaStConv(heads=M)(x, edge_index)", lambda: make(True), lambda: (union.edge_index,)),
        Call(text.format("edge_index"), lambda: make(False), lambda: (looped,)),
        Call(text.format("EdgeIndex"), lambda: make(False), lambda: (_sorted(looped, union.num_vertices),)),
    ]


def _cheb(problem: Problem, union: Union) -> list[Call]:
    from torch_geometric.nn import ChebConv

    def make() -> nn.Module:
        return ChebConv(problem.workload.in_channels, problem.workload.out_channels, problem.slots)

    largest = torch.tensor(2.0, device=union.edge_index.device)
    text = "ChebConv(K=M)(x, {}, lambda_max=2)"
    return [
        Call(text.format("edge_index"), make, lambda: (union.edge_index, None, None, largest)),
        Call(
            text.format("EdgeIndex"), make,
            lambda: (_sorted(union.edge_index, union.num_vertices), None, None, largest),
        ),
    ]  # fmt: skip


def _gcn(problem: Problem, union: Union) -> list[Call]:
    from torch_geometric.nn import GCNConv

    def make() -> nn.Module:
        return GCNConv(problem.workload.in_channels, problem.workload.out_channels, cached=True)

    text = "GCNConv(cached=True)(x, {})"
    return [
        Call(text.format("edge_index"), make, lambda: (union.edge_index,)),
        Call(text.format("EdgeIndex"), make, lambda: (_sorted(union.edge_index, union.num_vertices),)),
        Call(text.format("CSR matrix"), make, lambda: (_matrix(union),)),
    ]


def _gin(problem: Problem, union: Union) -> list[Call]:
    from torch_geometric.nn import GINConv

    def make() -> nn.Module:
        i, o = problem.workload.in_channels, problem.workload.out_channels
        return GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o)))

    text = "GINConv(Sequential(Linear, ReLU, Linear))(x, {})"
    return [
        Call(text.format("edge_index"), make, lambda: (union.edge_index,)),
        Call(text.format("EdgeIndex"), make, lambda: (_sorted(union.edge_index, union.num_vertices),)),
        Call(text.format("CSR matrix"), make, lambda: (_matrix(union),)),
    ]


_CALLS = {"monet": _monet, "feast": _feast, "cheb": _cheb, "gcn": _gcn, "gin": _gin}
