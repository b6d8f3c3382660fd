"""Training as users write it themselves: a plain loop, with one line for ``torch.compile`` or ``geoskip.capture``, and
the same loop over PyTorch Geometric's network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, l1_loss

import geoskip
from benchmarks.cases import Step
from benchmarks.measure_blocks import failed, with_ratios
from benchmarks.measurements import OURS, PATHS, Row
from benchmarks.timing import release, time_steps
from benchmarks.training.loaders import batches
from benchmarks.training.measure_steps import LOSS_TOLERANCE, Settings, compare, fastest_way, start_peak
from benchmarks.training.trainers import Way, order, peer_dataset, peer_network, ways
from benchmarks.training.trainings import AUTOENCODER, CORRESPONDENCE, SUPERPIXELS, Run, Training
from benchmarks.workloads import chosen_names
from geoskip.graphs import Graph, attach
from geoskip.training.devices import arithmetic
from geoskip.training.tasks import Task, make_task

# Products in TensorFloat-32 are rounded to 11 bits.
TF32_LOSS_TOLERANCE = 10 * LOSS_TOLERANCE
MODES = {"compiled": "default", "reduce-overhead": "reduce-overhead"}
LOOPS = {
    training.name: training
    for training in (
        AUTOENCODER,
        CORRESPONDENCE,
        replace(
            CORRESPONDENCE,
            name="correspondence-float32",
            about=CORRESPONDENCE.about.replace("TF32 allowed on both sides", "float32"),
            tf32=False,
        ),
        SUPERPIXELS,
    )
}


@dataclass(frozen=True)
class Loop:
    """What a loop trains, on the device.

    Attributes:
        model: the network.
        loss: a function of the network, or of what ``torch.compile`` makes of it, and of a batch.
        batches: the arguments of ``loss``, one tuple after the other.
        call: the loss in words.
    """

    model: nn.Module
    loss: Callable[..., Tensor]
    batches: list[tuple[Any, ...]]
    call: str


class PeerBatch(NamedTuple):
    """The tensors of a batch by the names of PyTorch Geometric. ``torch.compile`` can read them, unlike ``Data``."""

    x: Tensor
    edge_index: Tensor | None
    edge_attr: Tensor | None
    y: Tensor | None


def chosen_loops(names: Sequence[str] | None) -> list[Training]:
    """By name; all if none is named."""
    return [LOOPS[name] for name in chosen_names("task", names, tuple(LOOPS))]


def chosen_paths(names: Sequence[str] | None, device: torch.device) -> list[str]:
    """By name, in the order of the tables; all that the device has if none is named."""
    possible = [path for path in PATHS if path != "reference"]
    if device.type != "cuda":
        possible = [path for path in possible if "reduce-overhead" not in path and path != "captured"]
    return chosen_names("path", names, tuple(possible))


def measure_loop(
    training: Training, operators: Sequence[str], skips: Sequence[bool], paths: Sequence[str], settings: Settings
) -> Iterator[Row]:
    """All rows of a task. Losses are compared with those of geoskip's eager loop."""
    data = training.make_data()
    for operator in operators:
        for skip in skips:
            yield from with_ratios(_measure(Run(training, operator, skip), data, paths, settings))


def _measure(run: Run, data: Any, paths: Sequence[str], settings: Settings) -> list[Row]:
    # Without dropout, which would draw other numbers on each side.
    config = replace(run.config(compared=True), tf32=run.training.tf32)
    task, rows, reference = make_task(config, data), list[Row](), None
    for path in paths:
        empty = Row(run.training.name, run.operator, run.slots, run.skip, path, "")
        row, losses = _measured(empty, task, settings)
        if path == "geoskip":
            reference = losses
        elif losses and reference:
            row = compare(row, losses, reference, TF32_LOSS_TOLERANCE if config.tf32 else LOSS_TOLERANCE)
        rows.append(row)
        torch.compiler.reset()
        release(settings.device)
    return rows


def _measured(row: Row, task: Task, settings: Settings) -> tuple[Row, list[float]]:
    """The row, and the losses of the first steps; none where a step fails, which a peer may do in any way."""
    device = settings.device
    try:
        with arithmetic(task.config):
            make, tried = (our_loop, None) if row.path in OURS else _peer_loop(row.path, task, settings)
            before = start_peak(device)
            loop = make(task, device)
            began = perf_counter()
            step = make_step(loop, row.path, task)
            losses = [step()[0]]
            _wait(device)
            first = perf_counter() - began
            losses += [step()[0] for _ in range(settings.steps - 1)]
            timing = time_steps([step], device, settings.seconds)
            peak = None if before is None else torch.cuda.max_memory_allocated(device) - before
    except Exception as error:
        return replace(row, problem=failed(error)), []
    row = replace(
        row,
        call=_call(loop.call, row.path),
        milliseconds=timing.milliseconds,
        quartiles=(timing.low, timing.high),
        samples=timing.samples,
        peak_bytes=peak,
        first_seconds=first,
        tried=tried,
    )
    return row, torch.stack(losses).tolist()


def make_step(loop: Loop, path: str, task: Task) -> Step:
    """The loop's body, on one batch after the other."""
    model, optim, is_captured = loop.model, task.config.optim, path == "captured"
    adam = torch.optim.Adam(
        model.parameters(), optim.lr, weight_decay=optim.weight_decay, fused=True, capturable=is_captured
    )
    called: Any = model
    if (mode := MODES.get(path.removeprefix("PyG "))) is not None:
        called = torch.compile(model, mode=mode)

    def train(*batch: Any) -> Tensor:
        adam.zero_grad()
        loss = loop.loss(called, *batch)
        loss.backward()
        adam.step()
        return loss.detach()

    run = geoskip.capture(train, model, adam) if is_captured else train
    turn = cycle(loop.batches)
    return lambda: (run(*next(turn)),)


def our_loop(task: Task, device: torch.device) -> Loop:
    """As a user of geoskip writes it; ``task`` is on the CPU and has the data."""
    model, moved = task.make_model().to(device).train(), task.to(device)
    orders = [torch.tensor(items, device=device) for items in order(task.num_items, task.config.optim.batch_size)]
    made = [moved.batch(items) for items in orders]
    if task.config.task == "reconstruction":
        return Loop(model, lambda net, x: l1_loss(net(x), x), [(x,) for x in made], "l1_loss(model(x), x)")
    if task.config.task == "classification":
        rows = [(packed.x, packed.graphs, labels) for packed, labels in made]
        call = "cross_entropy(model(x, graphs), labels)"
        return Loop(model, lambda net, x, graphs, labels: cross_entropy(net(x, graphs), labels), rows, call)
    # All meshes have one connectivity: batches bring the pseudo-coordinates, and a captured step has one graph.
    graph: Graph = made[0][0].graphs.levels[0]
    rows = [(packed.x, packed.graphs.levels[0].pseudo, labels) for packed, labels, _ in made]
    call = "cross_entropy(model(x, graph), labels)"

    def loss(net: Any, x: Tensor, pseudo: Tensor | None, labels: Tensor) -> Tensor:
        own = graph if pseudo is None else attach(graph, pseudo)
        return cross_entropy(net(x, own), labels, ignore_index=-1)

    return Loop(model, loss, rows, call)


def peer_loop(task: Task, device: torch.device, way: Way) -> Loop:
    """The same network and weights by PyTorch Geometric, on batches that its loader made before."""
    model = peer_network(task, device, way).to(device).train()
    orders = order(task.num_items, task.config.optim.batch_size)
    loaded = islice(batches(peer_dataset(task, way.edges), orders, device), len(orders))
    made: list[tuple[Any, ...]] = [(data,) for data in loaded]
    if task.config.task != "classification":
        stored = [data.to_dict() for (data,) in made]
        made = [(PeerBatch(*map(tensors.get, PeerBatch._fields)),) for tensors in stored]
    losses: dict[str, Callable[..., Tensor]] = {
        "reconstruction": lambda net, data: l1_loss(net(data), data.x),
        "correspondence": lambda net, data: cross_entropy(net(data), data.y, ignore_index=-1),
        "classification": lambda net, data: cross_entropy(net(data), data.y),
    }
    return Loop(model, losses[task.config.task], made, way.text(task.config.task).rpartition(", ")[0])


def _peer_loop(
    path: str, task: Task, settings: Settings
) -> tuple[Callable[[Task, torch.device], Loop], dict[str, float | None] | None]:
    """The peer in its fastest way; compiled, with plain tensors, since its EdgeIndex cannot be compiled."""
    if path != "PyG":
        return lambda task, device: peer_loop(task, device, Way()), None
    choices = [(field, values) for field, values in ways(task.config.task, settings.device) if field != "loading"]
    way, tried = fastest_way(task, settings, choices)
    return lambda task, device: peer_loop(task, device, way), tried


def _call(loss: str, path: str) -> str:
    if path == "captured":
        return f"{loss}, geoskip.capture(step, model, optimizer)"
    mode = MODES.get(path.removeprefix("PyG "))
    if mode is None:
        return loss
    return f"{loss}, torch.compile(model{'' if mode == 'default' else f', mode={mode!r}'})"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
