"""Thin plate interpolation against SciPy: ``python benchmarks/rbf.py [--device cuda]``; prints JSON.

2,000 centres solved and 100,000 points evaluated in float64, in space, three outputs. SciPy runs on the CPU of the same
machine; the fastest of ``--repeats`` runs counts for both. The two results are compared before any time is printed.
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

from geoskip.rbf import fit_local, fit_rbf, fit_sparse

SCIPY_NAMES = {"thin_plate": "thin_plate_spline"}
# Inverse widths that suit 2,000 centres in a unit cube.
EPSILON = {"thin_plate": None, "linear": None, "cubic": None, "gaussian": 12.0, "multiquadric": 12.0}


def scattered(count: int, dim: int, seed: int) -> torch.Tensor:
    return torch.rand(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fastest(run: Callable[[], Any], repeats: int) -> float:
    """Seconds; what runs on a card has ended."""
    times = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        run()
        _wait()
        times.append(time.perf_counter() - start)
    return min(times)


def dense(device: str, num_centres: int, num_points: int, kernel: str, repeats: int) -> dict:
    centres, values, points = scattered(num_centres, 3, 0), scattered(num_centres, 3, 1), scattered(num_points, 3, 2)
    name, epsilon = SCIPY_NAMES.get(kernel, kernel), EPSILON[kernel]
    here = [given.to(device) for given in (centres, values, points)]

    def theirs() -> RBFInterpolator:
        return RBFInterpolator(centres.numpy(), values.numpy(), kernel=name, epsilon=epsilon)

    def ours() -> Any:
        return fit_rbf(here[0], here[1], kernel, epsilon=epsilon)

    with torch.no_grad():
        fitted, scipys = ours(), theirs()
        wanted = scipys(points.numpy())
        # The first call of ours also wakes up the card's libraries.
        difference = float(np.abs(fitted(here[2]).cpu().numpy() - wanted).max() / np.abs(wanted).max())
        assert difference < 1e-6, f"{kernel}: {difference} apart from SciPy"
        seconds = {
            "scipy_solve": fastest(theirs, repeats),
            "scipy_evaluate": fastest(lambda: scipys(points.numpy()), min(repeats, 2)),
            "geoskip_solve": fastest(ours, repeats),
            "geoskip_evaluate": fastest(lambda: fitted(here[2]), repeats),
        }
    scipy_all = seconds["scipy_solve"] + seconds["scipy_evaluate"]
    geoskip_all = seconds["geoskip_solve"] + seconds["geoskip_evaluate"]
    return {
        "kernel": kernel,
        "centres": num_centres,
        "points": num_points,
        "relative_difference": difference,
        "seconds": seconds,
        "times_faster": scipy_all / geoskip_all,
    }


def many_centres(num_centres: int, dim: int, within: int = 30) -> dict:
    """The local and the sparse form, on the CPU, with some 30 centres inside the support."""
    centres, values, points = scattered(num_centres, dim, 0), scattered(num_centres, 3, 1), scattered(10_000, dim, 2)
    ball = {2: np.pi, 3: 4 / 3 * np.pi}[dim]
    radius = float((within / num_centres / ball) ** (1 / dim))
    start = time.perf_counter()
    fitted = fit_sparse(centres, values, radius, degree=1)
    solved = time.perf_counter() - start
    missed = float((fitted(centres) - values).abs().max())
    local = fastest(lambda: fit_local(centres, values, neighbours=24)(points), 1)
    return {
        "centres": num_centres,
        "dimensions": dim,
        "sparse_solve_seconds": solved,
        "sparse_largest_miss": missed,
        "local_seconds_for_10000_points": local,
    }


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _machine(device: str) -> dict:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "scipy": scipy.__version__}
    card = torch.cuda.get_device_name() if device.startswith("cuda") else None
    return {"device": card or device, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--centres", type=int, default=2_000)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kernels", nargs="+", choices=sorted(EPSILON), default=["thin_plate"])
    parser.add_argument("--many", type=int, default=0, help="also the sparse and the local form of so many centres")
    given = parser.parse_args()
    told = {
        "machine": _machine(given.device),
        "dense": [dense(given.device, given.centres, given.points, kernel, given.repeats) for kernel in given.kernels],
        "many_centres": [many_centres(given.many, dim) for dim in (2, 3) if given.many],
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
