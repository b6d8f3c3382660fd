"""The peak memory of a training step on CUDA, foretold for every task from its configuration and sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from geoskip.bench.ledger import Ledger
from geoskip.bench.memory import GRADIENTS, Sizes, passes
from geoskip.bench.model_memory import estimate_autoencoder_memory
from geoskip.kernels.ops.entropy import STEP
from geoskip.training.config import Config
from geoskip.training.tasks import Task
from geoskip.training.tasks.classification import Classification
from geoskip.training.tasks.correspondence import Correspondence
from geoskip.training.tasks.reconstruction import Reconstruction

FLOAT, MASK = 4, 1
LOW_PRECISION = 2


@dataclass(frozen=True)
class Room:
    """Of a batch: its items, vertices and directed edges of each level, finest first, padding included, and the
    features of a vertex of graphs that are classified."""

    items: int
    vertices: tuple[int, ...]
    edges: tuple[int, ...]
    features: int = 1


def estimate_training_memory(config: Config, room: Room, classes: int = 0, slots: int | None = None) -> int:
    """Bytes of a step at its peak: forward, loss and backward, above the batch, weights, moments and data.

    Args:
        config: of the run.
        room: the batch, as :func:`room_of` gives it. For meshes of one template vertices and edges are those of one
            item; elsewhere they are those of all packed items.
        classes: of correspondence or classification.
        slots: how many weight matrices there are, if not ``config.kernel_size`` (splines) or 1.
    """
    slots = slots or config.kernel_size or 1
    feature = FLOAT if config.precision == "float32" else LOW_PRECISION
    sizes = _Plan(config.operator, config.skip == "affine", slots, feature, room, config.model)
    if config.task == "reconstruction":
        return _autoencoder(sizes)
    if classes < 1:
        raise ValueError(f"classes: {config.task} needs their number, got {classes}")
    return _correspondence(sizes, classes) if config.task == "correspondence" else _classifier(sizes, classes)


def room_of(task: Task) -> Room:
    """What a batch of a task takes on CUDA, where packed graphs are padded."""
    items = min(task.config.optim.batch, task.num_items)
    if isinstance(task, Reconstruction):
        levels = task.template.hierarchy.levels
        return Room(items, tuple(g.num_vertices for g in levels), tuple(g.num_edges for g in levels))
    assert isinstance(task, Correspondence | Classification)
    rooms = task.store.rooms(items)
    features = task.store.x.shape[1]
    return Room(items, tuple(room.verts for room in rooms), tuple(room.edges for room in rooms), features)


@dataclass(frozen=True)
class _Plan:
    operator: str
    skip: bool
    slots: int
    feature: int
    room: Room
    model: Any

    def given(self, name: str, default: Any) -> Any:
        return self.model.get(name, default)

    def layer(self, level: int, i: int, o: int) -> Sizes:
        at = self.room.vertices[level], self.room.edges[level]
        return Sizes(1, *at, i, o, self.slots, self.skip, self.feature)


def _autoencoder(plan: _Plan) -> int:
    chosen = {name: plan.model[name] for name in ("channels", "latent", "in_channels") if name in plan.model}
    dtype = torch.float32 if plan.feature == FLOAT else torch.bfloat16
    room, skip = plan.room, plan.skip
    sizes = room.items, room.vertices, room.edges, plan.slots
    return estimate_autoencoder_memory(plan.operator, *sizes, skip=skip, dtype=dtype, **chosen)


def _correspondence(plan: _Plan, classes: int) -> int:
    vertices, lift, head = plan.room.vertices[0], plan.given("lift", 16), plan.given("head", 256)
    widths = pairwise([lift, *plan.given("channels", (32, 64, 128))])
    step = _Step(plan.operator, normalised=False)
    step.lift(plan.feature * vertices * lift)
    layers = [plan.layer(0, i, o) for i, o in widths]
    chapters = [step.forward(s) for s in layers]
    step.matching_head(vertices, (layers[-1].out, head, classes), plan)
    for chapter, s in zip(chapters[::-1], layers[::-1], strict=True):
        step.backward(chapter, s)
    return step.book.peak


def _classifier(plan: _Plan, classes: int) -> int:
    """Pooling keeps the members of the clusters in their order, and one row for each cluster."""
    channels = plan.given("channels", (32, 64, 64))
    widths = pairwise([plan.room.features, *channels])
    layers = [plan.layer(level, i, o) for level, (i, o) in enumerate(widths)]
    layers[0] = replace(layers[0], needs_x=False)
    step = _Step(plan.operator, normalised=plan.given("normalise", None) or plan.operator == "gin")
    chapters = []
    for level, s in enumerate(layers):
        chapters.append(step.forward(s))
        if level + 1 < len(layers):
            step.pool(chapters[-1], s, layers[level + 1].x)
    step.pooled_head(layers[-1], (channels[-1], plan.given("head", 128), classes), plan)
    for level, (chapter, s) in reversed(list(enumerate(zip(chapters, layers, strict=True)))):
        if level + 1 < len(layers):
            step.unpool(chapter, s)
        step.backward(chapter, s)
    return step.book.peak


class _Step:
    """A step followed in a book with a chapter for each layer; ``flow`` is the gradient on its way back."""

    def __init__(self, operator: str, normalised: bool) -> None:
        self.convolve, self.convolve_back = passes(operator)
        self.normalised, self.book = normalised, Ledger()

    def lift(self, size: int) -> None:
        """A linear layer and its ELU, which keeps what it is given."""
        self.book.hold(lifted=size, active=size)

    def forward(self, s: Sizes) -> Ledger:
        chapter = self.book.chapter()
        self.convolve(chapter, s)
        if self.normalised:
            chapter.hold(normed=s.y)
        chapter.hold(active=s.y)
        return chapter

    def pool(self, chapter: Ledger, s: Sizes, pooled: int) -> None:
        chapter.hold(members=s.y, pooled=pooled)
        chapter.drop("active")

    def unpool(self, chapter: Ledger, s: Sizes) -> None:
        self.book.hold(grad_members=s.y)
        self.book.drop("flow")
        chapter.drop("members", "pooled")
        self.book.hold(flow=s.y)
        self.book.drop("grad_members")

    def backward(self, chapter: Ledger, s: Sizes) -> None:
        """Through the ELU, the normalisation if there is one, and the convolution."""
        chapter.hold(grad_y=s.y)
        self.book.drop("flow")
        if self.normalised:
            chapter.hold(grad_bare=s.y)
            chapter.drop("normed", "grad_y")
            chapter.hold(grad_y=s.y)
            chapter.drop("grad_bare")
        chapter.drop("y")
        self.convolve_back(chapter, s)
        chapter.keep(*GRADIENTS)
        chapter.drop("grad_x")
        self.book.hold(flow=s.x * s.needs_x)

    def pooled_head(self, last: Sizes, widths: tuple[int, int, int], plan: _Plan) -> None:
        """The mean of each graph, two linear layers with dropout between them, and the cross-entropy; then back."""
        inputs, hidden, classes = widths
        rows = plan.room.items
        dropped, scores = plan.feature * rows * hidden, FLOAT * rows * classes
        book = self.book.chapter()
        book.hold(mean=plan.feature * rows * inputs, hidden=dropped)
        self._drop_out(book, rows, dropped, hidden)
        book.hold(scores=scores, logarithms=scores)
        book.drop("scores")
        book.hold(grad_logarithms=scores, grad_scores=scores)
        book.drop("grad_logarithms", "logarithms")
        book.hold(grad_output=FLOAT * hidden * classes, grad_after=dropped)
        book.drop("grad_scores", "after")
        self._back_to_inputs(book, dropped, inputs * hidden)
        self.book.hold(flow=last.y)

    def matching_head(self, rows: int, widths: tuple[int, int, int], plan: _Plan) -> None:
        """Likewise for every vertex, with the last layer and the cross-entropy as one step that holds scores once."""
        inputs, hidden, classes = widths
        dropped, padded = plan.feature * rows * hidden, classes + -classes % STEP
        book = self.book.chapter()
        self._drop_out(book, rows, dropped, hidden)
        book.hold(wide=plan.feature * hidden * padded, scores=plan.feature * rows * padded)
        book.hold(product=dropped, grad_after=dropped)
        book.drop("product")
        book.hold(product=plan.feature * hidden * padded, grad_output=FLOAT * hidden * classes)
        book.drop("product", "wide", "scores", "after")
        self._back_to_inputs(book, dropped, inputs * hidden)
        self.book.hold(flow=plan.feature * rows * inputs)

    def _drop_out(self, book: Ledger, rows: int, dropped: int, hidden: int) -> None:
        book.hold(before=dropped, mask=MASK * rows * hidden, after=dropped)
        book.drop("before")

    def _back_to_inputs(self, book: Ledger, dropped: int, weights: int) -> None:
        book.hold(grad_before=dropped)
        book.drop("grad_after", "mask")
        book.hold(grad_head=FLOAT * weights)
        book.keep("grad_output", "grad_head")
