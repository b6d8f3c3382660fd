"""What the operators share, each function with one signature and several paths.

``reference`` is plain PyTorch, as the formulas read. Which path runs is decided in :mod:`geoskip.kernels.dispatch`
alone.
"""

from geoskip.kernels.dispatch import (
    basis_convolution,
    chebyshev_convolution,
    gaussian_basis,
    gaussian_convolution,
    linear,
    linear_cross_entropy,
    softmax_basis,
    softmax_convolution,
    sparse_product,
    use_path,
)
from geoskip.kernels.pattern import Pattern, sort_edges
from geoskip.kernels.tracing import is_traced, is_transformed

__all__ = [
    "Pattern",
    "basis_convolution",
    "chebyshev_convolution",
    "gaussian_basis",
    "gaussian_convolution",
    "is_traced",
    "is_transformed",
    "linear",
    "linear_cross_entropy",
    "softmax_basis",
    "softmax_convolution",
    "sort_edges",
    "sparse_product",
    "use_path",
]
