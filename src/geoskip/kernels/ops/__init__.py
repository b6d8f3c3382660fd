"""The fast kernels as operators of torch: with shapes for tracing, with gradients, one name on every device."""

from geoskip.kernels.ops.backend import interpreted, on_triton
from geoskip.kernels.ops.bases import gaussian, softmax
from geoskip.kernels.ops.chebyshev import chebyshev
from geoskip.kernels.ops.convolve import convolve
from geoskip.kernels.ops.entropy import LinearCrossEntropy
from geoskip.kernels.ops.fused import GaussianConvolve, SoftmaxConvolve
from geoskip.kernels.ops.linear import Linear
from geoskip.kernels.ops.product import product

__all__ = [
    "GaussianConvolve",
    "Linear",
    "LinearCrossEntropy",
    "SoftmaxConvolve",
    "chebyshev",
    "convolve",
    "gaussian",
    "interpreted",
    "on_triton",
    "product",
    "softmax",
]
