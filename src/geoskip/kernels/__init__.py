"""The functions that the operators share: each has a reference formula, CPU kernels and Triton kernels.

:mod:`geoskip.kernels.reference` has the formulas in plain PyTorch. :mod:`geoskip.kernels.paths` alone chooses which
path runs.
"""

from geoskip.kernels.functional import (
    basis_convolution,
    chebyshev_convolution,
    gaussian_convolution,
    linear,
    linear_cross_entropy,
    perceptron_convolution,
    softmax_convolution,
    sparse_product,
)
from geoskip.kernels.paths import is_traced, is_transformed, use_path
from geoskip.kernels.pattern import Pattern, sort_edges

__all__ = [
    "Pattern",
    "basis_convolution",
    "chebyshev_convolution",
    "gaussian_convolution",
    "is_traced",
    "is_transformed",
    "linear",
    "linear_cross_entropy",
    "perceptron_convolution",
    "softmax_convolution",
    "sort_edges",
    "sparse_product",
    "use_path",
]
