"""Our parameters under PyTorch Geometric's names and layouts. The maps are linear, so they carry gradients too."""

from __future__ import annotations

from torch import Tensor

Values = dict[str, Tensor]


def translated(operator: str, ours: Values) -> Values:
    """Parameters of a block, or their gradients, as its peer has them.

    ``ours`` has the names of an operator, or of an affine skip around it: then ``weight`` is the skip's matrix.
    """
    values = {name.removeprefix("conv."): value for name, value in ours.items()}
    skip = values.pop("weight", None)
    theirs = _MAPS[operator](values)
    if skip is None:
        return theirs
    if operator == "monet":
        return theirs | {"root.weight": skip.t()}
    return {f"conv.{name}": value for name, value in theirs.items()} | {"linear.weight": skip.t()}


def _monet(ours: Values) -> Values:
    stacked = ours["theta"].transpose(0, 1).flatten(1)
    return {"g": stacked, "mu": ours["mean"], "sigma": ours["scale"], "bias": ours["bias"]}


def _feast(ours: Values) -> Values:
    stacked = ours["theta"].transpose(1, 2).flatten(0, 1)
    return {"lin.weight": stacked, "u.weight": ours["attention"], "c": ours["offset"], "bias": ours["bias"]}


def _cheb(ours: Values) -> Values:
    return {f"lins.{m}.weight": matrix.t() for m, matrix in enumerate(ours["theta"])} | {"bias": ours["bias"]}


def _gcn(ours: Values) -> Values:
    return {"lin.weight": ours["theta"].t(), "bias": ours["bias"]}


def _gin(ours: Values) -> Values:
    return {
        "nn.0.weight": ours["theta"].t(),
        "nn.0.bias": ours["hidden_bias"],
        "nn.2.weight": ours["theta_out"].t(),
        "nn.2.bias": ours["bias"],
    }


_MAPS = {"monet": _monet, "feast": _feast, "cheb": _cheb, "gcn": _gcn, "gin": _gin}
