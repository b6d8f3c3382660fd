"""Why are accuracies so much lower where every body has its own connectivity?

Makes the changes of ``remeshed-bodies`` one by one, on the bodies of ``bodies``: turned about the vertical, vertices
slid along the surface, edges flipped.

People, poses and training are the same each time. Accuracies are those on validation items, one of the training people;
the test set is not used.

    python docs/analyze_connectivity.py [--schedule first60] [--vertices 689] -o results/analysis/connectivity.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from geoskip.data import CorrespondenceSet
from geoskip.meshes import Mesh
from geoskip.meshes.retriangulation import flip_edges, slide_vertices
from geoskip.paper.experiments import CORRESPONDENCE, VALIDATED
from geoskip.paper.findings import record_analysis
from geoskip.paper.measures import trained_epochs
from geoskip.paper.running import loaded
from geoskip.training.config import override
from geoskip.training.devices import choose_device, device_name

METHODS = ("MoNet", "Aff-MoNet", "FeaStNet", "Aff-FeaStNet")
CHANGES: dict[str, tuple[str, ...]] = {
    "one connectivity": (),
    "turned": ("turn",),
    "vertices slid": ("slide",),
    "edges flipped": ("flip",),
    "vertices slid, edges flipped": ("slide", "flip"),
    "all three": ("slide", "flip", "turn"),
}


@dataclass(frozen=True)
class ConnectivityPoint:
    """A method after training on bodies that were changed in one way.

    loss: the mean training loss of the last epoch.
    accuracy_pct: on validation items.
    """

    change: str
    method: str
    seed: int
    loss: float
    accuracy_pct: float


def changed(data: CorrespondenceSet, changes: Sequence[str], seed: int = 0) -> CorrespondenceSet:
    """The bodies, each with changes of its own; the target stays as it is."""

    def one(number: int, mesh: Mesh) -> Mesh:
        rng = {
            name: np.random.default_rng([seed, index, number]) for index, name in enumerate(("slide", "flip", "turn"))
        }
        if "slide" in changes:
            mesh = slide_vertices(mesh, rng["slide"])
        if "flip" in changes:
            mesh = flip_edges(mesh, rng["flip"])
        if "turn" in changes:
            angle = rng["turn"].uniform(0.0, 360.0)
            mesh = mesh.with_verts(mesh.verts @ Rotation.from_euler("y", angle, degrees=True).as_matrix().T)
        return mesh

    return replace(data, meshes=tuple(one(number, mesh) for number, mesh in enumerate(data.meshes)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What own connectivities change, one by one.")
    parser.add_argument("--schedule", default="first60", help="as of geoskip reproduce")
    parser.add_argument("--vertices", type=int, default=689, help="of each body")
    parser.add_argument("--seeds", type=int, default=1, help="number of runs of each method")
    parser.add_argument("--method", action="append", help="only this method")
    parser.add_argument("--data", default="bodies", help="the data set, or tiny")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    parser.add_argument("-o", "--output", type=Path, required=True, help="write the record to this file")
    args = parser.parse_args(arguments)
    started, results = time.perf_counter(), list[ConnectivityPoint]()
    settings = [f"{name}={value}" for name, value in VALIDATED.items()]
    if args.data == "bodies":
        settings.append(f"data_options.num_vertices={args.vertices}")
    for seed in range(args.seeds):
        for change, changes in CHANGES.items():
            for row in CORRESPONDENCE.select(args.method or METHODS):
                config = override(row.config(args.data, args.schedule, seed, args.device), settings)
                data = changed(loaded(config), changes)
                *_, (_, task, model, metrics) = trained_epochs(config, data)
                accuracy = task.evaluate(model, "validation").metrics["accuracy_pct"]
                results.append(ConnectivityPoint(change, row.method, seed, metrics["loss"], accuracy))
                print(
                    f"{change}, {row.method}, seed {seed}: {accuracy:.2f} % at loss {metrics['loss']:.2f}", flush=True
                )
    shown = {"schedule": args.schedule, "vertices": args.vertices, "seeds": args.seeds, "data": args.data}
    device = device_name(torch.device(choose_device(args.device)))
    key = getattr(loaded(config), "content", "")
    record_analysis(args.output, "connectivity", shown, [asdict(one) for one in results], started, device, key)


if __name__ == "__main__":
    main()
