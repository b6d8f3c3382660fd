"""Radial basis interpolants with a polynomial part, thin plate splines, and meshes warped by landmarks."""

# ruff: noqa: I001
from typing import TYPE_CHECKING

from geoskip.registry import lazy_names

if TYPE_CHECKING:
    from geoskip.rbf.interpolant import (
        RBFInterpolant as RBFInterpolant,
        bending_energy as bending_energy,
        fit_rbf as fit_rbf,
        thin_plate_spline as thin_plate_spline,
    )
    from geoskip.rbf.radial_kernels import (
        KERNEL_NAMES as KERNEL_NAMES,
        RadialKernel as RadialKernel,
        make_kernel as make_kernel,
    )
    from geoskip.rbf.warping import (
        Warp as Warp,
        apply_warp as apply_warp,
        pair_landmarks as pair_landmarks,
        read_landmarks as read_landmarks,
        warp as warp,
        warp_mesh as warp_mesh,
    )

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "interpolant": "RBFInterpolant bending_energy fit_rbf thin_plate_spline",
        "radial_kernels": "KERNEL_NAMES RadialKernel make_kernel",
        "warping": "Warp apply_warp pair_landmarks read_landmarks warp warp_mesh",
    },
)
