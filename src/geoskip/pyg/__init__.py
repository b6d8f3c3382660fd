"""PyTorch Geometric models on geoskip's kernels: see :func:`accelerate`."""

from geoskip.pyg.acceleration import Acceleration, Layer, accelerate

__all__ = ["Acceleration", "Layer", "accelerate"]
