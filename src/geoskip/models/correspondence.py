"""Dense correspondence as classification of vertices, the paper's experiment on FAUST."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.arguments import check_type, whole_number, whole_numbers
from geoskip.graphs import Graph, RecordBuffers
from geoskip.models.layers import GlorotLinear, MakeLayer, layer_maker
from geoskip.operators.checks import check_features, check_order
from geoskip.shapes import Float


class CorrespondenceNet(nn.Module):
    r"""For each vertex of a mesh the scores of the template's vertices, after FeaStNet's single-scale network:

    .. code-block:: text

        Lin(16) → ELU → {Conv(c) → ELU} for c in 32, 64, 128 → Lin(256) → Dropout → Lin(num_classes)

    As the paper's appendix has it, Lin(256) has no activation. The softmax is left to the loss: the scores are logits.

    Args:
        num_classes: vertices of the template; 6890 for FAUST.
        operator: a name (see :func:`~geoskip.operators.make_operator`), or a function (in, out) → module.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``, around every convolution.
        kernel_size: the operator's M; the paper has 10.
        graph: copied to buffers and used where :meth:`forward` is given no graph of its own.
        dim: dimension of the pseudo-coordinates, where the operator looks at them.
        in_channels: features of a vertex.
        lift: channels of the first linear layer.
        channels: channels of the convolutions.
        head: channels of the last but one linear layer.
        dropout: probability that one of these is dropped.
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
        # Not ``graph``: torch.export cannot run a program with a submodule of that name.
        self.fixed_graph = None if graph is None else RecordBuffers(graph)
        self.lift = GlorotLinear(in_channels, lift)
        self.convs = nn.ModuleList(layer(i, o) for i, o in pairwise([lift, *channels]))
        self.head = GlorotLinear(channels[-1], head)
        self.dropout = nn.Dropout(dropout)
        self.output = GlorotLinear(head, num_classes)

    def forward(
        self, x: Float[Tensor, "*batch vertices channels"], graph: Graph | None = None
    ) -> Float[Tensor, "*batch vertices classes"]:
        return self.output(self.features(x, graph))

    def features(
        self, x: Float[Tensor, "*batch vertices channels"], graph: Graph | None = None
    ) -> Float[Tensor, "*batch vertices head"]:
        """What the last layer, ``output``, makes the scores of."""
        check_order(x, graph, "net")
        graph = self._graph_for(graph)
        check_features("x", x, self.lift.in_features, self, "CorrespondenceNet")
        x = elu(self.lift(x))
        for conv in self.convs:
            x = elu(conv(x, graph))
        return self.dropout(self.head(x))

    def _graph_for(self, given: Graph | None) -> Graph:
        if given is not None:
            check_type("graph", given, Graph, "see Graph.from_edge_index, from_faces and from_pyg")
            return given
        if self.fixed_graph is None:
            raise ValueError("graph: the network holds none; make it with graph=… or call it as net(x, graph)")
        return self.fixed_graph()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        with_current_keys(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def with_current_keys(state_dict: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Rename, in place, the keys of older checkpoints, which have ``graph.…`` instead of ``fixed_graph.…``."""
    for key in [key for key in state_dict if key.startswith(f"{prefix}graph.")]:
        state_dict[f"{prefix}fixed_{key.removeprefix(prefix)}"] = state_dict.pop(key)
    return state_dict
