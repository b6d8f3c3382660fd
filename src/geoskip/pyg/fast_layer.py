"""What the fast layers share: which layers and calls the kernels can take, and which run PyTorch Geometric's code."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import Linear
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from geoskip.kernels.paths import is_autocast
from geoskip.kernels.pattern import sizes_of
from geoskip.pyg.edge_cache import SortedEdges, looped_edges, mean_shares, remember, sorted_edges

MESSAGE_HOOKS = tuple(
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate")
    for when in ("", "pre_")
)
MODULE_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# On the CPU PyTorch Geometric's code is faster if its messages have fewer channels than NARROW, those of all items of
# a batch together, or fewer numbers than SMALL, those of all edges. Both include the time of sorting new edges.
NARROW, SMALL = 8, 400_000
AGGREGATIONS = {"add": SumAggregation, "sum": SumAggregation, "mean": MeanAggregation}


class FastLayer(pyg.MessagePassing):
    """What the fast layers share.

    Attributes:
        aggregations: those that the kernels have.
        linears: names of the linear layers (or lists of them) whose weights the kernels take without calling them.
        with_bias: name of the one among them that may have a bias.
        has_slow_code: whether PyTorch Geometric's own code runs without further packages.
        slowness: of PyTorch Geometric's code relative to the kernels on small graphs, 1 for plain sums of messages.
    """

    aggregations: ClassVar[tuple[str, ...]] = ("add", "sum", "mean")
    linears: ClassVar[tuple[str, ...]] = ("lin",)
    with_bias: ClassVar[str] = ""
    has_slow_code: ClassVar[bool] = True
    slowness: ClassVar[float] = 1

    @classmethod
    def why_not(cls, layer: Any) -> str | None:
        """The reason why a layer cannot be replaced; None if it can. Each call asks again, because a layer may have
        changed since."""
        if layer.aggr not in cls.aggregations:
            return f"aggr={layer.aggr!r} is not one of {', '.join(map(repr, cls.aggregations))}"
        if type(layer.aggr_module) is not AGGREGATIONS[layer.aggr]:
            return "its aggr_module was replaced"
        if layer.node_dim != -2:
            return f"node_dim={layer.node_dim} is not -2"
        if _has_hooks(layer, MESSAGE_HOOKS) or _has_hooks(layer.aggr_module, MODULE_HOOKS):
            return "it has hooks on its messages"
        for method in ("propagate", "message", "aggregate", "update"):
            if method in layer.__dict__:
                return f"its {method} was replaced"
        for name in cls.linears:
            module = layer._modules.get(name)
            for linear in module if type(module) is nn.ModuleList else (module,):
                if linear is None or _is_plain(linear, name == cls.with_bias):
                    continue
                if is_lazy(linear._parameters.get("weight")):  # type: ignore[arg-type]
                    return "its channels are unknown before the first call; call the model once, then accelerate it"
                return f"its {name} has hooks, or is not a plain linear layer"
        return None

    def matrix(self) -> tuple[Tensor | None, int | None]:
        """A parameter that multiplies the senders' features, and its axis of channels, None if any number fits. The
        parameter is None if it is parametrized: computing it may change its state."""
        return self._modules[self.linears[0]]._parameters.get("weight"), 1

    def message_channels(self, in_channels: int) -> int:
        """Channels of all messages that PyTorch Geometric's code makes for an edge."""
        return in_channels

    def is_slow_call(
        self, x: tuple[Any, Any], edge_index: Any, edge_values: Any = None, dim: int = 0, size: Any = None
    ) -> bool:
        """Whether a call runs PyTorch Geometric's own code: for adjacency matrices, explanations, traces, small graphs
        on the CPU, and all input that the kernels do not expect, so that wrong input raises PyTorch Geometric's errors.

        ``x`` are the features of senders and receivers, twice the same if they are one set of vertices. Edge values
        have ``dim`` dimensions; 0 stands for weights, ``[edges]`` or ``[edges, 1]``.
        """
        if type(edge_index) is not Tensor or edge_index.layout is not torch.strided or self.explain:
            return True
        shape = edge_index.shape
        if len(shape) != 2 or shape[0] != 2 or edge_index.is_floating_point():
            return True
        senders, receivers = x
        if torch.jit.is_tracing() or not _are_features(senders):
            return True
        # Under autocast the kernels have other output types, which must not depend on the size.
        if edge_index.device.type == "cpu" and self.has_slow_code and not torch.is_autocast_enabled("cpu"):
            items, _, in_channels = sizes_of(senders)
            channels = items * self.message_channels(in_channels)
            if channels < NARROW or shape[1] * channels * self.slowness < SMALL:
                return True
        if type(self).why_not(self) is not None:
            return True
        if not (receivers is None or receivers is senders or _are_features(receivers)):
            return True
        # Against the flow, PyTorch Geometric makes one output for each sender.
        if receivers is not senders and self.flow != "source_to_target":
            return True
        if edge_values is not None:
            if not _fit_edges(edge_values, shape[1], dim):
                return True
            differs = self.has_slow_code and edge_values.dtype is not senders.dtype
            if differs and _raises_precision(edge_values, senders):
                return True
        if size is not None and not all(_fits(number, of) for number, of in zip(size, x, strict=True)):
            return True
        matrix, axis = self.matrix()
        if matrix is None:
            # Copies for several devices have no parameters, but plain tensors.
            matrix, axis = next(self.parameters(), senders), None
        if axis is not None and senders.shape[-1] != matrix.shape[axis]:
            return True
        return senders.dtype is not matrix.dtype and not is_autocast(senders)

    def weighted_edges(
        self, x: tuple[Tensor, Tensor | None], edge_index: Tensor, size: Any, dtype: torch.dtype, center: float = 0.0
    ) -> tuple[SortedEdges, Tensor]:
        """Sorted edges, and the weight of each: 1, or 1 / number of neighbors for a mean. ``center`` adds a self-loop
        of this weight to every vertex."""
        num_senders, num_receivers = num_vertices_of(x, size)

        def build() -> tuple[SortedEdges, Tensor]:
            if center:
                edges = looped_edges(edge_index, num_senders, self.flow)
            else:
                edges = sorted_edges(edge_index, num_senders, num_receivers, self.flow)
            if self.aggr == "mean":
                weights = mean_shares(edges.pattern, dtype, num_loops=1 if center else 0)
            else:
                weights = torch.ones(edges.pattern.num_edges, dtype=dtype, device=edge_index.device)
            if center:
                weights[edges.order >= edge_index.shape[1]] = center
            return edges, weights

        key = ("weighted", self.aggr, num_senders, num_receivers, self.flow, dtype, center)
        return remember((edge_index,), key, build)


def num_vertices_of(x: tuple[Tensor, Tensor | None], size: Any) -> tuple[int, int]:
    """How many vertices send, and how many receive."""
    num_senders = x[0].shape[-2]
    if size is not None and size[1] is not None:
        return num_senders, size[1]
    return num_senders, num_senders if x[1] is None else x[1].shape[-2]


def _has_hooks(module: nn.Module, names: tuple[str, ...]) -> bool:
    return any(map(module.__dict__.get, names))


def _is_plain(linear: nn.Module, may_have_bias: bool) -> bool:
    """Whether a module computes x Wᵀ (+ b) and nothing else. Parametrizations are fine: they are part of W."""
    forward = type(linear).forward
    if (forward is not Linear.forward and forward is not nn.Linear.forward) or "forward" in linear.__dict__:
        return False
    return (may_have_bias or linear._parameters.get("bias") is None) and not _has_hooks(linear, MODULE_HOOKS)


def _are_features(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.layout is torch.strided and x.dim() > 1


def _fit_edges(values: Any, num_edges: int, dim: int) -> bool:
    if not isinstance(values, Tensor) or values.layout is not torch.strided:
        return False
    if dim > 0:
        return values.shape == (num_edges, dim)
    return values.is_floating_point() and values.numel() == num_edges


def _raises_precision(values: Tensor, x: Tensor) -> bool:
    """Whether edge values give an output of a higher precision than that of ``x``."""
    return torch.promote_types(values.dtype, x.dtype) is not x.dtype and not is_autocast(x)


def _fits(number: int | None, x: Tensor | None) -> bool:
    return number is None or x is None or number == x.shape[-2]
