"""The paper's three networks, for any operator and any skip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.arguments import check_type, real_number, whole_number, whole_numbers
from geoskip.blocks import NO_SKIP, find_skip, make_block
from geoskip.blocks.pooling import POOLINGS, mean_over_graphs
from geoskip.blocks.skips import takes_option
from geoskip.graphs import Graph, Hierarchy, PooledGraphs, RecordBuffers
from geoskip.kernels import linear, use_path
from geoskip.operators import Operator, make_operator, operator_info
from geoskip.operators.base import glorot, zeros
from geoskip.operators.input_checks import check_device_and_dtype, check_features, check_is_tensor, check_order
from geoskip.registry import check_choice
from geoskip.shapes import Bool, Float

__all__ = ["CorrespondenceNet", "GraphClassifier", "MeshAutoencoder"]

MakeLayer = Callable[[int, int], nn.Module]
Method = TypeVar("Method", bound=Callable[..., None])


def layer_maker(
    operator: str | MakeLayer,
    skip: str,
    kernel_size: int | tuple[int, ...] | None,
    dim: int | None,
    options: Mapping[str, Any],
) -> MakeLayer:
    """A function of the input and output channels that makes the operator with its skip around it.

    ``operator`` is a name, or a user's own function from channels to a module that is called as ``conv(x, graph)``.
    """
    if callable(operator):
        make = operator
        if kernel_size is not None or options:
            extra = ["kernel_size"] * (kernel_size is not None) + sorted(options)
            raise ValueError(
                f"{', '.join(extra)}: for an operator given by name; a function of your own sets them itself"
            )
    else:
        make = partial(make_operator, operator, kernel_size=kernel_size, dim=dim, **options)

    # A layer without a bias: the skip would add its own.
    without_bias = options.get("bias") is False and skip != NO_SKIP and takes_option(find_skip(skip), "bias")
    skip_options = {"bias": False} if without_bias else {}

    def make_layer(in_channels: int, out_channels: int) -> nn.Module:
        conv = make(in_channels, out_channels)
        if type(conv).__module__.startswith("torch_geometric."):
            raise TypeError(
                f"operator: the networks call conv(x, graph), but {type(conv).__name__} of PyTorch Geometric takes an "
                "edge_index; use geoskip's operator, or a module that passes graph.edge_index on"
            )
        return make_block(conv, skip=skip, **skip_options)

    return make_layer


def called_at_trace_time(method: Method) -> Method:
    """Decorator for a method of a model: when ``torch.compile`` traces a call of it, it is run instead, once."""
    # As torch.compiler.assume_constant_result does, which imports the compiler: that takes a second.
    method._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return method


@torch.no_grad()
def prepare_graph(block: nn.Module, graph: Graph) -> None:
    """Have the graph remember what the operators in ``block`` compute from it alone."""
    for part in block.modules():
        if isinstance(part, Operator):
            # No items: nothing but the edges is computed.
            with use_path("reference"):
                part(part.theta.new_zeros(0, graph.num_vertices, part.in_channels), graph)


class GlorotLinear(nn.Linear):
    """``nn.Linear`` with the initial values of the paper's appendix; the paper's Lin and FC."""

    def reset_parameters(self) -> None:
        glorot(self.weight)
        zeros(self.bias)

    def forward(self, x: Float[Tensor, "*rows channels"]) -> Float[Tensor, "*rows out"]:
        return linear(x, self.weight, self.bias)


class MeshAutoencoder(nn.Module):
    r"""Encodes meshes of one connectivity as a short code, and decodes it, after SpiralNet++ and CoMA:

    .. code-block:: text

        encoder  {Conv(c) → ELU → down} for c in channels → FC(latent)
        decoder  FC → {up → Conv(c) → ELU} for c in reversed channels → Conv(in_channels)

    With the default channels the convolutions are 3→32→32→32→64 and 64→64, 64→32, 32→32, 32→32, 32→3. The fully
    connected layers and the output have no activation. Table 1 of the paper.

    Args:
        hierarchy: with one level more than there are ``channels``. Its graphs have what the operator uses:
            pseudo-coordinates or spirals. Copied to buffers, so that it moves with ``.to()`` and is in checkpoints.
        operator: a name (see :func:`~geoskip.operators.make_operator`), or a function (in, out) → module.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``, around every convolution.
        kernel_size: the operator's M; the paper has 4, 9 and 14.
        in_channels: features of a vertex, in the input and in the output.
        channels: channels of the encoder's convolutions, one for each step of the hierarchy.
        latent: length of the code.
        options: further options of the operator.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        operator: str | MakeLayer,
        skip: str = "none",
        kernel_size: int | tuple[int, ...] | None = None,
        in_channels: int = 3,
        channels: Sequence[int] = (32, 32, 32, 64),
        latent: int = 16,
        **options: Any,
    ) -> None:
        super().__init__()
        check_type("hierarchy", hierarchy, Hierarchy)
        channels = whole_numbers("channels", channels, "MeshAutoencoder")
        if len(channels) != len(hierarchy.down) or not channels:
            raise ValueError(
                f"channels: give one number for each of the {len(hierarchy.down)} steps of the hierarchy "
                f"{hierarchy.sizes}, which needs at least one step; got {tuple(channels)}"
            )
        in_channels = whole_number("in_channels", in_channels, "MeshAutoencoder")
        latent = whole_number("latent", latent, "MeshAutoencoder")
        pseudo = hierarchy.levels[0].pseudo
        layer = layer_maker(operator, skip, kernel_size, None if pseudo is None else pseudo.shape[1], options)
        self.latent = latent
        self.hierarchy = RecordBuffers(hierarchy)
        self.coarsest = hierarchy.sizes[-1], channels[-1]
        outwards = [channels[-1], *reversed(channels)]
        self.encoder = nn.ModuleList(layer(i, o) for i, o in pairwise([in_channels, *channels]))
        self.to_code = GlorotLinear(self.coarsest[0] * self.coarsest[1], latent)
        self.from_code = GlorotLinear(latent, self.coarsest[0] * self.coarsest[1])
        self.decoder = nn.ModuleList(layer(i, o) for i, o in pairwise(outwards))
        self.output = layer(channels[0], in_channels)

    def _traced_hierarchy(self) -> Hierarchy:
        """The hierarchy. When ``torch.compile`` traces, its graphs first remember what the operators need of them:
        otherwise every compiled step would sort their edges again."""
        if torch.compiler.is_dynamo_compiling():
            self._prepare_graphs()
        return self.hierarchy()

    @called_at_trace_time
    def _prepare_graphs(self) -> None:
        levels = self.hierarchy().levels
        blocks = [*zip(self.encoder, levels, strict=False), *zip(self.decoder, levels[-2::-1], strict=True)]
        for block, graph in (*blocks, (self.output, levels[0])):
            prepare_graph(block, graph)

    def encode(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch latent"]:
        """The codes of meshes."""
        hierarchy = self._traced_hierarchy()
        for conv, graph, down in zip(self.encoder, hierarchy.levels[:-1], hierarchy.down, strict=True):
            x = down @ elu(conv(x, graph))
        return self.to_code(x.flatten(-2))

    def decode(self, code: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch vertices channels"]:
        """The meshes of codes."""
        check_is_tensor("code", code, self, "MeshAutoencoder")
        if code.dim() == 0 or code.shape[-1] != self.latent:
            raise ValueError(f"code: expected shape [*batch, {self.latent}], got {list(code.shape)}")
        check_device_and_dtype("code", code, self, "MeshAutoencoder")
        hierarchy = self._traced_hierarchy()
        x = self.from_code(code).unflatten(-1, self.coarsest)
        for conv, graph, up in zip(self.decoder, hierarchy.levels[-2::-1], hierarchy.up[::-1], strict=True):
            x = elu(conv(up @ x, graph))
        return self.output(x, hierarchy.levels[0])

    def forward(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices channels"]:
        return self.decode(self.encode(x))


class CorrespondenceNet(nn.Module):
    r"""Scores of the template's vertices for each vertex of a mesh, after FeaStNet's single-scale network:

    .. code-block:: text

        Lin(16) → ELU → {Conv(c) → ELU} for c in 32, 64, 128 → Lin(256) → Dropout → Lin(num_classes)

    The scores are logits. Lin(256) has no activation, as in the paper's appendix; the first author's public code has an
    ELU there. The paper's experiment on FAUST.

    Args:
        num_classes: vertices of the template; 6890 for FAUST.
        operator: a name (see :func:`~geoskip.operators.make_operator`), or a function (in, out) → module.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``, around every convolution.
        kernel_size: the operator's M; the paper has 10.
        graph: used if :meth:`forward` is called without a graph. Copied to buffers.
        dim: dimension of the pseudo-coordinates, if the operator uses them.
        in_channels: features of a vertex.
        lift: channels of the first linear layer.
        channels: channels of the convolutions.
        head: channels of the linear layer before the last.
        dropout: probability that one of these channels is dropped.
        head_elu: whether an ELU follows Lin(256).
        input_scale: factor for x. 10 makes decimeters of the meters that ``geoskip train`` passes.
        options: further options of the operator.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        operator: str | MakeLayer,
        skip: str = "none",
        kernel_size: int | tuple[int, ...] | None = None,
        graph: Graph | None = None,
        dim: int = 3,
        in_channels: int = 3,
        lift: int = 16,
        channels: Sequence[int] = (32, 64, 128),
        head: int = 256,
        dropout: float = 0.5,
        head_elu: bool = False,
        input_scale: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__()
        channels = whole_numbers("channels", channels, "CorrespondenceNet")
        if not channels:
            raise ValueError("channels: give at least one number of channels, got none")
        sizes = {"num_classes": num_classes, "in_channels": in_channels, "lift": lift, "head": head}
        num_classes, in_channels, lift, head = (whole_number(*size, "CorrespondenceNet") for size in sizes.items())
        if graph is not None:
            check_type("graph", graph, Graph)
        layer = layer_maker(operator, skip, kernel_size, dim, options)
        self.input_scale = real_number("input_scale", input_scale, "CorrespondenceNet")
        # Not ``graph``: torch.export cannot run a program with a submodule of that name.
        self.fixed_graph = None if graph is None else RecordBuffers(graph)
        self.lift = GlorotLinear(in_channels, lift)
        self.convs = nn.ModuleList(layer(i, o) for i, o in pairwise([lift, *channels]))
        self.head = GlorotLinear(channels[-1], head)
        self.head_elu = head_elu
        self.dropout = nn.Dropout(dropout)
        self.output = GlorotLinear(head, num_classes)

    def forward(
        self, x: Float[Tensor, "*batch vertices channels"], graph: Graph | None = None
    ) -> Float[Tensor, "*batch vertices classes"]:
        return self.output(self.features(x, graph))

    def features(
        self, x: Float[Tensor, "*batch vertices channels"], graph: Graph | None = None
    ) -> Float[Tensor, "*batch vertices head"]:
        """The input of the last layer, ``output``."""
        check_order(x, graph, "net")
        graph = self._graph_for(graph)
        check_features("x", x, self.lift.in_features, self, "CorrespondenceNet")
        x = elu(self.lift(x if self.input_scale == 1 else x * self.input_scale))
        for conv in self.convs:
            x = elu(conv(x, graph))
        x = self.head(x)
        return self.dropout(elu(x) if self.head_elu else x)

    def _graph_for(self, given: Graph | None) -> Graph:
        if given is not None:
            check_type("graph", given, Graph, "see Graph.from_edge_index, from_faces and from_pyg")
            return given
        if self.fixed_graph is None:
            raise ValueError("graph: the network has none; create it with graph=… or call it as net(x, graph)")
        if torch.compiler.is_dynamo_compiling():
            self._prepare_graph()
        return self.fixed_graph()

    @called_at_trace_time
    def _prepare_graph(self) -> None:
        """As :meth:`MeshAutoencoder._prepare_graphs` does."""
        if self.fixed_graph is not None:
            for block in self.convs:
                prepare_graph(block, self.fixed_graph())


class GraphClassifier(nn.Module):
    r"""Scores of the classes for each graph, from the features of its vertices and its coarsenings:

    .. code-block:: text

        Conv(32) → Pool → Conv(64) → Pool → Conv(64) → mean over the vertices → FC(128) → Dropout → FC(num_classes)

    with ELU after each layer except the last: the scores are logits. Batch normalization follows each GIN layer. The
    paper does not say how Pool combines the vertices that Graclus merges; the default is their maximum. Table 2 of the
    paper.

    Args:
        operator: a name (see :func:`~geoskip.operators.make_operator`), or a function (in, out) → module.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``, around every convolution.
        kernel_size: the operator's M; the paper has 25.
        dim: dimension of the pseudo-coordinates, if the operator uses them: 2 for positions, 1 for degrees.
        num_classes: number of classes.
        in_channels: features of a vertex.
        channels: channels of the convolutions; there is a pooling between any two.
        head: channels of the first fully connected layer.
        dropout: probability that one of these channels is dropped.
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
        check_choice("pooling", pooling, tuple(POOLINGS))
        self.pool = POOLINGS[pooling]
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
