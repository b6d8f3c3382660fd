"""A task of another package, by ``module:Name``: train, evaluate, apply, export and report work in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import geoskip
from geoskip.meshes import icosphere, write_mesh
from geoskip.training.config import resolve
from geoskip.training.tasks import Task, find_task

OWN = '''
"""Which way a vertex's position points: a task with a model, a loss and an action of its own."""
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from geoskip import Graph
from geoskip.inference.apply import ActionResult
from geoskip.meshes import read_mesh
from geoskip.models import CorrespondenceNet
from geoskip.training import Evaluation, Task


def octants(verts):
    return ((verts > 0) * torch.tensor([1, 2, 4], device=verts.device)).sum(-1)


def predict(trained, paths, outputs):
    """Write the octant of each vertex."""
    faces = torch.tensor(trained.context.arguments["faces_of"])
    written, messages = [], []
    for path in paths:
        verts = torch.tensor(read_mesh(path).verts).float()
        graph = Graph.from_faces(faces, len(verts))
        predicted = trained.model(verts, graph).argmax(-1)
        target = outputs.claim(path.stem + ".txt", str(path))
        written += outputs.write([(target, "\\n".join(map(str, predicted.tolist())).encode())])
        messages.append((str(path), f"{len(verts)} vertices"))
    return ActionResult(written, messages)


class Net(CorrespondenceNet):
    def __init__(self, faces_of, **given):
        super().__init__(8, **given)


class Octants(Task):
    model_class = Net
    data_from = "reconstruction"
    actions = {"predict": predict}

    def model_arguments(self):
        return {"faces_of": self.data.template.faces.tolist()}

    def graph(self):
        return Graph.from_faces(torch.tensor(self.data.template.faces), self.data.template.num_vertices).to(self.device)

    def batch(self, items):
        return self.data.verts(self.train[items])

    def loss(self, model, verts):
        return cross_entropy(model(verts, self.graph()).flatten(0, 1), octants(verts).flatten())

    def evaluate(self, model, split="test"):
        model.eval()
        verts = self.data.verts(self.split_items(split))
        with torch.inference_mode():
            right = model(verts, self.graph()).argmax(-1) == octants(verts)
        return Evaluation({"right_pct": 100 * float(right.float().mean())})
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package, and meshes to train on."""
    (tmp_path / "octants.py").write_text(OWN)
    (tmp_path / "meshes").mkdir()
    random = np.random.default_rng(0)
    for number in range(12):
        mesh = icosphere(1)
        write_mesh(
            mesh.with_verts(mesh.verts * np.exp(0.1 * random.standard_normal(3))),
            tmp_path / "meshes" / f"{number:02d}.ply",
        )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def geoskip_command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(Path(geoskip.__file__).parents[1]), str(place)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GEOSKIP_CACHE": str(place / "cache")}
    command = [sys.executable, "-m", "geoskip", *words]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


def test_every_command_works_with_it(place: Path) -> None:
    run = "runs/Octants-meshes-affine-gcn-seed0"
    commands = (
        "train --task octants:Octants --data meshes --unit-mm 1 --operator gcn --skip affine --epochs 2",
        f"evaluate {run}",
        f"apply {run} meshes/00.ply -o applied",
        f"export {run} -o model",
        "apply model meshes/00.ply -o again --do predict",
        "report runs -o page",
    )
    for command in commands:
        done = geoskip_command(place, *command.split())
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    config = json.loads((place / run / "config.json").read_text())
    assert config["task"] == "octants:Octants"
    predicted = (place / "applied/00.txt").read_text()
    assert len(predicted.splitlines()) == 42
    assert predicted == (place / "again/00.txt").read_text()
    assert "right pct" in (place / "page/index.html").read_text()


def test_what_it_cannot_do_is_said(place: Path) -> None:
    assert issubclass(find_task("octants:Octants"), Task)
    for name, fault in (
        ("octants:Net", "task: octants:Net is not a subclass of geoskip.training.Task"),
        ("octants:Nothing", "task: cannot import 'octants:Nothing'"),
        ("reconstrution", "task: unknown name 'reconstrution'; did you mean reconstruction"),
    ):
        with pytest.raises(ValueError, match=fault):
            find_task(name)
    with pytest.raises(ValueError, match="data: octants:Octants has no default data set; choose one with --data"):
        resolve("octants:Octants", operator="gcn")
    config = resolve("octants:Octants", operator="gcn", data="meshes", coarsening={"matchings": 1})
    with pytest.raises(ValueError, match="coarsening: octants:Octants has no such setting"):
        find_task("octants:Octants").check_config(config)
