"""Radial basis interpolants with a polynomial part, thin plate splines, and meshes warped by landmarks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoskip.rbf.interpolant import RBFInterpolant, bending_energy, fit_rbf, thin_plate_spline
from geoskip.rbf.radial_kernels import KERNEL_NAMES, RadialKernel, make_kernel

if TYPE_CHECKING:
    from geoskip.rbf.warping import Warp, apply_warp, pair_landmarks, read_landmarks, warp, warp_mesh

__all__ = [
    "KERNEL_NAMES",
    "RBFInterpolant",
    "RadialKernel",
    "Warp",
    "apply_warp",
    "bending_energy",
    "fit_rbf",
    "make_kernel",
    "pair_landmarks",
    "read_landmarks",
    "thin_plate_spline",
    "warp",
    "warp_mesh",
]


def __getattr__(name: str) -> Any:
    """Load the warping module on first use, so that interpolants and operators do not import meshes and SciPy."""
    if name in __all__:
        return getattr(import_module("geoskip.rbf.warping"), name)
    raise AttributeError(f"module 'geoskip.rbf' has no attribute {name!r}")
