"""PyTorch Geometric models on geoskip's kernels: :func:`accelerate` is all there is to learn."""

from geoskip.pyg.acceleration import Acceleration, Layer, accelerate

__all__ = ["Acceleration", "Layer", "accelerate"]
