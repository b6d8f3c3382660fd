"""``geoskip.capture``: a user's own loop computes the same with and without it."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import geoskip
from geoskip.graphs import attach, cartesian
from geoskip.meshes import icosphere
from geoskip.meshes.retriangulation import flip_edges
from geoskip.pyg.edge_cache import remember
from geoskip.training import cuda_graphs
from geoskip.training.captured import Captured
from geoskip.training.cuda_graphs import WARMUPS, Replay, preserved

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def sphere() -> geoskip.Graph:
    mesh = icosphere(1)
    graph = geoskip.Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
    return graph.with_pseudo(torch.rand(graph.num_edges, 3, generator=torch.Generator().manual_seed(0)))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = geoskip.AffineSkip(geoskip.MoNetConv(3, 8, kernel_size=4))
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 3)
        self.register_buffer("scale", torch.ones(()))

    scale: Tensor

    def forward(self, x: Tensor, graph: geoskip.Graph) -> Tensor:
        return self.scale * self.last(self.drop(self.conv(x, graph).relu()))


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Tensor]:
    def step(x: Tensor, target: Tensor, graph: geoskip.Graph) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x, graph) - target).abs().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def record_once(step: Callable[[], Any]) -> Replay:
    """Stands in for a CUDA graph: replays are calls with the arguments of the recording."""
    return step


def record_on_cpu(model: nn.Module, step: Callable[[], Any]) -> Replay:
    """Stands in for a CUDA graph more closely: a recording computes nothing, and replays write to the memory of the
    recording, but change nothing in Python."""
    parameters = [*model.parameters()]
    before = [parameter.grad for parameter in parameters]
    with preserved([t for t in (*model.state_dict().values(), *before) if t is not None], torch.device("cpu")):
        recorded = step()
    after = [parameter.grad for parameter in parameters]

    def set_gradients(gradients: list[Tensor | None]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    def replay() -> Any:
        outside = [parameter.grad for parameter in parameters]
        set_gradients(before)
        result = step()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, after, strict=True):
                if gradient is not None and parameter.grad is not None:
                    gradient.copy_(parameter.grad)
            recorded.copy_(result)
        set_gradients(outside)
        return recorded

    return replay


def setting(device: str, rate: float | Tensor = 1e-2) -> tuple[Network, torch.optim.Optimizer, geoskip.Graph]:
    torch.manual_seed(0)
    model = Network().to(device)
    rate = rate.to(device) if isinstance(rate, Tensor) else rate
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, capturable=device == "cuda", fused=True)
    return model, optimizer, sphere().to(device)


def batches(device: str, sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(3)
    drawn = [torch.randn(2, size, icosphere(1).num_vertices, 3, generator=random).to(device) for size in sizes]
    return [(both[0], both[1]) for both in drawn]


def captured(step: Callable[..., Tensor], device: str, *watched: Any) -> Captured[..., Tensor]:
    return geoskip.capture(step, *watched) if device == "cuda" else Captured(step, watched, record_once)


@pytest.mark.parametrize("device", DEVICES)
def test_a_captured_loop_is_the_plain_loop(device: str) -> None:
    """With batches of two sizes, a rate that changes, and a copy of every loss that stays as it was returned."""
    sizes, losses, weights = [4, 4, 2] * 6, [], []
    for is_captured in (False, True):
        model, optimizer, graph = setting(device, torch.tensor(1e-2))
        model.drop.p = 0.0  # generators advance differently in a graph
        plain = step_of(model, optimizer)
        step = captured(plain, device, model, optimizer) if is_captured else plain
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        seen = []
        for number, (x, target) in enumerate(batches(device, sizes)):
            seen.append(step(x, target, graph).detach())
            if number % 6 == 5:
                scheduler.step()
        losses.append(torch.stack(seen))
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
    assert isinstance(step, Captured)
    assert step.num_recordings == 2
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)
    for ours, expected in zip(weights[1], weights[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_dropout_draws_anew_in_every_replay() -> None:
    model, optimizer, graph = setting("cuda")
    run = geoskip.capture(lambda x: model(x, graph), model, optimizer)
    x = batches("cuda", [2])[0][0]
    outputs = [run(x) for _ in range(WARMUPS + 3)]
    assert run.num_recordings == 1
    assert not any(torch.equal(a, b) for a, b in pairwise(outputs))


@pytest.mark.gpu
def test_a_step_that_waits_says_so() -> None:
    model, _, graph = setting("cuda")
    run = geoskip.capture(lambda x: model(x, graph).sum().item(), model)
    x = batches("cuda", [2])[0][0]
    for _ in range(WARMUPS):
        run(x)
    with pytest.raises(RuntimeError, match="waits for the GPU"):
        run(x)


def fail_to_capture(size: int = 1) -> None:
    """A step that allocates, draws numbers and then waits for the GPU."""

    def wait(x: Tensor) -> float:
        return nn.functional.dropout(torch.ones(size, device="cuda")).sum().item() + float(x.sum())

    run, x = geoskip.capture(wait), torch.ones(1, device="cuda")
    for _ in range(WARMUPS):
        run(x)
    with pytest.raises(RuntimeError, match="waits for the GPU"):
        run(x)


@pytest.mark.gpu
def test_dropout_works_after_a_capture_that_failed() -> None:
    """As usual, in a step that was captured before, in one that is captured afterwards, and on the same stream."""
    model, optimizer, graph = setting("cuda")
    x, target = batches("cuda", [2])[0]
    earlier, later = (geoskip.capture(lambda x: model(x, graph), model) for _ in range(2))
    for _ in range(WARMUPS + 1):
        earlier(x)
    stream, state = torch.cuda.current_stream(), torch.cuda.get_rng_state()
    fail_to_capture()
    assert torch.cuda.current_stream() == stream
    torch.cuda.set_rng_state(state)
    model(x, graph)
    expected = model(x, graph)
    torch.cuda.set_rng_state(state)
    model(x, graph)
    assert torch.equal(model(x, graph), expected)
    for run in (earlier, later):
        outputs = [run(x) for _ in range(WARMUPS + 3)]
        assert run.num_recordings == 1
        assert not any(torch.equal(a, b) for a, b in pairwise(outputs))
    train = geoskip.capture(step_of(model, optimizer), model, optimizer)
    losses = torch.stack([train(x, target, graph) for _ in range(WARMUPS + 3)])
    assert train.num_recordings == 1
    assert losses.isfinite().all()


@pytest.mark.gpu
def test_other_threads_may_pin_memory_during_a_recording() -> None:
    """As that of a DataLoader with ``pin_memory`` does."""
    sizes = count(1 << 20, 1 << 20)

    def step(x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(torch.empty, next(sizes), pin_memory=True).result()
        return 2 * x

    run = geoskip.capture(step)
    assert [float(run(torch.ones((), device="cuda"))) for _ in range(WARMUPS + 2)] == [2.0] * (WARMUPS + 2)
    assert run.num_recordings == 1


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch, unchecked: None) -> MagicMock:
    """What stands in for ``torch.cuda.graph``."""
    for name in ("CUDAGraph", "graph_pool_handle", "current_stream", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(cuda_graphs, "stream_to_capture", MagicMock())
    return torch.cuda.graph  # type: ignore[return-value]


def test_a_recording_concerns_one_thread(capturing: MagicMock) -> None:
    assert cuda_graphs.record_once(lambda: 7)() == 7
    assert capturing.call_args.kwargs["capture_error_mode"] == "thread_local"


@pytest.mark.usefixtures("capturing")
def test_a_first_call_that_fails_has_ended_before_others() -> None:
    """It runs on another stream than they do."""
    with pytest.raises(KeyError), cuda_graphs.capture_stream():
        raise KeyError
    current, side = torch.cuda.current_stream(), cuda_graphs.stream_to_capture()
    current.wait_stream.assert_called_once_with(side)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("capturing")
@pytest.mark.parametrize("place", ["graph", "edge_index"])
def test_a_recording_keeps_what_it_reads(place: str) -> None:
    """Also when other code has made the graph or the edges forget it."""
    graph, edges = sphere(), torch.tensor([[0, 1], [1, 0]])
    changed = graph.pattern.senders if place == "graph" else edges

    def read() -> Tensor:
        if place == "graph":
            return graph.remember("value", lambda: torch.zeros(1))
        return remember((edges,), "value", lambda: torch.zeros(1))

    value = weakref.ref(read())
    replay = cuda_graphs.record_once(lambda: int(read()))
    changed.add_(0)
    read()
    assert value() is not None
    del replay
    gc.collect()
    assert value() is None


@pytest.mark.gpu
def test_edges_with_other_values_after_a_recording() -> None:
    """Of one edge_index, the last weights are remembered, and a recording needs those that it was made with."""
    pyg = pytest.importorskip("torch_geometric.nn")
    conv, x = pyg.GCNConv(3, 8).cuda(), torch.randn(100, 3, device="cuda")
    edges, (own, other) = torch.randint(100, (2, 600), device="cuda"), torch.rand(2, 600, device="cuda")
    geoskip.accelerate(conv)
    run = geoskip.capture(lambda x: conv(x, edges, own), conv)
    for _ in range(WARMUPS + 1):
        expected = run(x)
    conv(x, edges, other)
    # On the stream of recordings, memory that is free now would be used again.
    with cuda_graphs.capture_stream():
        _ = [torch.full((700,), torch.nan, device="cuda") for _ in range(50)]
    torch.testing.assert_close(run(x), expected)


@pytest.mark.gpu
def test_captures_that_fail_give_their_memory_back() -> None:
    size = 1 << 24
    reserved = []
    for _ in range(4):
        fail_to_capture(size)
        gc.collect()
        torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] - reserved[0] < 4 * size


def count_recordings(change: Callable[[nn.Module, torch.optim.Optimizer], Any]) -> tuple[int, int]:
    """Recordings that were made in enough calls before and after a change, and those that are still there."""
    model, optimizer, graph = setting("cpu")
    record = Mock(side_effect=record_once)
    step = Captured(step_of(model, optimizer), (model, optimizer), record)
    x, target = batches("cpu", [2])[0]
    for _ in range(WARMUPS + 1):
        step(x, target, graph)
    assert step.num_recordings == 1
    change(model, optimizer)
    for _ in range(WARMUPS + 1):
        step(x, target, graph)
    return record.call_count, step.num_recordings


def double_rate(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] *= 2


def replace_rate(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for rate in (1e-2, 1e-3, 1e-4):
        optimizer.param_groups[0]["lr"] = torch.tensor(rate)


def replace_weights(model: Network, optimizer: torch.optim.Optimizer) -> None:
    model.last.weight.data = model.last.weight.data.clone()


def freeze(model: Network, optimizer: torch.optim.Optimizer) -> None:
    model.conv.requires_grad_(False)


def replace_buffer(model: Network, optimizer: torch.optim.Optimizer) -> None:
    model.scale = torch.full((), 2.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda model, optimizer: None, (1, 1)),
        (freeze, (2, 2)),
        (replace_buffer, (2, 1)),
        (lambda model, optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())), (2, 1)),
        (lambda model, optimizer: model.load_state_dict(copy.deepcopy(model.state_dict())), (1, 1)),
        (lambda model, optimizer: model.eval(), (2, 2)),
        (lambda model, optimizer: model.drop.eval(), (2, 2)),
        (double_rate, (2, 1)),
        (replace_rate, (2, 1)),
        (replace_weights, (2, 1)),
    ],
)
def test_what_is_recorded_again(change: Any, expected: tuple[int, int]) -> None:
    """What is replaced seldom comes back, so the memory of the old recording is freed."""
    assert count_recordings(change) == expected


def test_a_rate_on_another_device_is_a_constant() -> None:
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([torch.zeros(1, device="meta", requires_grad=True)], lr=rate)
    record = Mock(side_effect=record_once)
    run = Captured(lambda x: x, (optimizer,), record)
    for value in (0.1, 0.01):
        rate.fill_(value)
        for _ in range(WARMUPS + 1):
            run(torch.ones(1))
    assert record.call_count == 2


def test_one_graph_is_recorded_once_and_others_of_its_shape_once_more() -> None:
    model, optimizer, graph = setting("cpu")
    step = Captured(step_of(model, optimizer), (model, optimizer), record_once)
    x, target = batches("cpu", [2])[0]
    counts = []
    for used in (graph, *flipped_spheres(3)):
        for _ in range(WARMUPS + 1):
            step(x, target, used)
        counts.append(step.num_recordings)
    assert counts == [1, 2, 2, 2]


def gradients_of(model: nn.Module, graph: geoskip.Graph, zero_grad: Callable[[], Any]) -> Callable[..., Tensor]:
    """A step that only computes gradients."""

    def step(x: Tensor, target: Tensor) -> Tensor:
        zero_grad()
        loss = (model(x, graph) - target).abs().mean()
        loss.backward()
        return loss

    return step


def loop_with(where: str, step: Callable[..., Tensor], optimizer: torch.optim.Optimizer, batches: Any) -> Tensor:
    """The losses of a loop in which the step does not do everything."""
    losses = []
    for number, batch in enumerate(batches):
        if where == "zero_grad outside" or (where == "sums of two" and number % 2 == 0):
            optimizer.zero_grad()
        losses.append(step(*batch).detach())
        if where != "sums of two" or number % 2:
            optimizer.step()
    return torch.stack(losses)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("where", ["zero_grad outside", "zero_grad inside", "sums of two"])
def test_gradients_may_be_used_outside(where: str, device: str) -> None:
    """With batches of two sizes, whose recordings have gradients of their own."""
    losses = []
    for is_captured in (False, True):
        model, optimizer, graph = setting(device)
        model.drop.p = 0.0
        step = gradients_of(model, graph, optimizer.zero_grad if where == "zero_grad inside" else Mock())
        record = None if device == "cuda" else partial(record_on_cpu, model)
        chosen = Captured(step, (model, optimizer), record) if is_captured else step
        losses.append(loop_with(where, chosen, optimizer, batches(device, [4, 4, 2] * 8)))
    assert isinstance(chosen, Captured)
    assert chosen.num_recordings >= 2
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_two_captured_steps_share_gradients(device: str) -> None:
    losses = []
    for is_captured in (False, True):
        model, optimizer, graph = setting(device)
        model.drop.p = 0.0
        steps: list[Callable[..., Tensor]]
        steps = [gradients_of(model, graph, optimizer.zero_grad), partial(descend, model)]
        if is_captured:
            record = None if device == "cuda" else partial(record_on_cpu, model)
            steps = [Captured(step, (model, optimizer), record) for step in steps]
        seen = []
        for x, target in batches(device, [4, 4, 2] * 8):
            seen.append(steps[0](x, target).detach())
            steps[1](torch.tensor(0.01, device=device))
        losses.append(torch.stack(seen))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)


def descend(model: nn.Module, rate: Tensor) -> Tensor:
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(rate * parameter.grad)
    return rate


def test_a_recording_that_fails_leaves_the_gradients() -> None:
    model, optimizer, graph = setting("cpu")

    def record(step: Callable[[], Any]) -> Replay:
        step()
        raise ValueError("out of memory")

    run = Captured(step_of(model, optimizer), (model,), record)
    x, target = batches("cpu", [2])[0]
    for _ in range(WARMUPS):
        run(x, target, graph)
    before = [parameter.grad for parameter in model.parameters()]
    with pytest.raises(ValueError, match="out of memory"):
        run(x, target, graph)
    assert all(a is b.grad for a, b in zip(before, model.parameters(), strict=True))


def flipped_spheres(count: int) -> list[geoskip.Graph]:
    """Spheres with as many vertices and edges as :func:`sphere`, and another connectivity and pseudo-coordinates."""
    mesh, graphs = icosphere(1), []
    for seed in range(count):
        flipped = flip_edges(mesh, np.random.default_rng(seed))
        graph = geoskip.Graph.from_faces(torch.tensor(flipped.faces), mesh.num_vertices)
        graphs.append(attach(graph, cartesian(graph, torch.tensor(mesh.verts).float())))
    return graphs


OPERATORS: dict[str, Callable[[int, int], nn.Module]] = {
    "monet": partial(geoskip.MoNetConv, kernel_size=4),
    "feast": partial(geoskip.FeaStConv, kernel_size=4),
    "cheb": partial(geoskip.ChebConv, kernel_size=3),
    "gcn": geoskip.GCNConv,
    "gin": geoskip.GINConv,
    "spline": partial(geoskip.SplineConv, kernel_size=8),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPERATORS)
def test_graphs_of_one_shape_share_a_recording(name: str, device: str) -> None:
    """Losses and weights are those of the plain loop, with a graph of its own in every step."""
    graphs = [graph.to(device) for graph in flipped_spheres(6)]
    assert len({graph.num_edges for graph in graphs}) == 1
    assert not torch.equal(graphs[0].edge_index, graphs[1].edge_index)
    losses = []
    for is_captured in (False, True):
        model, optimizer, _ = setting(device)
        model.drop.p = 0.0
        model.conv = geoskip.AffineSkip(OPERATORS[name](3, 8)).to(device)
        optimizer.add_param_group({"params": [*model.conv.parameters()]})
        plain = step_of(model, optimizer)
        step = captured(plain, device, model, optimizer) if is_captured else plain
        seen = [
            step(x, target, graphs[number % len(graphs)]).detach()
            for number, (x, target) in enumerate(batches(device, [2] * 15))
        ]
        losses.append(torch.stack(seen))
    assert isinstance(step, Captured)
    assert step.num_recordings == 1
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_of_an_argument_is_not_lost_in_silence(device: str) -> None:
    model, optimizer, graph = setting(device)
    step = captured(step_of(model, optimizer), device, model, optimizer)
    x, target = batches(device, [2])[0]
    x.requires_grad_()
    for _ in range(WARMUPS):
        step(x, target, graph)
    assert x.grad is not None
    with pytest.raises(ValueError, match=r"backward\(\) reaches an argument of shape \(2, 42, 3\)"):
        step(x, target, graph)


@pytest.mark.parametrize("device", DEVICES)
def test_arguments_that_the_step_changes(device: str) -> None:
    def step(x: Tensor, total: Tensor) -> Tensor:
        return total.add_(x.sum()).clone()

    record = None if device == "cuda" else partial(record_on_cpu, nn.Identity())
    run, total = Captured(step, (), record), torch.zeros((), device=device)
    for number in range(WARMUPS + 3):
        assert float(run(torch.ones(2, device=device), total)) == float(total) == 2 * (number + 1)
    assert run.num_recordings == 1


def test_objects_that_are_new_in_every_call() -> None:
    """Their ids are used again, but not their recordings, which would fill the memory."""

    class Batch:
        def __init__(self, factor: float) -> None:
            self.factor = factor

    run, kept = Captured(lambda x, batch: batch.factor * x, (), record_once), Batch(2.0)
    for number in range(50 * WARMUPS):
        assert float(run(torch.ones(()), Batch(number))) == number
    assert run.num_recordings == 0
    for _ in range(WARMUPS + 2):
        assert float(run(torch.ones(()), kept)) == 2.0
    assert run.num_recordings == 1


@pytest.mark.parametrize("device", DEVICES)
def test_inference_mode_has_recordings_of_its_own(device: str) -> None:
    model, _, graph = setting(device)
    run, x = captured(lambda x: model(x, graph), device, model.eval()), batches(device, [2])[0][0]
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with context():
            outputs = [run(x) for _ in range(WARMUPS + 2)]
        torch.testing.assert_close(outputs[-1], outputs[0])
    assert run.num_recordings == 3


def test_parameters_that_have_no_shape_yet() -> None:
    model = nn.LazyLinear(3)
    run = Captured(model, (model,), record_once)
    for _ in range(WARMUPS + 2):
        assert run(torch.ones(2, 4)).shape == (2, 3)
    assert run.num_recordings == 1


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_around_a_captured_step(device: str) -> None:
    """A weight that autocast has cast before the step is recorded is cast again in every replay."""
    linear = nn.Linear(3, 3, bias=False).to(device)
    x = torch.ones(1, 3, device=device)
    run = captured(linear, device, linear) if device == "cuda" else Captured(linear, (linear,), record_once)
    for number in range(WARMUPS + 3):
        with torch.autocast(device, torch.bfloat16):
            expected = linear(x)
            if number == WARMUPS:
                # The cast weight is kept until the context ends.
                linear.weight.data.fill_(2.0)
                assert torch.equal(linear(x), expected)
            torch.testing.assert_close(run(x), 0 * expected + 6.0 if number >= WARMUPS else expected)
    assert run.num_recordings == 1


@pytest.mark.parametrize("device", DEVICES)
def test_a_graph_that_is_changed_in_place(device: str) -> None:
    """Splines remember what they compute from pseudo-coordinates."""
    conv, graph = geoskip.SplineConv(3, 8, kernel_size=4, dim=3).to(device), sphere().to(device)
    run, x = captured(lambda x, graph: conv(x, graph), device, conv), batches(device, [2])[0][0]
    assert graph.pseudo is not None
    for _ in range(3):
        for _ in range(WARMUPS + 2):
            torch.testing.assert_close(run(x, graph), conv(x, graph))
        graph.pseudo.mul_(0.9)
    assert run.num_recordings == 2


def test_inputs_are_copied_in_and_results_out() -> None:
    """Replays see the new inputs, and do not change results that were returned before."""
    out = torch.zeros(3)

    def step(inputs: dict[str, Tensor], scale: float) -> list[Tensor]:
        return [out.copy_(scale * inputs["x"])]

    run = Captured(step, (), record_once)
    results = [run({"x": torch.full((3,), float(i))}, 2.0)[0] for i in range(WARMUPS + 3)]
    assert run.num_recordings == 1
    assert [float(result[0]) for result in results[WARMUPS:]] == [2.0 * i for i in range(WARMUPS, WARMUPS + 3)]


def test_arguments_that_are_equal_but_not_the_same() -> None:
    """True, 1 and 1.0 are three arguments."""
    run = Captured(lambda x, factor: x * factor, (), record_once)
    for factor in (True, 1, 1.0):
        for _ in range(WARMUPS + 1):
            assert run(torch.ones(2, dtype=torch.long), factor).dtype is torch.result_type(torch.tensor(0), factor)
    assert run.num_recordings == 3


def test_steps_that_are_objects() -> None:
    """Their attributes are copied, as ``functools.update_wrapper`` does, but do not replace those of the wrapper."""

    class Trainer:
        def __init__(self) -> None:
            self.step, self.watched = 0, "loss"

        def __call__(self, x: Tensor) -> Tensor:
            self.step += 1
            return x + self.step

    trainer = Trainer()
    run = geoskip.capture(geoskip.capture(trainer))
    assert float(run(torch.zeros(()))) == trainer.step == 1


def test_without_a_gpu_steps_run_as_usual() -> None:
    step = Mock(side_effect=lambda x: 2 * x)
    run = geoskip.capture(step)
    for _ in range(WARMUPS + 3):
        assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0))
    assert (step.call_count, run.num_recordings) == (WARMUPS + 3, 0)


@pytest.mark.usefixtures("unchecked")
def test_only_modules_and_optimizers_are_watched() -> None:
    with pytest.raises(TypeError, match="watched: expected modules and optimizers, got Tensor"):
        geoskip.capture(lambda: None, torch.zeros(1))  # type: ignore[arg-type]


class OnSecondGPU(Tensor):
    is_cuda, device = True, torch.device("cuda", 1)


def test_arguments_on_several_devices() -> None:
    """Values of tensors on the CPU would become constants of the recording."""
    with pytest.raises(ValueError, match="step: has arguments on cuda:1 and cpu"):
        geoskip.capture(lambda x, factor: x * factor)(torch.ones(2).as_subclass(OnSecondGPU), torch.tensor(2.0))


def test_a_captured_step_inside_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run = geoskip.capture(lambda x: 7)
    assert [run(torch.ones(2).as_subclass(OnSecondGPU)) for _ in range(WARMUPS + 2)] == [7] * (WARMUPS + 2)
    assert run.num_recordings == 0


@pytest.mark.gpu
def test_a_captured_step_is_recorded_as_part_of_another() -> None:
    inner = geoskip.capture(lambda x: 2 * x)
    outer = geoskip.capture(lambda x: inner(x) + 1)
    for number in range(2 * WARMUPS + 3):
        assert float(outer(torch.full((), float(number), device="cuda"))) == 2 * number + 1
    assert outer.num_recordings == 1


def test_a_step_is_captured_on_the_device_of_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several GPUs, another one may be the current one, whose stream would record nothing."""

    current: list[Any] = []

    @contextmanager
    def device(chosen: Any) -> Iterator[None]:
        current.append(chosen)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    seen = []
    run = Captured(lambda x: seen.append([*current]), (), record_once)
    for _ in range(WARMUPS + 2):
        run(torch.ones(2).as_subclass(OnSecondGPU))
    assert seen == [[torch.device("cuda", 1)]] * (WARMUPS + 2)
    assert current == []
