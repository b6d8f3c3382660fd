"""Adam's kernels in Triton's interpreter, against torch's Adam: weights, moments and running sums."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoskip.kernels import use_path
from geoskip.training import learner
from geoskip.training.config import resolve
from geoskip.training.learner import FusedAdam, Learner

# More tensors than one launch brings the addresses of, more numbers than a program has, and one alone.
SHAPES = [(1,), (), (3, 700), (2049,), *[(5,)] * 31]
WHERE = [
    pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
    pytest.param("fast", "cuda", marks=pytest.mark.gpu),
]


def learner_of(parameters: list[Tensor], device: str, precision: str = "float32", decay: float = 0.0) -> Learner:
    """A learner whose model is these parameters; its rate is a tensor, as it is on CUDA."""
    config = resolve("reconstruction", precision=precision, optim={"lr": 0.1, "weight_decay": decay})
    model = nn.ParameterList([nn.Parameter(parameter.to(device)) for parameter in parameters])
    task: Any = SimpleNamespace(device=torch.device(device))
    found = Learner(task, model, config)
    found.optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device=device)
    return found


def made(device: str, decay: float = 0.0) -> Learner:
    torch.manual_seed(0)
    return learner_of([torch.randn(shape) for shape in SHAPES], device, decay=decay)


def stepped(held: Learner, number: int, without: int | None = None) -> None:
    generator = torch.Generator().manual_seed(number)
    for place, parameter in enumerate(held.parameters):
        # Gradients of very different sizes, at addresses that 16 does not divide.
        drawn = torch.randn(parameter.numel() + 1, generator=generator) * 10.0 ** (place % 7 - 5)
        parameter.grad = None if place == without else drawn.to(parameter.device)[1:].view(parameter.shape)
    held.apply_gradients(torch.tensor(float(number), device=held.device), 3)


def tensors(held: Learner) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in held.tensors().items()}


@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_all_at_once_is_torchs_adam(path: str, device: str, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Theirs on the CPU: in the first steps torch's fused kernel of CUDA is further from that than rounding explains.
    ours, theirs = made(device, decay), made("cpu", decay)
    with use_path(path):
        for number in range(6):
            # From the fourth on one has no gradient: it stays where it is.
            stepped(ours, number, without=3 if number > 3 else None)
    assert len(ours._adam_tables) == 2, "with the one that has no gradient, and without it"
    monkeypatch.setattr(learner, "on_triton", lambda _: False)
    for number in range(6):
        stepped(theirs, number, without=3 if number > 3 else None)
    assert not theirs._adam_tables
    found, expected = tensors(ours), tensors(theirs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for name in ("loss_sum", "last_loss", "step", "first_bad_step"):
        assert torch.equal(found[name], expected[name])
    assert float(ours.loss_sum) == 3 * sum(range(6))


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e22])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_the_first_fault_is_recorded(path: str, device: str, where: str, value: float) -> None:
    """The square of 1e22 is no number of float32: as a gradient it is a fault, as a loss it is none."""
    if (where, value) == ("loss", 1e22):
        value = float("nan")
    held = made(device)
    with use_path(path):
        for number in range(4):
            stepped(held, number)
            assert int(held.first_bad_step) == (-1 if number == 0 else 1)
            if number in (0, 2):
                # The second step is the first fault; the fifth is one too and is not recorded.
                for parameter in held.parameters:
                    assert parameter.grad is not None
                    if where == "gradient" and parameter.numel() == 2049:
                        parameter.grad[-1] = value
                held.apply_gradients(torch.tensor(value if where == "loss" else 1.0, device=device), 3)
                assert int(held.first_bad_step) == 1
    assert int(held.step) == 6


@pytest.mark.parametrize("what", ["parameter", "exp_avg", "exp_avg_sq", "step"])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_what_was_moved_is_found_again(path: str, device: str, what: str) -> None:
    """At another address: kernels must not write to the old one."""
    held = made(device)
    states = held.optimizer.state
    with use_path(path):
        stepped(held, 0)
        moved = held.parameters[2]
        old = moved.data if what == "parameter" else states[moved][what]
        before = old.clone()
        if what == "parameter":
            moved.data = before.clone()
        else:
            states[moved][what] = before.clone()
        stepped(held, 1)
    assert torch.equal(old, before)
    assert not torch.equal(moved.data if what == "parameter" else states[moved][what], before)


@pytest.mark.parametrize(("path", "device"), WHERE)
def test_gradients_may_lie_in_another_order(path: str, device: str) -> None:
    found = []
    for turned in (False, True):
        held = made(device)
        with use_path(path):
            for parameter in held.parameters:
                parameter.grad = torch.arange(parameter.numel(), device=device).float().view(parameter.shape)
            if turned:
                third = held.parameters[2]
                drawn = torch.arange(third.numel(), device=device).float().view(third.shape)
                third.grad = drawn.t().contiguous().t()
            held.apply_gradients(torch.tensor(1.0, device=device), 1)
        assert len(held._adam_tables) == 1
        found.append(tensors(held))
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())


@pytest.mark.compiled
@pytest.mark.parametrize("case", ["float64", "transposed", "empty", "rate", "fp16"])
def test_what_does_not_fit_is_left_to_torch(case: str) -> None:
    parameters = {
        "float64": torch.ones(3, dtype=torch.float64),
        "transposed": torch.ones(2, 3).t(),
        "empty": torch.ones(0),
    }
    held = learner_of([parameters.get(case, torch.ones(3))], "cpu", "fp16" if case == "fp16" else "float32")
    if case == "rate":
        held.optimizer.param_groups[0]["lr"] = 0.1
    (parameter,) = held.parameters
    parameter.grad = held.scaler.scale(torch.ones(())) * torch.ones_like(parameter)
    with use_path("interpreter"):
        held.apply_gradients(torch.tensor(1.0), 1)
    assert not held._adam_tables
    torch.testing.assert_close(parameter.data, torch.full_like(parameter, 0.9), rtol=0, atol=1e-4)


@pytest.mark.parametrize("scale", [None, 4.0])
@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_without_torchs_optimizer_it_is_torchs_fused_adam(device: str, decay: float, scale: float | None) -> None:
    """To the bit, in two precisions, with a gradient that is missing, and with a loss scale that is too large once."""
    torch.manual_seed(0)
    drawn = [torch.randn(7, 3), torch.randn(4, dtype=torch.float64), torch.randn(1000)]
    sides = [[nn.Parameter(tensor.clone().to(device)) for tensor in drawn] for _ in range(2)]
    rate = torch.tensor(0.1, device=device)
    ours: Any = FusedAdam(sides[0], rate, decay)
    theirs = torch.optim.Adam(sides[1], rate, weight_decay=decay, fused=True, capturable=device == "cuda")
    for parameters, optimizer in zip(sides, (ours, theirs), strict=True):
        scaler = torch.amp.GradScaler(device, init_scale=scale or 1.0, enabled=scale is not None)
        generator = torch.Generator().manual_seed(1)
        for number in range(4):
            optimizer.zero_grad()
            for place, parameter in enumerate(parameters):
                if (number, place) != (2, 0):
                    gradient = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype).to(device)
                    parameter.grad = scaler.scale(gradient)
            if scale is not None and number == 1:
                parameters[2].grad.fill_(float("inf"))  # type: ignore[union-attr]
            scaler.step(optimizer)
            scaler.update()
    for mine, other in zip(*sides, strict=True):
        assert torch.equal(mine, other)
        assert ours.state[mine].keys() == theirs.state[other].keys()
        assert all(torch.equal(ours.state[mine][name], theirs.state[other][name]) for name in ours.state[mine])
    assert float(ours.state[sides[0][1]]["step"]) == (3 if scale else 4)


STEP = """
import sys
from geoskip.training.compiling import traced_launches
from geoskip.training.session import Session
from geoskip.training.tasks import make_task
from geoskip.kernels import use_path
from tests.training import sets

config = sets.config(sys.argv[1], precision=sys.argv[2])
session = Session(config, make_task(config, sets.data(config.task)))
session.advance()
with use_path("interpreter"):
    traced_launches(session.learner, 2)
print(*sys.modules)
"""


@pytest.mark.compiled
@pytest.mark.parametrize(("task", "precision"), [("correspondence", "float32"), ("reconstruction", "fp16")])
def test_training_does_not_import_torchs_compiler(task: str, precision: str) -> None:
    """It takes longer than everything else up to the first step. Only mesh hierarchies need scipy."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", STEP, task, precision]
    loaded = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300).stdout
    assert {"torch", "triton"} <= set(loaded.split())
    assert {"sympy", "torch._dynamo", "torch._inductor"}.isdisjoint(loaded.split())
    assert ("scipy" in loaded.split()) == (task == "reconstruction")
