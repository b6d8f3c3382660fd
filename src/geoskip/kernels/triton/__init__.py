"""The CUDA path, in Triton. Under ``TRITON_INTERPRET=1`` the same kernels run on the CPU, slowly: the tests do that."""

from geoskip.kernels.triton.convolution import convolve, convolve_gradients
from geoskip.kernels.triton.entropy import entropy
from geoskip.kernels.triton.gaussian import gaussian, gaussian_gradients
from geoskip.kernels.triton.packing import packed_edges, packed_rows, packed_segments
from geoskip.kernels.triton.product import product
from geoskip.kernels.triton.rows import over_rows
from geoskip.kernels.triton.softmax import attention_scores, softmax, softmax_gradients, softmax_of_scores

__all__ = [
    "attention_scores",
    "convolve",
    "convolve_gradients",
    "entropy",
    "gaussian",
    "gaussian_gradients",
    "over_rows",
    "packed_edges",
    "packed_rows",
    "packed_segments",
    "product",
    "softmax",
    "softmax_gradients",
    "softmax_of_scores",
]
