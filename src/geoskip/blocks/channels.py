"""What a block reads from its convolution: channels, bias, the features among its arguments and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from geoskip.operators import Operator

_DICTIONARIES = "it maps dictionaries of features, one tensor for each type of vertex"
_OTHER_FIRST = "its first argument is something else than the features of vertices"

# Classes of PyTorch Geometric that take or give something else than features of vertices.
_UNFIT = {
    "DNAConv": "its input holds the features of every layer before it, [vertices, layers, channels]",
    "HANConv": _DICTIONARIES,
    "HGTConv": _DICTIONARIES,
    "HeteroConv": f"{_DICTIONARIES}; wrap the convolutions in it, as add_skips(model) does",
    "JumpingKnowledge": "its input is a list of the features of every layer before it",
    "LPAttLayer": _OTHER_FIRST,
    "LabelPropagation": _OTHER_FIRST,
    "NeighborEmbedding": _OTHER_FIRST,
    "SparseLinear": _OTHER_FIRST,
    "WLConv": "it maps colors, which are whole numbers, and no features",
}


def pyg_class(module: nn.Module) -> str | None:
    """Name of the class of PyTorch Geometric that a module is, or is derived from.

    Recognized by name, so that PyTorch Geometric need not be imported or installed.
    """
    return next((cls.__name__ for cls in type(module).__mro__ if cls.__module__.startswith("torch_geometric.")), None)


# Position of the vertex features among the arguments, where it is not the first. to_hetero_with_bases replaces each
# convolution by a HeteroBasisConv, which sets attributes of the convolutions inside it, so the skip goes around all.
_FEATURES_AT = {"HeteroBasisConv": 1}


def features_at(module: nn.Module) -> int:
    """Position of the vertex features among a convolution's arguments."""
    return _FEATURES_AT.get(pyg_class(module) or "", 0)


def is_convolution(module: nn.Module) -> bool:
    """One of our operators, or a convolution of PyTorch Geometric; ``HeteroConv`` is a container of them."""
    if isinstance(module, Operator) or features_at(module):
        return True
    derived = any(cls.__module__.startswith("torch_geometric.nn.conv.") for cls in type(module).__mro__)
    return derived and pyg_class(module) != "HeteroConv"


def why_unfit(module: nn.Module) -> str | None:
    """The reason why no skip fits around a module, as far as its class tells."""
    return _UNFIT.get(pyg_class(module) or "")


def own_bias(conv: nn.Module) -> nn.Parameter | None:
    """The bias that a module adds to its output: an attribute ``bias`` with one value per channel.

    ARMAConv and AntiSymmetricConv have a ``bias`` inside their activation, where it cannot be the block's b.
    """
    bias = getattr(conv, "bias", None)
    if not isinstance(bias, nn.Parameter) or pyg_class(conv) == "AntiSymmetricConv":
        return None
    return bias if is_lazy(bias) or bias.dim() == 1 else None


def read_channels(conv: nn.Module) -> tuple[int | None, int | None]:
    """Channels of the input at the receiving vertices and of the output; ``None`` where the module does not say."""
    if pyg_class(conv) == "HeteroBasisConv":
        return read_channels(conv.convs[0])  # type: ignore[index, arg-type]
    channels = getattr(conv, "channels", None)
    inputs = _receiving(getattr(conv, "in_channels", channels))
    outputs = _receiving(getattr(conv, "out_channels", channels))
    if pyg_class(conv) == "SignedConv" and inputs is not None:
        inputs *= 1 if getattr(conv, "first_aggr", True) else 2
    return inputs, None if outputs is None else outputs * _copies(conv)


def _receiving(channels: Any) -> int | None:
    """Of a pair (senders, receivers) the latter; -1 is PyTorch Geometric's "not known yet"."""
    if isinstance(channels, (tuple, list)) and channels:
        channels = channels[-1]
    known = isinstance(channels, int) and not isinstance(channels, bool) and channels > 0
    return channels if known else None


def _copies(conv: nn.Module) -> int:
    """How many times ``out_channels`` the output is wide: heads that are concatenated, powers, signs."""
    heads = getattr(conv, "heads", 1) if getattr(conv, "concat", False) is True else 1
    match pyg_class(conv):
        case "MixHopConv":
            return len(getattr(conv, "powers", [0]))
        case "RGATConv":
            return heads * getattr(conv, "dim", 1)
        case "SignedConv":
            return 2
    return heads if isinstance(heads, int) else 1


def device_and_dtype(module: nn.Module) -> dict[str, Any]:
    """Device and dtype of a module's first floating-point tensor: new parameters go there too."""
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    first = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
    return {"device": first.device, "dtype": first.dtype}


def receiving_features(x: Any, block: str) -> Tensor:
    """Features of the vertices that receive: ``x`` itself, or ``x_dst`` of PyTorch Geometric's ``(x_src, x_dst)``."""
    received = x[-1] if isinstance(x, (tuple, list)) and len(x) == 2 else x
    if received is None:
        given = "None" if x is None else "(x_src, None)"
        raise ValueError(
            f"x: {block} was given {given}, no features of the receiving vertices, which the skip acts on; pass "
            "them, or leave this convolution without a skip (where=… of add_skips)"
        )
    check_skip_input(received, block)
    return received


def check_skip_input(x: Any, block: str) -> None:
    if not isinstance(x, Tensor):
        advice = "; wrap the convolution of each type of vertex instead" if isinstance(x, dict) else ""
        if isinstance(x, np.ndarray) and x.dtype.kind in "iuf":
            advice = "; convert it with torch.as_tensor(x, dtype=torch.float32)"
        raise TypeError(
            f"x: {block} acts on a tensor [*batch, vertices, channels] or a pair (x_src, x_dst), got a "
            f"{type(x).__name__}{advice}"
        )
    if not x.is_floating_point():
        # They may be an edge_index in the wrong place, or indices that a convolution looks up in a table. Converting
        # them would hide that.
        advice = "pass features, or leave a convolution that looks up whole numbers in a table without a skip"
        if x.dim() == 2 and x.shape[0] == 2 and not x.is_complex():
            advice = "the features come first, then the edge_index"
        raise TypeError(f"x: {block} acts on floating-point features, got {x.dtype} of shape {list(x.shape)}; {advice}")
    if x.dim() == 0:
        raise ValueError(f"x: {block} acts on a tensor [*batch, vertices, channels], got shape {list(x.shape)}")


def output_features(out: Any, block: str) -> Tensor:
    """Features in a convolution's output: the output, or the first of a tuple (attention weights follow)."""
    y = out[0] if isinstance(out, tuple) and out else out
    if not isinstance(y, Tensor):
        raise TypeError(
            f"conv: {block} needs a convolution that returns a tensor [*batch, vertices, channels], or a tuple that "
            f"starts with one; this one returned a {type(y).__name__}"
        )
    return y


def with_features(out: Any, y: Tensor) -> Any:
    """A convolution's output with other features; what else it holds stays."""
    return (y, *out[1:]) if isinstance(out, tuple) else y


def check_same_vertices(x: Tensor, y: Tensor, block: str) -> None:
    if x.shape[:-1] != y.shape[:-1]:
        raise ValueError(
            f"conv: {block} adds the features of each vertex to the output at that vertex, but the convolution "
            f"turned {list(x.shape)} into {list(y.shape)}; a layer that pools or flattens cannot have a skip"
        )
