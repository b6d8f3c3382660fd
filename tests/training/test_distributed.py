"""Several processes: the losses of one, uneven ends, and what happens when one of them dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.meshes.formats import write_mesh
from geoskip.training.devices import Group, process_group
from geoskip.training.loop import train
from geoskip.training.progress import read_metrics
from geoskip.training.run import METRICS, Run
from geoskip.training.tasks import make_task
from tests.training import sets
from tests.training.children import LOST, free_port, start


def together(config: Any, folder: Path, size: int) -> Run:
    port = free_port()
    # The events are held, since a process that is still starting looks for its own.
    started = [start(config, folder, rank, size, port) for rank in range(size)]
    for process, _ in started:
        process.join(120)
    assert [process.exitcode for process, _ in started] == [0] * size
    return Run.open(folder)


@pytest.mark.parametrize("task", ["reconstruction", "correspondence", "classification"])
def test_two_processes_have_the_losses_of_one(task: str, tmp_path: Path) -> None:
    """Batches of 3 of 10 items: shares of 2 and 1, and one item at the end, which leaves a process without any."""
    quiet = {} if task == "reconstruction" else {"dropout": 0.0}
    config = sets.config(task, model=quiet, optim={"batch_size": 3, "lr": 1e-2})
    alone = train(config, tmp_path / "one", task=make_task(config, sets.data(task)))
    both = together(config, tmp_path / "two", 2)
    losses = [[loss for _, loss in run.record.curves["loss"]] for run in (alone, both)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert "2 ×" in both.record.device


def test_a_process_that_dies_ends_the_other(tmp_path: Path) -> None:
    config, port = sets.config(optim={"epochs": 100_000}), free_port()
    started = [start(config, tmp_path, rank, 2, port) for rank in range(2)]
    first, second = (process for process, _ in started)
    while not read_metrics(tmp_path / METRICS):
        first.join(0.05)
        assert first.is_alive()
    second.kill()
    first.join(60)
    assert first.exitcode == LOST


def test_a_batch_is_shared_out_evenly() -> None:
    items = torch.arange(7)
    shares = [Group(rank, 3).share(items) for rank in range(3)]
    assert [len(share) for share in shares] == [3, 2, 2]
    assert torch.equal(torch.cat(shares), items)


def test_a_process_alone_joins_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group() as group:
        assert (group.size, group.is_main) == (1, True)
        assert group.any(True, torch.device("cpu"))
        assert torch.equal(group.gather(torch.ones(2), torch.device("cpu"))[0], torch.ones(2))


def test_torchrun_and_the_command(tmp_path: Path) -> None:
    """As a user starts it, and with the losses of the same command alone."""
    spheres = sets.meshes(count=12)
    (tmp_path / "meshes").mkdir()
    for item in range(len(spheres)):
        write_mesh(spheres.mesh(item), tmp_path / "meshes" / f"{item:02d}.ply")
    small = ["--kernel-size", "2", "--set", "model.channels=[4,6]", "--set", "data_options.unit_mm=100"]
    command = ["-m", "geoskip", "train", "reconstruction", "--data", str(tmp_path / "meshes"), *small]
    command += ["--device", "cpu", "--epochs", "2", "--set", "optim.batch_size=4", "--set", "seed=3"]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    environment = {**os.environ, "GEOSKIP_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    losses = []
    for name, how in (("two", launcher), ("one", [])):
        whole = [sys.executable, *how, *command, "-o", str(tmp_path / name)]
        told = subprocess.run(whole, env=environment, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
        losses.append([loss for _, loss in Run.open(tmp_path / name).record.curves["loss"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert "2 ×" in Run.open(tmp_path / "two").record.device
