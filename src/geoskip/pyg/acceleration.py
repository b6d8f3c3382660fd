"""Runs the layers of a finished PyTorch Geometric model on geoskip's kernels, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from geoskip.arguments import check_type
from geoskip.blocks.channels import is_convolution
from geoskip.operators import Operator


@dataclass(frozen=True)
class Layer:
    """A convolution of a model: its name there, its class, and why it was not replaced (None if it was)."""

    name: str
    layer: str
    reason: str | None = None


@dataclass(frozen=True)
class Acceleration:
    """What :func:`accelerate` did; ``print`` shows it as a table."""

    replaced: tuple[Layer, ...]
    unchanged: tuple[Layer, ...]
    undone: bool = False

    def __str__(self) -> str:
        total = len(self.replaced) + len(self.unchanged)
        where = "back to PyTorch Geometric's code" if self.undone else "to geoskip's kernels"
        rows = [
            (row.name or "(model)", row.layer, f"unchanged: {row.reason}" if row.reason else "")
            for row in (*self.replaced, *self.unchanged)
        ]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
        lines = [f"  {name:<{widths[0]}}  {layer:<{widths[1]}}  {reason}".rstrip() for name, layer, reason in rows]
        return "\n".join([f"{len(self.replaced)} of {total} convolutions moved {where}", *lines])


def accelerate(model: nn.Module, *, undo: bool = False) -> Acceleration:
    r"""Run the convolutions of a PyTorch Geometric model on geoskip's kernels, in place.

    ``print(accelerate(model))`` shows which layers were replaced, and why others were not. Outputs and gradients are
    the same up to rounding. Parameters stay the same tensors under the same names: optimizers, checkpoints and
    ``state_dict`` are unaffected, before and after. ``accelerate(model, undo=True)`` undoes it.

    Replaced are GMMConv, FeaStConv, ChebConv, GCNConv, GINConv, GraphConv, SAGEConv and SplineConv with sums or
    means, including their edge weights, cached and bipartite forms. Subclasses are not replaced, because they may
    change what a layer computes. Calls with a sparse adjacency matrix instead of an ``edge_index``, and explanations,
    run PyTorch Geometric's code.

    Edges are sorted once for each ``edge_index`` tensor and shared by all layers, so pass the same tensor again where
    the graph does not change. Do not modify it through ``.data`` or NumPy.

    Args:
        model: any model that contains PyTorch Geometric's layers, or one layer.
        undo: go back to PyTorch Geometric's own layers.
    """
    check_type("model", model, nn.Module)
    layers = [(name, layer) for name, layer in model.named_modules() if is_convolution(layer)]
    from_pyg = [(name, layer) for name, layer in layers if not isinstance(layer, Operator)]
    if not from_pyg:
        raise ValueError(f"model: {type(model).__name__} has no convolutions of PyTorch Geometric to accelerate")
    from geoskip.pyg.fast_layer import FastLayer
    from geoskip.pyg.layers import FAST_LAYERS

    slow_layers = {fast: slow for slow, fast in FAST_LAYERS.items()}
    replaced, unchanged = [], []
    for name, layer in from_pyg:
        before: type = type(layer)
        after: type | None
        reason: str | None
        # torch gives a module with parametrizations a class of its own.
        kind: type = before.__bases__[0] if is_parametrized(layer) else before
        title = slow_layers.get(kind, kind).__name__
        if undo:
            after, reason = slow_layers.get(before), "it is PyTorch Geometric's own layer"
            if kind is not before and kind in slow_layers:
                reason = "it has parametrizations; remove them first"
        elif isinstance(layer, FastLayer):
            after, reason = None, "it runs on geoskip's kernels already"
        elif kind is not before and kind in FAST_LAYERS:
            after, reason = None, "it has parametrizations; accelerate it before you add them"
        elif before not in FAST_LAYERS:
            after, reason = None, _why_unknown(before, FAST_LAYERS)
        else:
            reason = FAST_LAYERS[before].why_not(layer)
            after = FAST_LAYERS[before] if reason is None else None
        if after is None:
            unchanged.append(Layer(name, title, reason))
        else:
            layer.__class__ = after
            replaced.append(Layer(name, title))
    return Acceleration(tuple(replaced), tuple(unchanged), undo)


def _why_unknown(layer: type, known: dict[type, type]) -> str:
    base = next((base for base in layer.__mro__[1:] if base in known), None)
    if base is None:
        return "geoskip has no kernel for it"
    return f"it is a subclass of {base.__name__} and may compute something else"
