"""Adam's kernels in Triton's interpreter, against torch's Adam: weights, moments and notes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoskip.kernels import use_path
from geoskip.training import learner
from geoskip.training.learner import Notes, Update

# More tensors than one launch brings the addresses of, more numbers than a program has, and one alone.
SHAPES = [(1,), (), (3, 700), (2049,), *[(5,)] * 31]
WHERE = [
    pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
    pytest.param("fast", "cuda", marks=pytest.mark.gpu),
]


def made(device: str, decay: float) -> tuple[list[nn.Parameter], torch.optim.Adam, Update]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape).to(device)) for shape in SHAPES]
    rate, fused = torch.tensor(1e-2, device=device), device == "cuda"
    adam = torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=fused, capturable=fused)
    for parameter in parameters:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        adam.state[parameter] = {"step": torch.zeros((), device=device), **moments}
    scaler = torch.amp.GradScaler(device, enabled=False)
    return parameters, adam, Update(adam, scaler, Notes.at(torch.device(device)))


def stepped(finish: Update, parameters: list[nn.Parameter], number: int, without: int | None = None) -> None:
    generator = torch.Generator().manual_seed(number)
    for place, parameter in enumerate(parameters):
        # Gradients of very different sizes, at addresses that 16 does not divide.
        drawn = torch.randn(parameter.numel() + 1, generator=generator) * 10.0 ** (place % 7 - 5)
        parameter.grad = None if place == without else drawn.to(parameter.device)[1:].view(parameter.shape)
    finish(torch.tensor(float(number), device=parameters[0].device), 3)


def held(parameters: list[nn.Parameter], adam: torch.optim.Adam) -> list[Tensor]:
    return [tensor for p in parameters for tensor in (p.detach(), *adam.state[p].values())]


@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_all_at_once_is_torchs_adam(path: str, device: str, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Theirs on the CPU: in the first steps torch's fused kernel of CUDA is further from that than rounding explains.
    ours, theirs = made(device, decay), made("cpu", decay)
    with use_path(path):
        for number in range(6):
            # From the fourth on one has no gradient: it stays where it is.
            stepped(ours[2], ours[0], number, without=3 if number > 3 else None)
    assert len(ours[2]._tables) == 2, "with the one that has no gradient, and without it"
    monkeypatch.setattr(learner, "on_triton", lambda _: False)
    for number in range(6):
        stepped(theirs[2], theirs[0], number, without=3 if number > 3 else None)
    assert not theirs[2]._tables
    for found, expected in zip(held(*ours[:2]), held(*theirs[:2]), strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)
    for found, expected in zip(ours[2].notes, theirs[2].notes, strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found.cpu(), expected)
    assert float(ours[2].notes.loss) == 3 * sum(range(6))


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e22])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_the_first_fault_is_noted(path: str, device: str, where: str, value: float) -> None:
    """The square of 1e22 is no number of float32: as a gradient it is a fault, as a loss it is none."""
    if (where, value) == ("loss", 1e22):
        value = float("nan")
    parameters, _, finish = made(device, 0.0)
    with use_path(path):
        for number in range(4):
            stepped(finish, parameters, number)
            assert int(finish.notes.fault) == (-1 if number == 0 else 1)
            if number in (0, 2):
                # The second step is the first fault; the fifth is one too and is not noted.
                for parameter in parameters:
                    assert parameter.grad is not None
                    if where == "gradient" and parameter.numel() == 2049:
                        parameter.grad[-1] = value
                finish(torch.tensor(value if where == "loss" else 1.0, device=device), 3)
                assert int(finish.notes.fault) == 1
    assert int(finish.notes.step) == 6


@pytest.mark.parametrize("what", ["parameter", "exp_avg", "exp_avg_sq", "step"])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_what_was_moved_is_found_again(path: str, device: str, what: str) -> None:
    """At another address: kernels must not write to the old one."""
    parameters, adam, finish = made(device, 0.0)
    with use_path(path):
        stepped(finish, parameters, 0)
        moved = parameters[2]
        old = moved.data if what == "parameter" else adam.state[moved][what]
        before = old.clone()
        if what == "parameter":
            moved.data = before.clone()
        else:
            adam.state[moved][what] = before.clone()
        stepped(finish, parameters, 1)
    assert torch.equal(old, before)
    assert not torch.equal(moved.data if what == "parameter" else adam.state[moved][what], before)


@pytest.mark.parametrize(("path", "device"), WHERE)
def test_gradients_may_lie_in_another_order(path: str, device: str) -> None:
    found = []
    for turned in (False, True):
        parameters, adam, finish = made(device, 0.0)
        with use_path(path):
            for parameter in parameters:
                parameter.grad = torch.arange(parameter.numel(), device=device).float().view(parameter.shape)
            if turned:
                drawn = torch.arange(parameters[2].numel(), device=device).float().view(parameters[2].shape)
                parameters[2].grad = drawn.t().contiguous().t()
            finish(torch.tensor(1.0, device=device), 1)
        assert len(finish._tables) == 1
        found.append(held(parameters, adam))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class Left:
    """An optimiser and a parameter of it that the kernels must leave to torch."""

    def __init__(self, device: str, parameter: Tensor, scaled: bool = False, **options: Any) -> None:
        self.parameter = nn.Parameter(parameter.to(device))
        rate = options.pop("lr", torch.tensor(0.1, device=device))
        self.adam = torch.optim.Adam([self.parameter], lr=rate, foreach=False, **options)
        self.scaler = torch.amp.GradScaler(device, enabled=scaled)
        self.finish = Update(self.adam, self.scaler, Notes.at(torch.device(device)))
        moments = {name: torch.zeros_like(self.parameter) for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}
        self.adam.state[self.parameter] = {"step": torch.zeros(()), **moments}


LEFT: list[tuple[Tensor, dict[str, Any]]] = [
    (torch.ones(3, dtype=torch.float64), {}),
    (torch.ones(2, 3).t(), {}),
    (torch.ones(0), {}),
    (torch.ones(3), {"lr": 0.1}),
    (torch.ones(3), {"amsgrad": True}),
    (torch.ones(3), {"maximize": True}),
    (torch.ones(3), {"decoupled_weight_decay": True}),
    (torch.ones(3), {"betas": (0.0, 0.999)}),
    (torch.ones(3), {"scaled": True}),
]


@pytest.mark.compiled
@pytest.mark.parametrize("case", range(len(LEFT)))
def test_what_does_not_fit_is_left_to_torch(case: int) -> None:
    parameter, options = LEFT[case]
    ours = Left("cpu", parameter, **options)
    ours.parameter.grad = torch.ones_like(ours.parameter)
    if options.get("scaled"):
        ours.scaler.scale(torch.ones(()))
    with use_path("interpreter"):
        ours.finish(torch.tensor(1.0), 1)
    assert not ours.finish._tables
    moved = 1.1 if options.get("maximize") else 0.9
    # Divided by the scale, the gradient is no longer large beside Adam's ε.
    torch.testing.assert_close(ours.parameter.data, torch.full_like(ours.parameter, moved), rtol=0, atol=1e-4)


@pytest.mark.compiled
def test_several_groups_are_left_to_torch() -> None:
    ours, other = Left("cpu", torch.ones(3)), nn.Parameter(torch.ones(2))
    ours.adam.add_param_group({"params": [other]})
    for parameter in (ours.parameter, other):
        parameter.grad = torch.ones_like(parameter)
    with use_path("interpreter"):
        ours.finish(torch.tensor(1.0), 1)
    assert not ours.finish._tables
    for parameter in (ours.parameter, other):
        torch.testing.assert_close(parameter.data, torch.full_like(parameter, 0.9))
