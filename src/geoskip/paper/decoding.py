r"""What skips and convolutions contribute: decoding by parts (the paper's Figure 4, with numbers), and block shares.

The paper shows that decoding through the affine skips alone gives what the samples have in common. Here that is
measured: how much of the difference between samples is left, and how bumpy the surface is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.blocks import Skip, only
from geoskip.blocks.channels import features_of, receiving_features
from geoskip.graphs import Graph
from geoskip.kernels import sparse_product
from geoskip.models import MeshAutoencoder
from geoskip.shapes import Float

PARTS = ("affine", "convolution")
ALL = "all"


@dataclass(frozen=True)
class DecodedPart:
    """A decoding by parts of blocks, compared with decoding by whole blocks.

    Attributes:
        part: the part that is kept, ``"affine"`` or ``"convolution"``.
        layer: the block that is reduced to it, or ``"all"``.
        distance: mean distance of a vertex from its position with whole blocks.
        variation: how much the samples differ, :func:`variation` over that of whole blocks: 0 where all samples decode
            to one shape, 1 where they differ as much as they should.
        bumps: how rough the surfaces are, :func:`bumpiness` over that of whole blocks.
    """

    part: str
    layer: str
    distance: float
    variation: float
    bumps: float


def decode_parts(
    model: MeshAutoencoder, x: Float[Tensor, "samples vertices channels"]
) -> dict[str, Float[Tensor, "samples vertices channels"]]:
    """Codes of x decoded by whole blocks (``"full"``), by their affine parts alone, by their convolutions alone. The
    encoder is left whole, and a block's bias belongs to its affine part."""
    blocks = _decoder(model)
    with torch.no_grad():
        code = model.encode(x)
        decoded = {"full": model.decode(code)}
        for part in PARTS:
            with only(blocks, part):
                decoded[part] = model.decode(code)
    return decoded


def decode_layers(
    model: MeshAutoencoder, x: Float[Tensor, "samples vertices channels"], part: str
) -> dict[str, Float[Tensor, "samples vertices channels"]]:
    """As :func:`decode_parts`, with one block of the decoder at a time reduced to ``part`` and the others whole."""
    names = {f"decoder.{k}": block for k, block in enumerate(model.decoder)} | {"output": model.output}
    decoded = {}
    with torch.no_grad():
        code = model.encode(x)
        for name, block in names.items():
            if isinstance(block, Skip):
                with only(block, part):
                    decoded[name] = model.decode(code)
    if not decoded:
        raise _no_skips(model)
    return decoded


def compare_parts(
    full: Float[Tensor, "samples vertices 3"],
    others: dict[tuple[str, str], Float[Tensor, "samples vertices 3"]],
    graph: Graph,
) -> list[DecodedPart]:
    """Decodings by (part, layer) beside the full ones, all as positions; ``graph`` is the mesh's."""
    if not float(variation(full)) > 0:
        raise ValueError("full: the samples all decode to the same shape; give at least two that differ")
    return [
        DecodedPart(
            part,
            layer,
            float((verts - full).norm(dim=-1).mean()),
            float(variation(verts) / variation(full)),
            float(bumpiness(verts, graph) / bumpiness(full, graph)),
        )
        for (part, layer), verts in others.items()
    ]


def variation(verts: Float[Tensor, "samples vertices 3"]) -> Float[Tensor, ""]:
    """Root mean square distance of the vertices from their means over the samples."""
    return (verts - verts.mean(0)).square().sum(-1).mean().sqrt()


def bumpiness(verts: Float[Tensor, "*batch vertices 3"], graph: Graph) -> Float[Tensor, ""]:
    """Root mean square distance of the vertices from the mean of their neighbors."""
    shares = (1 / graph.degrees.to(verts.dtype))[graph.pattern.receivers]
    return (verts - sparse_product(verts, shares, graph.pattern)).square().sum(-1).mean().sqrt()


def _decoder(model: MeshAutoencoder) -> nn.ModuleList:
    blocks = nn.ModuleList([*model.decoder, model.output])
    if not any(isinstance(block, Skip) for block in blocks):
        raise _no_skips(model)
    return blocks


def _no_skips(model: nn.Module) -> ValueError:
    return ValueError(f"model: the decoder of this {type(model).__name__} has no skips, so it has no parts")


@dataclass(frozen=True)
class BlockShare:
    r"""What the skip's part a contributes to a block's output y = a + c, each channel less its mean.

    Attributes:
        layer: name of the block in the model.
        share: :math:`\langle a, y \rangle / \|y\|^2`: the skip's and the convolution's add up to 1. Below 0 or above 1
            where one part undoes the other.
        size: :math:`\|a\|^2 / (\|a\|^2 + \|c\|^2)`, between 0 and 1: how large the skip's part is by itself.
        cosine: of the angle between a and c; near -1 where they cancel.
    """

    layer: str
    share: float
    size: float
    cosine: float


def block_shares(model: nn.Module, forward: Callable[[nn.Module], Any]) -> list[BlockShare]:
    """The blocks of a model, in the order in which ``forward(model)`` meets them; one that it meets more than once
    counts every time. The model's mode is its own affair: call ``model.eval()`` where dropout would disturb."""
    blocks = [(name, module) for name, module in model.named_modules() if isinstance(module, Skip)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} has no blocks with skips, so there are no shares to measure")
    rows: list[BlockShare] = []
    handles = [block.register_forward_hook(_watcher(name, rows), with_kwargs=True) for name, block in blocks]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return rows


def affine_share(
    affine: Float[Tensor, "*batch vertices channels"], whole: Float[Tensor, "*batch vertices channels"]
) -> tuple[float, float, float]:
    """Share, size and cosine of :class:`BlockShare`, from the skip's part and the whole; NaN never: 0 stands for the
    share of nothing."""
    a, y = (_centered(part) for part in (affine, whole))
    c = y - a
    squares = {name: float(part.square().sum()) for name, part in (("a", a), ("c", c), ("y", y))}
    share = float((a * y).sum()) / (squares["y"] or 1)
    size = squares["a"] / (squares["a"] + squares["c"] or 1)
    cosine = float((a * c).sum()) / ((squares["a"] * squares["c"]) ** 0.5 or 1)
    return share, size, cosine


def _watcher(name: str, rows: list[BlockShare]) -> Callable[..., None]:
    def watch(block: Skip, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        x = args[0] if args else kwargs["x"]
        affine = block.affine(receiving_features(x, name))
        rows.append(BlockShare(name, *affine_share(affine, features_of(out, name))))

    return watch


def _centered(part: Tensor) -> Tensor:
    """Subtract the mean: a bias is the same for all vertices and items."""
    flat = part.double().flatten(0, -2)
    return flat - flat.mean(0)
