"""PyTorch Geometric's layers with a forward pass on geoskip's kernels.

Each class derives from the layer that it stands for and overrides ``forward`` alone, so :func:`geoskip.accelerate` can
turn one into the other by setting ``__class__``: parameters, buffers, their names, hooks and optimizers stay valid.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops

from geoskip.kernels import (
    Pattern,
    basis_convolution,
    chebyshev_convolution,
    gaussian_convolution,
    is_traced,
    is_transformed,
    softmax_convolution,
    sparse_product,
)
from geoskip.kernels.paths import is_autocast
from geoskip.operators.base import weight_dtype
from geoskip.operators.spline import bspline_products
from geoskip.pyg.edge_cache import SortedEdges, mean_shares, remember, sort, sorted_edges
from geoskip.pyg.fast_layer import FastLayer, num_vertices_of


def pair(x: Any) -> tuple[Tensor, Tensor | None]:
    return (x, x) if isinstance(x, Tensor) else (x[0], x[1])


def linear_convolution(
    x: tuple[Tensor, Tensor | None],
    weights: Tensor,
    theta: Tensor,
    pattern: Pattern,
    root: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """:func:`basis_convolution`, with the root weight ``[out, in]`` as its affine skip if senders and receivers are the
    same vertices."""
    if root is None or x[1] is None:
        return basis_convolution(x[0], weights, theta, pattern, None, bias)
    if x[0] is x[1] and root.shape[1] == x[0].shape[-1]:
        return basis_convolution(x[0], weights, theta, pattern, root.t(), bias)
    return basis_convolution(x[0], weights, theta, pattern, None, bias) + functional.linear(x[1], root)


class FastGCNConv(FastLayer, pyg.GCNConv):
    aggregations = ("add", "sum")
    slowness = 4  # it normalizes the edge weights in every call

    _cached_edge_index: Any

    def message_channels(self, in_channels: int) -> int:
        return self.out_channels

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Tensor:
        edges = edge_index, edge_weight
        if self.cached and self.normalize and isinstance(edge_index, Tensor) and self._cached_edge_index is not None:
            edges = self._cached_edge_index
        if self.is_slow_call((x, x), *edges):
            return pyg.GCNConv.forward(self, x, edge_index, edge_weight)
        pattern, weights = self._normalized(x, edge_index, edge_weight)
        return basis_convolution(x, weights, self.lin.weight.t(), pattern, None, self.bias)

    def _normalized(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Pattern, Tensor]:
        num_vertices = x.shape[-2]
        if self.cached and self.normalize:
            if self._cached_edge_index is None:
                index, norm = self._norm(x, edge_index, edge_weight)
                # PyTorch Geometric keeps them in this precision, and promotes later outputs to it.
                self._cached_edge_index = index, norm.to(x.dtype) if edge_weight is None else norm
            edge_index, weight = self._cached_edge_index
            edges, dtype = sorted_edges(edge_index, num_vertices, num_vertices, self.flow), weight_dtype(x)
            weights = remember((edge_index, weight), ("weights", dtype), lambda: weight[edges.order].to(dtype))
            return edges.pattern, weights
        options = self.normalize, self.improved, self.add_self_loops, self.flow, num_vertices

        def build() -> tuple[Pattern, Tensor]:
            index, weight = self._norm(x, edge_index, edge_weight)

            def sort_normalized() -> SortedEdges:
                # PyTorch Geometric has read the degree of each end, so all ends exist.
                return sort(index, num_vertices, num_vertices, self.flow, are_valid=self.normalize)

            # Which edges there are depends on edge_index alone, so trained weights do not sort them again.
            edges = remember((edge_index,), ("gcn", *options), sort_normalized)
            if weight is None:
                weights = torch.ones(edges.pattern.num_edges, dtype=weight_dtype(x), device=x.device)
            else:
                weights = weight.view(-1)[edges.order].to(weight_dtype(x))
            return edges.pattern, weights

        tensors = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
        return remember(tensors, ("gcn weights", edge_weight is None, x.dtype, *options), build)

    def _norm(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Tensor, Any]:
        if not self.normalize:
            return edge_index, edge_weight
        return gcn_norm(
            edge_index, edge_weight, x.shape[-2], self.improved, self.add_self_loops, self.flow, weight_dtype(x)
        )


class FastChebConv(FastLayer, pyg.ChebConv):
    aggregations = ("add", "sum")
    linears = ("lins",)

    def matrix(self) -> tuple[Tensor | None, int | None]:
        return self.lins[0]._parameters.get("weight"), 1

    def message_channels(self, in_channels: int) -> int:
        return in_channels * max(len(self.lins) - 1, 1)

    def forward(
        self, x: Any, edge_index: Any, edge_weight: Any = None, batch: Any = None, lambda_max: Any = None
    ) -> Tensor:
        eigenvalue = None if isinstance(lambda_max, Tensor) else lambda_max
        is_number = eigenvalue is None or isinstance(eigenvalue, int | float)
        if not is_number or self.is_slow_call((x, x), edge_index, edge_weight):
            return pyg.ChebConv.forward(self, x, edge_index, edge_weight, batch, lambda_max)
        num_vertices = x.shape[-2]

        def build() -> tuple[Pattern, Tensor]:
            arguments = self.normalization, lambda_max, weight_dtype(x), batch
            looped, norm = self.__norm__(edge_index, num_vertices, edge_weight, *arguments)
            edges = sort(looped, num_vertices, num_vertices, self.flow)
            return edges.pattern, norm.view(-1)[edges.order]

        given = [t for t in (edge_weight, batch, lambda_max) if isinstance(t, Tensor)]
        options = self.normalization, self.flow, eigenvalue, num_vertices, x.dtype
        key = ("cheb", *options, edge_weight is None, batch is None, len(given))
        pattern, weights = remember((edge_index, *given), key, build)
        matrices = [lin.weight.t() for lin in self.lins]
        if is_autocast(x):
            # The only half precision that torch.stack takes then.
            matrices = [matrix.to(torch.get_autocast_dtype(x.device.type)) for matrix in matrices]
        theta = torch.stack(matrices)
        return chebyshev_convolution(x, weights, theta, pattern, 0, None, self.bias)


class FastFeaStConv(FastLayer, pyg.FeaStConv):
    aggregations = ("mean",)
    linears = ("lin", "u")

    def message_channels(self, in_channels: int) -> int:
        return self.out_channels

    def forward(self, x: Any, edge_index: Any) -> Tensor:
        senders, receivers = pair(x)
        # The softmax looks at both ends of an edge, and the kernel takes them from one set of vertices.
        if senders is not receivers or self.is_slow_call((senders, senders), edge_index):
            return pyg.FeaStConv.forward(self, x, edge_index)
        num_vertices, dtype = senders.shape[-2], weight_dtype(senders)

        def build() -> tuple[Pattern, Tensor]:
            index = edge_index
            if self.add_self_loops:
                index = add_self_loops(remove_self_loops(index)[0], num_nodes=num_vertices)[0]
            pattern = sort(index, num_vertices, num_vertices, self.flow).pattern
            return pattern, mean_shares(pattern, dtype)

        key = ("feast", self.add_self_loops, num_vertices, self.flow, dtype)
        pattern, shares = remember((edge_index,), key, build)
        theta = self.lin.weight.view(self.heads, self.out_channels, -1).transpose(1, 2)
        return softmax_convolution(senders, self.u.weight, None, self.c, shares, theta, pattern, None, self.bias)


class FastGINConv(FastLayer, pyg.GINConv):
    linears = ()

    def matrix(self) -> tuple[Tensor | None, int | None]:
        return self.eps, None

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        both = pair(x)
        if self.is_slow_call(both, edge_index, size=size):
            return pyg.GINConv.forward(self, x, edge_index, size)
        dtype, center = weight_dtype(both[0]), 0.0
        is_same = both[0] is both[1] and size is None
        if is_same and both[0].is_cuda and not (is_traced() or is_transformed() or self.eps.is_meta):
            # Its term is a self-loop of weight 1 + ε, if ε is a constant that can be read: that saves launches.
            center = 0.0 if self.eps.requires_grad else 1 + remember((self.eps,), "value", self.eps.item)
        edges, weights = self.weighted_edges(both, edge_index, size, dtype, center)
        total = sparse_product(both[0], weights, edges.pattern)
        return self.nn(total if center or both[1] is None else total + (1 + self.eps) * both[1])


class FastGraphConv(FastLayer, pyg.GraphConv):
    linears = ("lin_rel", "lin_root")
    with_bias = "lin_rel"

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, size: Any = None) -> Tensor:
        both = pair(x)
        if self.is_slow_call(both, edge_index, edge_weight, size=size):
            return pyg.GraphConv.forward(self, x, edge_index, edge_weight, size)
        dtype, matrix = weight_dtype(both[0]), self.lin_rel
        edges, weights = self.weighted_edges(both, edge_index, size, dtype)
        if edge_weight is not None:
            weights = weights * edge_weight.view(-1).to(dtype)[edges.order]
        return linear_convolution(both, weights, matrix.weight.t(), edges.pattern, self.lin_root.weight, matrix.bias)


class FastSAGEConv(FastLayer, pyg.SAGEConv):
    linears = ("lin_l", "lin_r")
    with_bias = "lin_l"

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        both = pair(x)
        if self.is_slow_call(both, edge_index, size=size):
            return pyg.SAGEConv.forward(self, x, edge_index, size)
        edges, weights = self.weighted_edges(both, edge_index, size, weight_dtype(both[0]))
        if self.project:
            both = (self.lin(both[0]).relu(), both[1])
        root, matrix = self.lin_r.weight if self.root_weight else None, self.lin_l
        y = linear_convolution(both, weights, matrix.weight.t(), edges.pattern, root, matrix.bias)
        return functional.normalize(y, p=2.0, dim=-1) if self.normalize else y


class FastGMMConv(FastLayer, pyg.GMMConv):
    linears = ("root",)
    slowness = 0.5  # the kernels start for each Gaussian

    @classmethod
    def why_not(cls, layer: Any) -> str | None:
        if layer.separate_gaussians:
            return "separate_gaussians gives each pair of channels its own kernel, which geoskip does not have"
        return super().why_not(layer)

    def matrix(self) -> tuple[Tensor | None, int | None]:
        return self._parameters.get("g"), 0

    def message_channels(self, in_channels: int) -> int:
        return self.out_channels

    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> Tensor:
        both = pair(x)
        if edge_attr is None or self.is_slow_call(both, edge_index, edge_attr, self.dim, size):
            return pyg.GMMConv.forward(self, x, edge_index, edge_attr, size)
        dtype, numbers = weight_dtype(both[0]), num_vertices_of(both, size)

        def build() -> tuple[Pattern, Tensor]:
            edges = sorted_edges(edge_index, *numbers, self.flow)
            return edges.pattern, edge_attr.to(dtype)[edges.order]

        pattern, pseudo = remember((edge_index, edge_attr), ("pseudo", *numbers, self.flow, dtype), build)
        theta = self.g.view(-1, self.kernel_size, self.out_channels).transpose(0, 1)
        basis = pseudo, self.mu, self.sigma
        # Read once: a parametrization may change its state whenever it is computed.
        root = self.root.weight if self.root_weight and both[1] is not None else None
        if root is not None and self.aggr != "mean" and both[0] is both[1] and root.shape[1] == both[0].shape[-1]:
            return gaussian_convolution(both[0], *basis, theta, pattern, root.t(), self.bias)
        y = gaussian_convolution(both[0], *basis, theta, pattern)
        if self.aggr == "mean":
            y = y * self._inverse_counts(edge_index, pattern, y.dtype)
        if root is not None:
            y = y + functional.linear(both[1], root)  # type: ignore[arg-type]
        return y if self.bias is None else y + self.bias

    def _inverse_counts(self, edge_index: Tensor, pattern: Pattern, dtype: torch.dtype) -> Tensor:
        def build() -> Tensor:
            return pattern.counts[0].clamp(min=1).to(dtype).reciprocal().unsqueeze(1)

        key = ("inverse counts", pattern.num_senders, pattern.num_receivers, self.flow, dtype)
        return remember((edge_index,), key, build)


class FastSplineConv(FastLayer, pyg.SplineConv):
    has_slow_code = False

    def matrix(self) -> tuple[Tensor | None, int | None]:
        return self._parameters.get("weight"), 1

    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> Tensor:
        both = pair(x)
        if edge_attr is None or self.is_slow_call(both, edge_index, edge_attr, self.dim, size):
            return pyg.SplineConv.forward(self, x, edge_index, edge_attr, size)
        dtype = weight_dtype(both[0])
        edges, shares = self.weighted_edges(both, edge_index, size, dtype)

        def build() -> Tensor:
            # PyTorch Geometric counts the first dimension fastest, bspline_products the last.
            pseudo = edge_attr.to(dtype)[edges.order].flip(1)
            basis = bspline_products(pseudo, sizes, self.degree, closed)
            return basis * shares.unsqueeze(1)

        # Remembered, because reading a tensor waits for the GPU.
        sizes, closed = remember((self.kernel_size, self.is_open_spline), "grid", self._grid)
        options = self.aggr, self.flow, self.degree, sizes, closed, dtype
        weights = remember((edge_index, edge_attr), ("spline", *options), build)
        root = self.lin.weight if self.root_weight else None
        return linear_convolution(both, weights, self.weight, edges.pattern, root, self.bias)

    def _grid(self) -> tuple[tuple[int, ...], tuple[bool, ...]]:
        """The kernel size in each dimension, and whether it is closed; the last dimension first."""
        sizes, is_open = self.kernel_size.flip(0).tolist(), self.is_open_spline.flip(0).tolist()
        return tuple(sizes), tuple(not value for value in is_open)


FAST_LAYERS: dict[type, type[FastLayer]] = {
    fast.__mro__[2]: fast
    for fast in (
        FastGCNConv,
        FastChebConv,
        FastFeaStConv,
        FastGINConv,
        FastGraphConv,
        FastSAGEConv,
        FastGMMConv,
        FastSplineConv,
    )
}
