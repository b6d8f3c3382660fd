"""Adam's kernels in Triton's interpreter, against torch's Adam: weights, moments and notes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from geoskip.kernels import use_path
from geoskip.training.steps import update
from geoskip.training.steps.update import Notes, Update

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
    # On CUDA torch's fused kernel takes 1 - βᵗ in single precision, which is off by 1e-4 in the first steps.
    ours, theirs = made(device, decay), made("cpu", decay)
    with use_path(path):
        for number in range(6):
            # From the fourth on one has no gradient: it stays where it is.
            stepped(ours[2], ours[0], number, without=3 if number > 3 else None)
    assert len(ours[2]._tables) == 2, "with the one that has no gradient, and without it"
    monkeypatch.setattr(update, "on_triton", lambda _: False)
    for number in range(6):
        stepped(theirs[2], theirs[0], number, without=3 if number > 3 else None)
    assert not theirs[2]._tables
    for found, expected in zip(held(*ours[:2]), held(*theirs[:2]), strict=True):
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)
    for found, expected in zip(ours[2].notes, theirs[2].notes, strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found.cpu(), expected)
    assert float(ours[2].notes.loss) == 3 * sum(range(6))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize(("path", "device"), WHERE)
def test_the_first_fault_is_noted(path: str, device: str, where: str, value: float) -> None:
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


@pytest.mark.parametrize(("path", "device"), WHERE)
def test_what_was_moved_is_found_again(path: str, device: str) -> None:
    """A parameter or moment at another address: kernels must not write to the old one."""
    parameters, _, finish = made(device, 0.0)
    with use_path(path):
        stepped(finish, parameters, 0)
        old = parameters[2].data
        parameters[2].data = old.clone()
        before = old.clone()
        stepped(finish, parameters, 1)
    assert torch.equal(old, before)
    assert not torch.equal(parameters[2].data, before)


@pytest.mark.parametrize(("path", "device"), WHERE)
def test_what_does_not_fit_is_left_to_torch(path: str, device: str) -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=torch.float64, device=device))
    adam = torch.optim.Adam([parameter], lr=torch.tensor(0.1, device=device), fused=device == "cuda")
    finish = Update(adam, torch.amp.GradScaler(device, enabled=False), Notes.at(torch.device(device)))
    parameter.grad = torch.ones_like(parameter)
    with use_path(path):
        finish(torch.tensor(1.0, device=device), 1)
    assert not finish._tables
    torch.testing.assert_close(parameter.data, torch.full_like(parameter, 0.9))
