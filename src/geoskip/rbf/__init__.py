"""Radial basis interpolants with a polynomial part, thin plate splines, and meshes warped by landmarks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoskip.rbf.interpolant import RBFInterpolant, fit_rbf
from geoskip.rbf.kernels import KERNEL_NAMES, RadialKernel, make_kernel, polyharmonic, wendland
from geoskip.rbf.thin_plate import bending_energy, biharmonic, native_energy, thin_plate_spline

if TYPE_CHECKING:
    from geoskip.rbf.warping import Warp, apply_warp, pair_landmarks, read_landmarks, warp, warp_mesh

__all__ = [
    "KERNEL_NAMES",
    "RBFInterpolant",
    "RadialKernel",
    "Warp",
    "apply_warp",
    "bending_energy",
    "biharmonic",
    "fit_rbf",
    "make_kernel",
    "native_energy",
    "pair_landmarks",
    "polyharmonic",
    "read_landmarks",
    "thin_plate_spline",
    "warp",
    "warp_mesh",
    "wendland",
]


def __getattr__(name: str) -> Any:
    """Load the warping module on first use, so that interpolants and operators do not import meshes and SciPy."""
    if name in __all__:
        return getattr(import_module("geoskip.rbf.warping"), name)
    raise AttributeError(f"module 'geoskip.rbf' has no attribute {name!r}")
