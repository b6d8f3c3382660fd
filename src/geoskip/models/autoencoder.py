"""Mesh autoencoder: shape reconstruction, Table 1 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.arguments import check_type, whole_number, whole_numbers
from geoskip.graphs import RecordBuffers
from geoskip.graphs.hierarchy import Hierarchy
from geoskip.models.layers import GlorotLinear, MakeLayer, layer_maker
from geoskip.operators.checks import check_device_and_dtype, check_is_tensor
from geoskip.shapes import Float


class MeshAutoencoder(nn.Module):
    r"""Meshes of one connectivity to a short code and back, after SpiralNet++ (Gong et al. 2019) and CoMA:

    .. code-block:: text

        encoder  {Conv(c) → ELU → down} for c in channels → FC(latent)
        decoder  FC → {up → Conv(c) → ELU} for c in reversed channels → Conv(in_channels)

    With the default channels the convolutions are 3→32→32→32→64 and 64→64, 64→32, 32→32, 32→32, 32→3. The
    fully connected layers have no activation, nor has the output.

    Args:
        hierarchy: one level more than there are ``channels``. Level graphs carry what the operator looks at:
            pseudo-coordinates, spirals. Copied to buffers, so that ``.to()`` and checkpoints carry it.
        operator: a name (see :func:`~geoskip.operators.make_operator`), or a function (in, out) → module.
        skip: ``"none"``, ``"residual"``, ``"affine"`` or ``"polynomial"``, around every convolution.
        kernel_size: the operator's M; the paper has 4, 9 and 14.
        in_channels: features of a vertex, going in and coming out.
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
        _check_channels(channels, hierarchy)
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

    def encode(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch latent"]:
        hierarchy = self.hierarchy()
        for conv, graph, down in zip(self.encoder, hierarchy.levels[:-1], hierarchy.down, strict=True):
            x = down @ elu(conv(x, graph))
        return self.to_code(x.flatten(-2))

    def decode(self, code: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch vertices channels"]:
        check_is_tensor("code", code, self, "MeshAutoencoder")
        if code.dim() == 0 or code.shape[-1] != self.latent:
            raise ValueError(f"code: expected shape [*batch, {self.latent}], got {list(code.shape)}")
        check_device_and_dtype("code", code, self, "MeshAutoencoder")
        hierarchy = self.hierarchy()
        x = self.from_code(code).unflatten(-1, self.coarsest)
        for conv, graph, up in zip(self.decoder, hierarchy.levels[-2::-1], hierarchy.up[::-1], strict=True):
            x = elu(conv(up @ x, graph))
        return self.output(x, hierarchy.levels[0])

    def forward(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices channels"]:
        return self.decode(self.encode(x))


def _check_channels(channels: Sequence[int], hierarchy: Hierarchy) -> None:
    steps = len(hierarchy.down)
    if len(channels) != steps or not steps:
        raise ValueError(
            f"channels: the hierarchy {hierarchy.sizes} has {steps} steps, so give {max(steps, 1)} numbers of channels "
            f"(and at least one step); got {tuple(channels)}"
        )
