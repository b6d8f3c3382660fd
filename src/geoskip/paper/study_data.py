"""What the runs of a study are trained on, written beside each of them, so that a run can be looked into later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.data.mesh_set import MeshSet, StoredShapes
from geoskip.meshes import mesh_hierarchy
from geoskip.records.atomic import write_whole
from geoskip.records.reading import read_json
from geoskip.shapes import Int
from geoskip.training.evaluation import check_same_data
from geoskip.training.run import Run
from geoskip.training.tasks import Task, make_task
from geoskip.training.tasks.loading import load_data

STUDY = "study.json"
FORMAT = 1


def task_of(run: Run) -> Task:
    """The task of a run as it was trained: a study's runs have coarser data and initial values of their own.

    ValueError where the data are not those that it was trained on.
    """
    coarse = read_study(run.folder / STUDY)
    if coarse is None:
        task = run.make_task()
    else:
        loaded = load_data(run.config)
        data = stored(coarser(loaded, coarse)) if coarse else loaded
        task = start_alike(run.make_task(data), data)
    wanted, found = run.context.facts.get("topology"), task.facts().get("topology")
    if wanted != found:
        raise ValueError(
            f"{run.folder}: the run was trained on another mesh than {run.config.data} has now; if it was given data "
            "in Python, analyse it there"
        )
    check_same_data(run, task)
    return task


def write_study(folder: Path, coarse: Sequence[int]) -> None:
    """Note beside a run that it is one of a study, by which factors its meshes were coarsened."""
    write_whole(folder / STUDY, (json.dumps({"format": FORMAT, "coarse": list(coarse)}) + "\n").encode())


def start_alike(task: Task, data: MeshSet) -> Task:
    """The task, whose models now begin with the values that the seed gives to bare operators; skips keep their own.

    Otherwise the draws of the skips would shift all later ones, and methods would differ in their luck as well.
    """
    bare, own = make_task(replace(task.config, skip="none"), data=data), task.make_model

    def make_model() -> nn.Module:
        model = own()
        model.load_state_dict(bare.make_model().state_dict())
        return model

    # On the instance, so that copies on other devices keep it.
    vars(task)["make_model"] = make_model
    return task


def coarser(data: MeshSet, factors: Sequence[int]) -> MeshSet:
    """The same shapes with fewer vertices: those that quadric decimation of the template keeps."""
    meshes = mesh_hierarchy(data.template, factors=tuple(factors))
    kept = torch.arange(data.template.num_vertices)
    for down in meshes.down:
        kept = kept[torch.from_numpy(down.indices).long()]
    return replace(data, template=meshes.levels[-1], shapes=KeptVertices(data.shapes, kept))


@dataclass(frozen=True, eq=False)
class KeptVertices:
    """Some vertices of other shapes; the ``Shapes`` of a coarser set."""

    shapes: Any
    kept: Int[Tensor, " kept"]

    def __len__(self) -> int:
        return len(self.shapes)

    def decode(self, items: Int[Tensor, " items"]) -> Tensor:
        return self.shapes.decode(items)[:, self.kept]

    def to(self, device: torch.device | str) -> KeptVertices:
        return KeptVertices(self.shapes.to(device), self.kept.to(device))


def stored(data: MeshSet) -> MeshSet:
    """The same set with its positions decoded once, where they fit into memory."""
    parts = torch.arange(len(data)).split(1024)
    return replace(data, shapes=StoredShapes(torch.cat([data.verts(part) for part in parts])))


def read_study(path: Path) -> list[int] | None:
    """The factors; None where the run is none of a study."""
    if not path.is_file():
        return None
    try:
        entries = read_json(path)
        if entries["format"] != FORMAT:
            raise ValueError(f"of another format than {FORMAT}")
        return [int(factor) for factor in entries["coarse"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: does not say what the run was trained on ({error!r}); run the study anew") from error
