"""The CUDA path, in Triton. Under ``TRITON_INTERPRET=1`` the same kernels run on the CPU, slowly: the tests do that."""

from geoskip.kernels.triton.bases import gaussian, gaussian_gradients, softmax, softmax_gradients
from geoskip.kernels.triton.convolution import convolve, convolve_gradients
from geoskip.kernels.triton.entropy import entropy
from geoskip.kernels.triton.packing import packed_edges, packed_rows, packed_segments
from geoskip.kernels.triton.product import product

__all__ = [
    "convolve",
    "convolve_gradients",
    "entropy",
    "gaussian",
    "gaussian_gradients",
    "packed_edges",
    "packed_rows",
    "packed_segments",
    "product",
    "softmax",
    "softmax_gradients",
]
