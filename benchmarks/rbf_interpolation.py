"""Thin plate interpolation against SciPy: ``python benchmarks/rbf_interpolation.py [--device cuda]``; prints JSON.

Fits 2,000 centers in space with three outputs and evaluates 100,000 points, in float64. SciPy runs on the CPU of the
same machine. Both times are the fastest of ``--repeats`` runs. The results are compared before any time is printed.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import torch
from scipy.interpolate import RBFInterpolator

from geoskip.rbf import fit_rbf

SCIPY_NAMES = {"thin_plate": "thin_plate_spline"}
# Inverse widths that suit 2,000 centers in a unit cube.
EPSILON = {"thin_plate": None, "linear": None, "cubic": None, "gaussian": 12.0, "multiquadric": 12.0}


def scattered(count: int, dim: int, seed: int) -> torch.Tensor:
    return torch.rand(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fastest(run: Callable[[], Any], repeats: int) -> float:
    """The shortest time in seconds, including all work on the GPU."""
    times = []
    for _ in range(repeats):
        _synchronize()
        start = time.perf_counter()
        run()
        _synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def dense(device: str, num_centers: int, num_points: int, kernel: str, repeats: int) -> dict:
    centers, values, points = scattered(num_centers, 3, 0), scattered(num_centers, 3, 1), scattered(num_points, 3, 2)
    name, epsilon = SCIPY_NAMES.get(kernel, kernel), EPSILON[kernel]
    on_device = [tensor.to(device) for tensor in (centers, values, points)]

    def fit_scipy() -> RBFInterpolator:
        return RBFInterpolator(centers.numpy(), values.numpy(), kernel=name, epsilon=epsilon)

    def fit_geoskip() -> Any:
        return fit_rbf(on_device[0], on_device[1], kernel, epsilon=epsilon)

    with torch.no_grad():
        ours, theirs = fit_geoskip(), fit_scipy()
        expected = theirs(points.numpy())
        # Our first call also loads the CUDA libraries, which is not timed.
        difference = float(np.abs(ours(on_device[2]).cpu().numpy() - expected).max() / np.abs(expected).max())
        assert difference < 1e-6, f"{kernel}: differs from SciPy by {difference}"
        seconds = {
            "scipy_solve": fastest(fit_scipy, repeats),
            "scipy_evaluate": fastest(lambda: theirs(points.numpy()), min(repeats, 2)),
            "geoskip_solve": fastest(fit_geoskip, repeats),
            "geoskip_evaluate": fastest(lambda: ours(on_device[2]), repeats),
        }
    scipy_total = seconds["scipy_solve"] + seconds["scipy_evaluate"]
    geoskip_total = seconds["geoskip_solve"] + seconds["geoskip_evaluate"]
    return {
        "kernel": kernel,
        "centers": num_centers,
        "points": num_points,
        "relative_difference": difference,
        "seconds": seconds,
        "times_faster": scipy_total / geoskip_total,
    }


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _machine(device: str) -> dict:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "scipy": scipy.__version__}
    gpu = torch.cuda.get_device_name() if device.startswith("cuda") else None
    return {"device": gpu or device, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--centers", type=int, default=2_000)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kernels", nargs="+", choices=sorted(EPSILON), default=["thin_plate"])
    args = parser.parse_args()
    report = {
        "machine": _machine(args.device),
        "dense": [dense(args.device, args.centers, args.points, kernel, args.repeats) for kernel in args.kernels],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
