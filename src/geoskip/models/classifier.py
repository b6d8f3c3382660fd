"""Graph classifier: superpixels, Table 2 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.arguments import check_type, whole_number, whole_numbers
from geoskip.blocks.pooling import choose_pooling, mean_over_graphs
from geoskip.graphs.packing import PooledGraphs
from geoskip.models.layers import GlorotLinear, MakeLayer, layer_maker
from geoskip.operators import operator_info
from geoskip.operators.checks import check_order
from geoskip.shapes import Bool, Float


class GraphClassifier(nn.Module):
    r"""The class of each graph, from features of its vertices and its coarsenings:

    .. code-block:: text

        Conv(32) → Pool → Conv(64) → Pool → Conv(64) → mean over the vertices → FC(128) → Dropout → FC(num_classes)

    with ELU after each layer except the last, whose softmax is left to the loss: the scores are logits. A GIN layer is
    followed by batch normalization at once. The paper does not say what Pool does with the vertices that Graclus
    merges; here it takes their maximum, unless ``pooling`` says otherwise.

    Args:
        operator: a name (see :func:`~geoskip.operators.make_operator`), or a function (in, out) → module.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``, around every convolution.
        kernel_size: the operator's M; the paper has 25.
        dim: dimension of the pseudo-coordinates, where the operator looks at them: 2 for positions, 1 for degrees.
        num_classes: number of classes.
        in_channels: features of a vertex.
        channels: channels of the convolutions; there is a pooling between any two.
        head: channels of the first fully connected layer.
        dropout: probability that one of these is dropped.
        pooling: ``"max"`` or ``"mean"``.
        normalize: whether batch normalization follows each convolution; by default if the operator needs it (GIN).
        options: further options of the operator.
    """

    def __init__(
        self,
        *,
        operator: str | MakeLayer,
        skip: str = "none",
        kernel_size: int | tuple[int, ...] | None = None,
        dim: int = 2,
        num_classes: int = 10,
        in_channels: int = 1,
        channels: Sequence[int] = (32, 64, 64),
        head: int = 128,
        dropout: float = 0.5,
        pooling: str = "max",
        normalize: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        channels = whole_numbers("channels", channels, "GraphClassifier")
        if not channels:
            raise ValueError("channels: give at least one number of channels, got none")
        sizes = {"num_classes": num_classes, "in_channels": in_channels, "head": head}
        num_classes, in_channels, head = (whole_number(*size, "GraphClassifier") for size in sizes.items())
        layer = layer_maker(operator, skip, kernel_size, dim, options)
        if normalize is None:
            normalize = isinstance(operator, str) and operator_info(operator).needs_batch_norm
        self.pool = choose_pooling(pooling)
        self.convs = nn.ModuleList(layer(i, o) for i, o in pairwise([in_channels, *channels]))
        self.norms = nn.ModuleList(VertexNorm(c) if normalize else nn.Identity() for c in channels)
        self.head = GlorotLinear(channels[-1], head)
        self.dropout = nn.Dropout(dropout)
        self.output = GlorotLinear(head, num_classes)

    def forward(
        self, x: Float[Tensor, "*batch vertices channels"], graphs: PooledGraphs
    ) -> Float[Tensor, "*batch graphs classes"]:
        check_order(x, graphs, "classifier")
        check_type("graphs", graphs, PooledGraphs, "see PooledGraphs.from_clusters")
        if len(graphs.levels) != len(self.convs):
            raise ValueError(f"graphs: {len(self.convs)} convolutions need as many levels, got {len(graphs.levels)}")
        for step, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if step:
                x = self.pool(x, graphs.clusters[step - 1])
            x = conv(x, graphs.levels[step])
            if graphs.real is not None and isinstance(norm, VertexNorm):
                x = elu(norm(x, graphs.real[step]))
            else:
                x = elu(norm(x))
        x = mean_over_graphs(x, graphs.levels[-1])
        return self.output(self.dropout(elu(self.head(x))))


class VertexNorm(nn.BatchNorm1d):
    """Batch normalization of each channel over all vertices of all items.

    Where ``real`` is False, vertices are padding: in training they count for no statistic and send no gradient.
    """

    def forward(
        self, x: Float[Tensor, "*batch vertices channels"], real: Bool[Tensor, " vertices"] | None = None
    ) -> Float[Tensor, "*batch vertices channels"]:
        if real is None or not self.training:
            return super().forward(x.flatten(0, -2)).reshape(x.shape)
        weights = real.to(x.dtype).unsqueeze(1)
        count = weights.sum()
        mean = (x * weights).sum(0) / count
        variance = ((x - mean).square() * weights).sum(0) / count
        self._update_running(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        return (x - mean) * torch.rsqrt(variance + self.eps) * weights * self.weight + self.bias

    @torch.no_grad()
    def _update_running(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
