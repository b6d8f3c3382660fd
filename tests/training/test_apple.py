"""Training on an Apple GPU, as far as it can be tested without one: see :mod:`tests.apple`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.kernels import use_path
from geoskip.records import read_record
from geoskip.training.devices import choose_device, process_group
from geoskip.training.evaluation import evaluate_run
from geoskip.training.loop import train
from geoskip.training.session import Session
from geoskip.training.tasks import make_task
from tests.apple import AppleTensor, apple_gpu
from tests.training import sets

CHOSEN: list[dict[str, Any]] = [
    {"task": "reconstruction", "operator": "gcn", "skip": "affine"},
    {"task": "reconstruction", "operator": "spiral", "skip": "residual"},
    {"task": "reconstruction", "operator": "cheb", "skip": "polynomial"},
    {"task": "correspondence", "operator": "monet", "skip": "affine"},
    {"task": "correspondence", "operator": "feast", "skip": "residual"},
    {"task": "correspondence", "operator": "spline", "skip": "none"},
    {"task": "classification", "operator": "gin", "skip": "none"},
    {"task": "classification", "operator": "gcn", "coarsening": {"weight": "near"}},
    {"task": "classification", "operator": "monet", "precision": "bf16"},
]


@pytest.fixture
def _has_apple_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: torch.get_rng_state())
    monkeypatch.setattr(torch.mps, "set_rng_state", lambda state: torch.set_rng_state(state))
    with apple_gpu():
        yield


def test_the_stand_in_refuses_what_an_apple_gpu_refuses() -> None:
    with apple_gpu() as device:
        x = torch.ones(3, device=device, requires_grad=True)
        assert x.device == (2 * x).device == torch.device("mps")
        with pytest.raises(TypeError, match="float64"):
            x.double()
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(2, dtype=torch.float64, device=device)
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        with pytest.raises(TypeError, match="numpy"):
            x.detach().numpy()
        layer = torch.nn.Linear(3, 1).to(device)
        layer(x).sum().backward()
        assert isinstance(x.grad, AppleTensor)
        assert isinstance(layer.weight, AppleTensor)
        assert type(x.detach().cpu()) is torch.Tensor


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_steps_and_evaluation_are_those_of_the_reference(chosen: dict[str, Any]) -> None:
    """Nothing leaves the device or becomes float64 on it, and the numbers are those of the formulas on the CPU."""
    config = sets.config(**chosen)

    def trained(device: str) -> tuple[list[float], dict[str, float]]:
        task = make_task(config, sets.data(config.task)).to(device)
        session, losses = Session(config, task), []
        for _ in range(session.sampler.num_batches + 1):
            session.advance()
            losses.append(float(session.learner.last_loss))
        assert {tensor.device.type for tensor in session.learner.tensors().values()} == {device}
        return losses, dict(task.evaluate(session.learner.model).metrics)

    with use_path("reference"):
        losses, metrics = trained("cpu")
    with apple_gpu():
        apple_losses, apple_metrics = trained("mps")
    assert apple_losses == pytest.approx(losses, rel=1e-4)
    assert apple_metrics == pytest.approx(metrics, rel=1e-2)


@pytest.mark.usefixtures("unchecked", "_has_apple_gpu")
def test_a_run_is_saved_resumed_and_recorded(tmp_path: Path) -> None:
    """With dropout, so that the generator's state counts."""
    config = sets.config(task="classification", device="mps", checkpoint_every=2)
    task = make_task(config, sets.data("classification"))
    train(config, tmp_path / "run", task=task, stop_after=3)
    run = train(config, tmp_path / "run", task=task)
    whole = train(config, tmp_path / "whole", task=task)
    records = [read_record(folder / "record.json") for folder in (run.folder, whole.folder)]
    assert "Apple GPU" in records[0].device
    assert records[0].metrics == records[1].metrics
    evaluated = evaluate_run(run, data=sets.data("classification"), device="mps").evaluation
    assert dict(evaluated.metrics) == pytest.approx(records[0].metrics)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no Apple GPU"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps") == "mps"
    assert choose_device("auto") in ("cpu", "cuda")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="several processes"), process_group("mps"):
        pass
