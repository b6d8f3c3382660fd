"""Radial basis interpolants with their polynomial part, thin plate splines, and meshes warped by landmarks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoskip.rbf.energy import bending_energy, native_energy
    from geoskip.rbf.interpolant import RBFInterpolant, fit_rbf
    from geoskip.rbf.kernels import KERNEL_NAMES, Kernel, make_kernel, polyharmonic, wendland
    from geoskip.rbf.landmarks import read_landmarks
    from geoskip.rbf.local import LocalRBF, fit_local
    from geoskip.rbf.sparse import SparseRBF, fit_sparse
    from geoskip.rbf.thin_plate import biharmonic, thin_plate_spline
    from geoskip.rbf.warping import Warp, warp, warp_mesh

_HOME = {
    "KERNEL_NAMES": "kernels",
    "Kernel": "kernels",
    "LocalRBF": "local",
    "RBFInterpolant": "interpolant",
    "SparseRBF": "sparse",
    "Warp": "warping",
    "bending_energy": "energy",
    "biharmonic": "thin_plate",
    "fit_local": "local",
    "fit_rbf": "interpolant",
    "fit_sparse": "sparse",
    "make_kernel": "kernels",
    "native_energy": "energy",
    "polyharmonic": "kernels",
    "read_landmarks": "landmarks",
    "thin_plate_spline": "thin_plate",
    "warp": "warping",
    "warp_mesh": "warping",
    "wendland": "kernels",
}

__all__ = [
    "KERNEL_NAMES",
    "Kernel",
    "LocalRBF",
    "RBFInterpolant",
    "SparseRBF",
    "Warp",
    "bending_energy",
    "biharmonic",
    "fit_local",
    "fit_rbf",
    "fit_sparse",
    "make_kernel",
    "native_energy",
    "polyharmonic",
    "read_landmarks",
    "thin_plate_spline",
    "warp",
    "warp_mesh",
    "wendland",
]


def __getattr__(name: str) -> Any:
    """Names are loaded when they are used: a dense interpolant need not wait for SciPy or for meshes."""
    if name in _HOME:
        return getattr(import_module(f"geoskip.rbf.{_HOME[name]}"), name)
    raise AttributeError(f"module 'geoskip.rbf' has no attribute {name!r}")
