"""Kernel sizes: how many weight matrices a run had, and what its size is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KernelSize:
    """The size of a kernel as configured, and what it comes to.

    value: M, the number of weight matrices, of every operator but SplineCNN; of that m, its control values a dimension.
    dim: dimensions that the size is meant for: 1, but for SplineCNN those of its pseudo-coordinates.
    """

    value: int
    letter: str = "M"
    dim: int = 1

    @property
    def matrices(self) -> int:
        """M = m^d: SplineCNN has a matrix for each product of splines."""
        return self.value**self.dim

    def __str__(self) -> str:
        return f"{self.letter} = {self.value}"


def kernel_size(config: Mapping[str, Any]) -> KernelSize | None:
    """The size that a record's configuration tells; None where the operator has none."""
    value = config.get("kernel_size")
    if not isinstance(value, int):
        return None
    return KernelSize(value, "m", _dim(config)) if config.get("operator") == "spline" else KernelSize(value)


def _dim(config: Mapping[str, Any]) -> int:
    """Of pseudo-coordinates: degrees have one dimension, places in an image two, those on a mesh three."""
    if config.get("pseudo") == "degree":
        return 1
    return 2 if config.get("task") == "classification" else 3
