"""Steps: static ones are the plain ones, recording leaves no trace, and Adam is torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from geoskip.graphs import gcn_edges
from geoskip.meshes import Mesh
from geoskip.models import MeshAutoencoder
from geoskip.training.config import Config
from geoskip.training.cuda_graphs import WARMUPS, CapturedStep, Replay, preserved, random_states, record_graph
from geoskip.training.devices import Group
from geoskip.training.learner import Learner
from geoskip.training.loop import train
from geoskip.training.session import Sampler, Session, TrainingStatus, captured_step, make_step
from geoskip.training.tasks import make_task
from geoskip.training.tasks.correspondence import Correspondence
from tests.training import sets

CHOSEN: list[dict[str, Any]] = [
    {"task": "reconstruction"},
    {"task": "correspondence"},
    {"task": "correspondence", "operator": "feast"},
    {"task": "correspondence", "operator": "spline"},
    {"task": "correspondence", "operator": "spiral"},
    {"task": "classification"},
    {"task": "classification", "operator": "gin"},
    {"task": "reconstruction", "precision": "fp16"},
]


def learner(config: Config, device: str = "cpu") -> Learner:
    torch.manual_seed(1)
    task = make_task(config, sets.data(config.task)).to(device)
    return Learner(task, task.make_model(), config)


def tensors(held: Learner) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in held.tensors().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def record_nothing(step: Callable[[], Any]) -> Replay:
    """Warm up as ``record_graph`` does and return the step itself, for devices without graphs."""
    for _ in range(WARMUPS):
        step()
    return step


def batches(held: Learner, batch: int, count: int) -> list[Tensor]:
    sampler = Sampler(held.task.num_items, batch, 0)
    return [sampler.batch(step).to(held.device) for step in range(count)]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_a_static_step_is_the_plain_step(chosen: dict[str, Any]) -> None:
    """With an uneven end, dropout, batch normalisation and a scale of gradients: all as if nothing were recorded."""
    config = sets.config(**chosen)
    plain, static = learner(config), learner(config)
    random = []
    for held, step in ((plain, plain.update), (static, captured_step(static, record=record_nothing))):
        torch.manual_seed(2)
        for items in batches(held, config.optim.batch_size, 7):
            step(items)
        random.append(random_states(held.device)["cpu"])
    same(tensors(plain), tensors(static))
    assert torch.equal(*random)
    assert plain.scaler.state_dict() == static.scaler.state_dict()


@pytest.mark.parametrize(
    ("record", "device"), [(record_nothing, "cpu"), pytest.param(record_graph, "cuda", marks=pytest.mark.gpu)]
)
def test_a_static_step_notes_gradients_that_no_scale_makes_finite(
    record: Any, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale is halved from 65,536 to 1 in 16 steps; the next one is the fault, and the weights have not moved."""
    held = learner(sets.config(precision="fp16"), device)
    before, true = tensors(held), held.task.loss

    def loss(model: torch.nn.Module, batch: Any) -> Tensor:
        found = true(model, batch)
        found.register_hook(lambda gradient: gradient * float("nan"))
        return found

    monkeypatch.setattr(held.task, "loss", loss)
    step = captured_step(held, record=record)
    faults = []
    for items in batches(held, 4, 20):
        step(items)
        faults.append(int(held.first_bad_step))
    assert faults == [-1] * 16 + [16] * 4
    assert int(held.num_adam_steps()) == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in tensors(held).items() if name.startswith("model."))


def test_a_recording_that_is_not_undone_would_show() -> None:
    config = sets.config("classification", operator="gin")
    plain, static = learner(config), learner(config)
    items = batches(plain, 4, 1)[0]
    plain.update(items)
    replay = record_nothing(lambda: static.update(items))
    replay()
    before, after = tensors(plain), tensors(static)
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    assert {name.partition(".")[0] for name in changed} >= {"model", "adam", "loss_sum", "step"}
    assert any("running_mean" in name for name in changed)


def test_what_is_preserved_is_put_back_in_place() -> None:
    held = learner(sets.config("classification", operator="gin"))
    before, places = tensors(held), {name: t.data_ptr() for name, t in held.tensors().items()}
    random = random_states(held.device)["cpu"]
    with preserved(held.tensors().values(), held.device):
        held.update(torch.tensor([0, 1, 2]))
    same(before, tensors(held))
    assert {name: t.data_ptr() for name, t in held.tensors().items()} == places
    assert torch.equal(random, torch.get_rng_state())


def test_a_recording_that_fails_changes_nothing() -> None:
    """The weights have moved in the warm-ups by then."""
    held = learner(sets.config(precision="fp16"))
    before, random, scale = tensors(held), random_states(held.device)["cpu"], held.scaler.state_dict()

    def fail(step: Callable[[], Any]) -> Replay:
        record_nothing(step)
        raise RuntimeError("step: cannot be captured")

    with pytest.raises(RuntimeError, match="cannot be captured"):
        captured_step(held, record=fail)(torch.tensor([0, 1, 2]))
    same(before, tensors(held))
    assert torch.equal(random, torch.get_rng_state())
    assert held.scaler.state_dict() == scale


def test_preserving_leaves_the_hierarchy_alone() -> None:
    """A captured step reads what graphs remember: after a write to them they would compute it again elsewhere."""
    trained = learner(sets.config("reconstruction", operator="gcn"))
    assert isinstance(trained.model, MeshAutoencoder)
    graph = trained.model.hierarchy().levels[0]
    trained.update(torch.tensor([0, 1]))
    before = gcn_edges(graph, torch.float32)
    with preserved(trained.tensors().values(), trained.device):
        pass
    assert gcn_edges(graph, torch.float32) is before


def test_updates_are_those_of_torchs_adam() -> None:
    config = sets.config(optim={"weight_decay": 1e-2, "lr": 1e-2})
    held = learner(config)
    model = held.task.make_model()
    adam = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)
    for items in batches(held, 4, 5):
        held.update(items)
        adam.zero_grad()
        held.task.loss(model, held.task.batch(items)).backward()
        adam.step()
    for (name, found), expected in zip(held.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, msg=name)


def test_losses_are_added_up_over_items() -> None:
    held = learner(sets.config())
    first, second = torch.tensor([0, 1, 2, 3]), torch.tensor([4])
    held.update(first)
    alone = float(held.last_loss)
    held.update(second)
    loss, *steps = TrainingStatus(held).wait()
    assert loss == pytest.approx(4 * alone + float(held.last_loss))
    assert steps == [-1, 2], "no fault, and two steps of Adam"


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_the_first_fault_is_remembered(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = learner(sets.config())
    items = torch.tensor([0, 1])
    held.update(items)
    assert int(held.first_bad_step) == -1
    original = held.task.loss

    def broken(model: Any, batch: Any) -> Tensor:
        loss = original(model, batch)
        # The root of 0 is finite, its slope is not.
        return loss * float("inf") if where == "loss" else loss + (held.parameters[0] * 0).sum().sqrt()

    monkeypatch.setattr(held.task, "loss", broken)
    held.update(items)
    assert bool(held.last_loss.isfinite()) == (where == "gradient")
    monkeypatch.undo()
    held.update(items)
    assert int(held.first_bad_step) == 1


def test_the_rate_follows_the_epochs() -> None:
    config = sets.config(optim={"lr": 1.0, "lr_decay": 0.5, "decay_every": 2})
    assert [config.optim.rate(epoch) for epoch in range(5)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    session = Session(config, make_task(config, sets.meshes()))
    session.step = 2 * session.sampler.num_batches
    session.advance()
    assert session.learner.optimizer.param_groups[0]["lr"] == 0.5


def test_elsewhere_than_on_one_cuda_device_steps_are_plain() -> None:
    assert not isinstance(make_step(learner(sets.config())), CapturedStep)


def test_a_process_without_items_takes_part_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = sets.config()
    task = make_task(config, sets.meshes())
    held = Learner(task, task.make_model(), config, Group(rank=2, size=3))
    monkeypatch.setattr(Group, "sum_all", lambda self, tensors: None)
    held.update(torch.tensor([5, 6]))
    assert all(not bool(parameter.grad.any()) for parameter in held.parameters if parameter.grad is not None)
    assert float(held.loss_sum) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_a_captured_step_is_the_plain_step(chosen: dict[str, Any]) -> None:
    """Without dropout, whose draws differ between the two ways to run."""
    small = {} if chosen["task"] == "reconstruction" else {"dropout": 0.0}
    config = sets.config(**chosen, model=small, optim={"batch_size": 3})
    plain, captured = learner(config, "cuda"), learner(config, "cuda")
    graphs = captured_step(captured)
    for held, step in ((plain, plain.update), (captured, graphs)):
        for items in batches(held, config.optim.batch_size, 7):
            step(items)
    assert sorted(len(recording.buffers[0]) for recording in graphs.recordings.values()) == [1, 3]
    torch.testing.assert_close(tensors(captured), tensors(plain), rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
@pytest.mark.parametrize("stop", [2, 4])
def test_captured_runs_go_on_bitwise(
    chosen: dict[str, Any], stop: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout included: the generator's place is part of the state, and recording does not move it."""
    # In a straight line: machines with a GPU need not have the solver for geodesics.
    monkeypatch.setattr(Correspondence, "distances", property(lambda task: _straight(task.data.target)))
    # Four bodies: batches of 3 and of 1, so that both stops are on the way.
    config = sets.config(**chosen, device="cuda", optim={"batch_size": 3})
    made = [make_task(config, sets.data(config.task)) for _ in range(3)]
    whole = train(config, tmp_path / "whole", task=made[0])
    train(config, tmp_path / "parts", task=made[1], stop_after=stop)
    parts = train(config, tmp_path / "parts", task=made[2])
    same(whole.weights[0], parts.weights[0])
    assert whole.record.curves["loss"] == parts.record.curves["loss"]


def _straight(target: Mesh) -> Tensor:
    verts = torch.tensor(target.verts).float()
    return torch.cdist(verts, verts)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning")
def test_a_captured_step_never_waits() -> None:
    """No step after the first of its size may synchronise with the host."""
    config = sets.config("classification", operator="gcn")
    held = learner(config, "cuda")
    step = captured_step(held)
    ready = batches(held, config.optim.batch_size, 6)
    for items in ready[:3]:
        step(items)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for items in ready[3:]:
            step(items)
        TrainingStatus(held)
    finally:
        torch.cuda.set_sync_debug_mode("default")
