"""Rows of trainings: losses compared, the fastest way of the peer, what is refused, records and tables."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.__main__ import app
from benchmarks.measurements import Row
from benchmarks.training.loaders import ON_DEVICE, Loading, batches, mesh_data
from benchmarks.training.measure_steps import Settings, compare, measure_training
from benchmarks.training.networks import PRODUCTS, PeerCorrespondence
from benchmarks.training.peer_layers import EDGES
from benchmarks.training.sections import training_section
from benchmarks.training.sets import correspondence_set, graph_set, mesh_set, remeshed_set
from benchmarks.training.trainers import Way, order, ways
from benchmarks.training.trainings import (
    TRAININGS,
    Run,
    Training,
    chosen_operators,
    chosen_skips,
    chosen_trainings,
)
from torch import Tensor
from typer.testing import CliRunner

CPU = torch.device("cpu")
QUICK = Settings(CPU, seconds=0.0, steps=3)
MESHES = Training(
    "autoencoder", "reconstruction", "tiny", 4, 3, lambda: mesh_set(80, 9),
    model={"channels": [4, 6], "latent": 3},
)  # fmt: skip
BODIES = Training(
    "correspondence", "correspondence", "tiny", 1, 3, lambda: correspondence_set(40, 3), tf32=True,
    model={"lift": 4, "channels": [4, 6], "head": 8},
)  # fmt: skip
REMESHED = replace(BODIES, name="remeshed", make_data=lambda: remeshed_set(40, 3), tf32=False)
POINTS = Training(
    "superpixels", "classification", "tiny", 4, 3, lambda: graph_set(9, 40, 90, classes=4),
    model={"channels": [4, 6, 6], "head": 8},
)  # fmt: skip
TINY = {training.name: training for training in (MESHES, BODIES, REMESHED, POINTS)}


@pytest.mark.parametrize(("name", "operator"), [*((name, "monet") for name in sorted(TINY)), ("superpixels", "gcn")])
def test_ours_beside_the_peer(name: str, operator: str) -> None:
    rows = list(measure_training(TINY[name], [operator], [False, True], QUICK))
    assert [(row.path, row.skip) for row in rows] == [
        ("geoskip", False),
        ("PyG", False),
        ("geoskip", True),
        ("PyG", True),
    ]
    for mine, theirs in (rows[:2], rows[2:]):
        assert mine.problem is None
        assert theirs.problem is None
        assert mine.error is not None
        assert mine.error < 1e-4
        assert mine.repeats
        assert mine.milliseconds is not None
        assert theirs.milliseconds is not None
        assert mine.time_ratio == pytest.approx(theirs.milliseconds / mine.milliseconds)
        assert theirs.tried is not None
        assert theirs.call in theirs.tried


def test_other_losses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PeerCorrespondence.loss
    monkeypatch.setattr(PeerCorrespondence, "loss", lambda self, data: 1.01 * right(self, data))
    mine, theirs = measure_training(BODIES, ["monet"], [False], QUICK)
    assert mine.milliseconds is None
    assert mine.time_ratio is None
    assert mine.problem is not None
    assert mine.problem.startswith("other losses: loss of step")
    assert theirs.milliseconds is not None


def test_failing_peer_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> Tensor:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(PeerCorrespondence, "loss", fail)
    mine, theirs = measure_training(BODIES, ["gcn"], [False], QUICK)
    assert mine.milliseconds is not None
    assert mine.error is None
    assert theirs.problem == "failed: RuntimeError: no such kernel"


EMPTY = Row("w", "gcn", 1, False, "geoskip", "")


@pytest.mark.parametrize("last", [2.1, float("nan")])
def test_every_step_is_compared(last: float) -> None:
    row = compare(EMPTY, [3.0, 2.0, last], [3.0, 2.0, 2.0])
    assert row.worst == "loss of step 3"
    assert row.problem is not None
    assert compare(EMPTY, [3.0, 2.0], [3.0, 2.0001]).problem is None


def test_what_does_not_repeat_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = count()
    monkeypatch.setattr(
        "benchmarks.training.measure_steps.losses", lambda trainer, steps: [1 + 1e-6 * next(turn)] * steps
    )
    mine = next(iter(measure_training(BODIES, ["gcn"], [False], QUICK)))
    assert mine.repeats is False
    assert mine.problem is None


def test_ours_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr("benchmarks.training.measure_steps.ours", fail)
    mine, theirs = measure_training(BODIES, ["gcn"], [False], QUICK)
    assert mine.problem == "failed: RuntimeError: no room"
    assert theirs.milliseconds is not None


def test_order_has_whole_batches_of_every_item_at_most_once() -> None:
    found = order(10, 3)
    assert [len(batch) for batch in found] == [3, 3, 3]
    assert len({item for batch in found for item in batch}) == 9
    assert found == order(10, 3) != order(10, 3, seed=1)


def test_peers_may_choose() -> None:
    assert dict(ways("reconstruction", CPU)) == {"edges": list(EDGES), "product": list(PRODUCTS)}
    on_cuda = dict(ways("classification", torch.device("cuda")))
    assert on_cuda == {"edges": list(EDGES), "loading": [ON_DEVICE, Loading(4)]}
    assert "num_workers=4, pin_memory=True" in Way(loading=Loading(4)).text("classification")


def test_loader_with_processes_gives_the_same() -> None:
    x = torch.arange(24.0).view(4, 2, 3)
    dataset, turns = [mesh_data(part) for part in x], [[0, 2], [3, 1]]
    loaded = batches(dataset, turns, CPU, Loading(1))
    for items in turns * 2:
        assert torch.equal(next(loaded).x, x[items].flatten(0, 1))


def test_compared_without_dropout_and_in_float32() -> None:
    run = Run(BODIES, "monet", skip=True)
    assert run.config(compared=True).model["dropout"] == 0
    assert "dropout" not in run.config(compared=False).model
    assert (run.config(compared=True).tf32, run.config(compared=False).tf32) == (False, True)
    assert (run.config(compared=True).skip, run.slots, Run(BODIES, "gcn", skip=False).slots) == ("affine", 3, 1)


def test_the_papers_sizes() -> None:
    sizes = {name: (training.batch, training.slots) for name, training in TRAININGS.items()}
    assert sizes == {"autoencoder": (32, 9), "correspondence": (1, 10), "remeshed": (1, 10), "superpixels": (64, 25)}
    assert [training.batch for training in chosen_trainings(None, quick=True)] == [4, 1, 1, 4]
    assert chosen_trainings(["superpixels"], quick=True)[0].about.startswith("batch 4, 75 vertices")
    assert [training.name for training in chosen_trainings(["superpixels"])] == ["superpixels"]
    graphs = graph_set(4, 75, 696)
    assert graphs.levels[0].edges.shape[1] == 4 * 1392
    assert len(graphs.levels) == 3


def test_remeshed_sets_share_no_graph() -> None:
    shared, remeshed = correspondence_set(60, 3), remeshed_set(60, 3)
    assert len({mesh.topology_hash() for mesh in remeshed.meshes}) == 3
    for before, after, labels in zip(shared.meshes, remeshed.meshes, remeshed.labels, strict=True):
        assert (after.verts == before.verts[labels.numpy()]).all()
        assert (after.verts[after.faces] == before.verts[before.faces]).all()


def test_choices() -> None:
    assert chosen_operators(None) == ["monet"]
    assert chosen_skips(None) == [False]
    assert chosen_skips(["affine", "none"]) == [False, True]
    for choose in (chosen_trainings, chosen_operators, chosen_skips):
        with pytest.raises(ValueError, match="unknown name 'hands'"):
            choose(["hands"])


def test_section_of_the_page() -> None:
    common: dict[str, Any] = {"workload": "autoencoder", "operator": "monet", "slots": 9, "skip": False}
    mine = Row(
        **common, path="captured", call="one replay", milliseconds=2.0, time_ratio=15.0, error=1e-7, repeats=True
    )
    theirs = Row(**common, path="PyG", call="conv(x, edge_index)", milliseconds=30.0)
    refused = replace(mine, problem="other losses: loss of step 3 is off by 1.0e-01", error=0.1)
    record = {
        "steps": 20,
        "tasks": {"autoencoder": "batch 32"},
        "rows": [asdict(row) for row in (mine, theirs, refused)],
    }
    page = "\n".join(training_section(record))
    assert "### autoencoder: batch 32" in page
    assert "| MoNet, M=9 | captured | 2.00 | – | 15.0 | – | 1e-07 | yes |" in page
    assert "| MoNet, M=9 | captured | other losses | – | – | – | 1e-01 | yes |" in page
    assert "- MoNet, M=9, PyG: conv(x, edge_index)" in page
    assert "over 20 steps" in page


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("kind", "ways", "column", "row"),
    [
        ("training", ["--skip", "affine"], "loss difference", "| Aff-MoNet, M=3 | geoskip |"),
        ("loop", ["--path", "geoskip", "--path", "PyG"], "first step, s", "| Aff-MoNet, M=3 | PyG |"),
    ],
)
def test_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, ways: list[str], column: str, row: str
) -> None:
    for place in ("trainings.TRAININGS", "plain_loop.LOOPS"):
        monkeypatch.setattr(f"benchmarks.training.{place}", {"correspondence": BODIES})
    path = tmp_path / "record.json"
    told = command(kind, "--device", "cpu", *ways, "--steps", "2", "--seconds", "0", "-o", str(path))
    assert told.exit_code == 0, told.output
    assert "correspondence Aff-MoNet, M=3, geoskip:" in told.stderr
    assert column in told.stdout
    record = json.loads(path.read_text(encoding="utf-8"))
    assert (record["kind"], record["steps"], len(record["rows"])) == (kind, 2, 2)
    page = command("table", str(path))
    assert page.exit_code == 0, page.output
    assert row in page.stdout


def test_command_refuses_other_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.training.trainings.TRAININGS", {"correspondence": BODIES})
    monkeypatch.setattr("benchmarks.training.measure_steps.LOSS_TOLERANCE", -1.0)
    told = command("training", "--device", "cpu", "--steps", "2", "--seconds", "0")
    assert told.exit_code == 1
    assert "other losses" in told.stdout


@pytest.mark.parametrize(
    ("kind", "option"), [*product(["training", "loop"], ["--task", "--operator", "--skip"]), ("loop", "--path")]
)
def test_bad_names_are_one_line(kind: str, option: str) -> None:
    told = command(kind, option, "hands")
    assert told.exit_code == 2
    assert "unknown name 'hands'" in told.stderr.splitlines()[-1]
