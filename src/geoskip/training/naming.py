"""A run as tables call it."""

from __future__ import annotations

from geoskip.training.config import Config

OPERATORS = {
    "cheb": "ChebNet",
    "feast": "FeaStNet",
    "gcn": "GCN",
    "gin": "GIN-0",
    "monet": "MoNet",
    "spiral": "SpiralNet++",
    "spline": "SplineCNN",
}
SKIPS = {"none": "", "residual": "Res-", "affine": "Aff-", "polynomial": "Poly-"}


def method_name(config: Config) -> str:
    """The paper's name of operator and skip: ``Aff-MoNet``, and † where the centre vertex is left out."""
    without = config.options.get("centre") is False or config.options.get("self_loops") is False
    return SKIPS[config.skip] + OPERATORS.get(config.operator, config.operator) + "†" * without


def row_name(config: Config) -> str:
    """The same with the kernel size: ``Aff-MoNet M=9``."""
    return method_name(config) + (f" M={config.kernel_size}" if config.kernel_size else "")
