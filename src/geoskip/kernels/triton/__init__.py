"""The CUDA kernels, in Triton. Under ``TRITON_INTERPRET=1`` they run on the CPU, slowly: the tests do that.

Prefixes of the variables in kernels: ``i_`` indices and program ids, ``o_`` offsets, ``m_`` masks, ``p_`` pointers,
``b_`` blocks of values.
"""

from geoskip.kernels.sparse import sparse_product, sparse_product_gradients
from geoskip.kernels.triton.coarse_levels import bit_matrices, coarsen_stored
from geoskip.kernels.triton.convolution import (
    basis_convolution,
    basis_convolution_gradients,
    gaussian_convolution,
    gaussian_convolution_gradients,
    perceptron_convolution,
    perceptron_convolution_gradients,
    softmax_convolution,
    softmax_convolution_gradients,
)
from geoskip.kernels.triton.linear_layers import linear, linear_gradients
from geoskip.kernels.triton.matching import match_dense
from geoskip.kernels.triton.normalization import mean_weights, symmetric_weights
from geoskip.kernels.triton.packing_kernels import packed_clusters, packed_edges, packed_graphs
from geoskip.kernels.triton.polynomials import chebyshev_convolution, chebyshev_convolution_gradients
from geoskip.kernels.triton.products import spmm
from geoskip.kernels.triton.segments import (
    max_pool,
    max_pool_gradients,
    mean_pool,
    mean_pool_gradients,
    segment_mean,
    segment_mean_gradients,
)
from geoskip.kernels.triton.training_step import linear_cross_entropy, linear_cross_entropy_gradients

__all__ = [
    "basis_convolution",
    "basis_convolution_gradients",
    "bit_matrices",
    "chebyshev_convolution",
    "chebyshev_convolution_gradients",
    "coarsen_stored",
    "gaussian_convolution",
    "gaussian_convolution_gradients",
    "linear",
    "linear_cross_entropy",
    "linear_cross_entropy_gradients",
    "linear_gradients",
    "match_dense",
    "max_pool",
    "max_pool_gradients",
    "mean_pool",
    "mean_pool_gradients",
    "mean_weights",
    "packed_clusters",
    "packed_edges",
    "packed_graphs",
    "perceptron_convolution",
    "perceptron_convolution_gradients",
    "segment_mean",
    "segment_mean_gradients",
    "softmax_convolution",
    "softmax_convolution_gradients",
    "sparse_product",
    "sparse_product_gradients",
    "spmm",
    "symmetric_weights",
]
