r"""What skips and convolutions contribute: decoding by parts (the paper's Figure 4, with numbers), and block shares.

The paper shows that decoding through the affine skips alone gives what the samples have in common. Here that is
measured: how much of the difference between samples is left, and how bumpy the surface is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.blocks import Skip, only
from geoskip.blocks.channels import output_features, receiving_features
from geoskip.graphs import Graph
from geoskip.kernels import sparse_product
from geoskip.models import MeshAutoencoder
from geoskip.shapes import Float

PARTS = ("affine", "convolution")
ALL, MEAN = "all", "mean"


def decode_parts(
    model: MeshAutoencoder, x: Float[Tensor, "samples vertices channels"]
) -> dict[str, Float[Tensor, "samples vertices channels"]]:
    """Decode the codes of x with whole blocks (``"full"``), with their affine parts and with their convolutions only.

    The encoder stays whole, and a block's bias belongs to its affine part.
    """
    blocks = nn.ModuleList(_decoder_skips(model).values())
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
    decoded = {}
    with torch.no_grad():
        code = model.encode(x)
        for name, block in _decoder_skips(model).items():
            with only(block, part):
                decoded[name] = model.decode(code)
    return decoded


def _decoder_skips(model: MeshAutoencoder) -> dict[str, Skip]:
    blocks = {f"decoder.{k}": block for k, block in enumerate(model.decoder)} | {"output": model.output}
    skips = {name: block for name, block in blocks.items() if isinstance(block, Skip)}
    if not skips:
        raise ValueError(f"model: the decoder of this {type(model).__name__} has no skips, so it has no parts")
    return skips


def compare_parts(
    full: Float[Tensor, "samples vertices 3"],
    others: Mapping[tuple[str, str], Float[Tensor, "samples vertices 3"]],
    graph: Graph,
    unit_mm: float = 1.0,
) -> list[dict[str, Any]]:
    """Compare the positions of decodings, by part and layer, with the full ones; ``graph`` is the mesh's.

    ``distance_mm`` is the mean distance of a vertex from its position with whole blocks. ``variation`` says how much
    the samples differ, and ``bumps`` how rough the surfaces are, both divided by the value of whole blocks.
    """
    if not float(variation(full)) > 0:
        raise ValueError("full: the samples all decode to the same shape; give at least two that differ")
    return [
        {
            "part": part,
            "layer": layer,
            "distance_mm": float((verts - full).norm(dim=-1).mean()) * unit_mm,
            "variation": float(variation(verts) / variation(full)),
            "bumps": float(bumpiness(verts, graph) / bumpiness(full, graph)),
        }
        for (part, layer), verts in others.items()
    ]


def variation(verts: Float[Tensor, "samples vertices 3"]) -> Float[Tensor, ""]:
    """Root mean square distance of the vertices from their means over the samples."""
    return (verts - verts.mean(0)).square().sum(-1).mean().sqrt()


def bumpiness(verts: Float[Tensor, "*batch vertices 3"], graph: Graph) -> Float[Tensor, ""]:
    """Root mean square distance of the vertices from the mean of their neighbors."""
    shares = (1 / graph.degrees.to(verts.dtype))[graph.pattern.receivers]
    return (verts - sparse_product(verts, shares, graph.pattern)).square().sum(-1).mean().sqrt()


@dataclass(frozen=True)
class BlockShare:
    r"""What the skip's part a contributes to a block's output y = a + c, with the mean of each channel subtracted.

    Attributes:
        layer: name of the block in the model.
        share: :math:`\langle a, y \rangle / \|y\|^2`: the skip's and the convolution's add up to 1. Below 0 or above 1
            if one part cancels the other.
        size: :math:`\|a\|^2 / (\|a\|^2 + \|c\|^2)`, between 0 and 1: how large the skip's part is by itself.
        cosine: of the angle between a and c; near -1 if they cancel.
    """

    layer: str
    share: float
    size: float
    cosine: float


def block_shares(model: nn.Module, forward: Callable[[nn.Module], Any]) -> list[BlockShare]:
    """The shares of the blocks of a model, in the order in which ``forward(model)`` calls them.

    A block that is called twice is listed twice. Call ``model.eval()`` first if the model has dropout.
    """
    blocks = [(name, module) for name, module in model.named_modules() if isinstance(module, Skip)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} has no blocks with skips, so there are no shares to measure")
    rows: list[BlockShare] = []

    def hook(name: str) -> Callable[..., None]:
        def measure(block: Skip, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            affine = block.affine(receiving_features(args[0] if args else kwargs["x"], name))
            rows.append(BlockShare(name, *affine_share(affine, output_features(out, name))))

        return measure

    handles = [block.register_forward_hook(hook(name), with_kwargs=True) for name, block in blocks]
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
    """Share, size and cosine of :class:`BlockShare`, from the skip's part and the whole; 0 instead of 0 / 0."""
    # A bias is the same for all vertices and items, so the mean is subtracted.
    a, y = (part.double().flatten(0, -2) for part in (affine, whole))
    a, y = a - a.mean(0), y - y.mean(0)
    c = y - a
    of_a, of_c, of_y = (float(part.square().sum()) for part in (a, c, y))
    share = float((a * y).sum()) / (of_y or 1)
    return share, of_a / (of_a + of_c or 1), float((a * c).sum()) / ((of_a * of_c) ** 0.5 or 1)
