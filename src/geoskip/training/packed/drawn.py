"""Graphs whose coarser levels are drawn again in every epoch, stored where captured steps can read them.

A captured step reads fixed addresses and has fixed shapes. So the coarser levels lie in tensors that are large enough
for any draw (a coarser graph has no more vertices and edges than a finer one) and are refilled in place. The places of
a batch are those that the draw of epoch 0 needs, and a margin; in the rare epoch whose draw needs more, the margin is
larger and the step is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from geoskip.data.graph_set import GraphSet
from geoskip.shapes import Float, Int
from geoskip.training.packed.drawing import Drawing
from geoskip.training.packed.edges import PackedEdges
from geoskip.training.packed.level import Bounds, PackedLevel, Room
from geoskip.training.packed.store import GraphStore, store_set

MARGIN = 1.02  # by which a batch has more places than the draw of epoch 0 needs
LARGEST = 512  # vertices of a graph: dense matrices of more are too large


@dataclass(frozen=True, eq=False)
class DrawnStore(GraphStore):
    """As :class:`GraphStore`, with coarser levels that :meth:`redraw` fills.

    drawing: what they are drawn from.
    expected: the bounds of each coarser level in the draw of epoch 0. The room of a batch follows from them, so that a
        resumed run has the same.
    """

    drawing: Drawing | None = None
    expected: tuple[Bounds, ...] = ()
    _drawn: dict[str, int] = field(default_factory=dict, repr=False)
    _layouts: dict[int, int] = field(default_factory=dict, repr=False)

    def redraw(self, epoch: int) -> None:
        """Fill the coarser levels with the draw of an epoch, unless it is there."""
        assert self.drawing is not None
        if self._drawn.get("epoch") == epoch or (self._drawn and not self.drawing.epochs_matter):
            return
        # What is drawn for an evaluation, in inference mode, is still needed when training goes on.
        with torch.inference_mode(False), torch.no_grad():
            levels, pos = self.drawing.packed(epoch)
            refill(self.levels[0].members, levels[0].members)
            refill((self.levels[1:], self.pos[1:]), (tuple(levels[1:]), tuple(pos[1:])))
        self._drawn["epoch"] = epoch
        self._rooms.clear()
        self._layouts.clear()

    def rooms(self, num_items: int) -> tuple[Room, ...]:
        finest, step = self.levels[0].bounds.room(num_items), self.layout(num_items)
        return (finest, *(bounds.room(num_items, MARGIN**step) for bounds in self.expected))

    def layout(self, num_items: int) -> int:
        """How often the margin is taken: once, unless the draw of the epoch needs more places."""
        if num_items not in self._layouts:
            pairs = [(level.bounds, bounds) for level, bounds in zip(self.levels[1:], self.expected, strict=True)]
            fits = (all(own.fit(other, num_items, MARGIN**step) for own, other in pairs) for step in count(1))
            self._layouts[num_items] = next(step for step, fit in enumerate(fits, 1) if fit)
        return self._layouts[num_items]


def drawn_store(
    data: GraphSet,
    items: Int[Tensor, " items"],
    drawing: Callable[[PackedLevel, Float[Tensor, "vertices dim"]], Drawing],
    coordinates: str | None,
    largest: Sequence[float] | None,
    *,
    looped: bool,
    padded: bool,
    polar: bool = False,
) -> DrawnStore:
    """The chosen graphs of a set, with coarser levels to be drawn; ``data`` have the finest level alone.

    ``drawing`` makes a drawing of the stored graphs and their positions. The other arguments are those of
    :func:`~geoskip.training.packed.store.store_set`.
    """
    base = store_set(data, items, coordinates, largest, looped=looped, padded=padded, polar=polar)
    made = drawing(base.levels[0], base.pos[0])
    if made.size > LARGEST:
        raise ValueError(
            f"coarsening: can be drawn for graphs of up to {LARGEST} vertices, and the data have one of {made.size}; "
            "leave these settings out to use the levels of the data"
        )
    levels, pos = made.packed(0)
    coarse = range(1, made.num_levels)
    scales = [None if largest is None else torch.full((len(items),), largest[k], device=base.x.device) for k in coarse]
    store = DrawnStore(
        base.x,
        (base.pos[0], *(torch.zeros_like(base.pos[0]) for _ in coarse)),
        (levels[0], *(_roomy(level, made.finest) for level in levels[1:])),
        coordinates,
        (*base.scales, *scales),
        padded,
        polar,
        drawing=made,
        expected=tuple(levels[depth].bounds for depth in coarse),
    )
    refill((store.levels[1:], store.pos[1:]), (tuple(levels[1:]), tuple(pos[1:])))
    store._drawn["epoch"] = 0
    return store


def refill(target: Any, source: Any) -> None:
    """Copy the tensors of a record to the beginning of another's, in place."""
    if isinstance(source, Tensor):
        target[: len(source)].copy_(source)
    elif isinstance(source, tuple):
        for inner, new in zip(target, source, strict=True):
            refill(inner, new)
    elif is_dataclass(source):
        for entry in fields(source):
            refill(getattr(target, entry.name), getattr(source, entry.name))


def _roomy(level: PackedLevel, finest: PackedLevel) -> PackedLevel:
    """A level of the same types with places for all vertices and edges of the finest: no coarser one has more."""
    verts = int(finest.offsets[-1])

    def edges(some: PackedEdges | None, of_finest: PackedEdges | None) -> PackedEdges | None:
        if some is None or of_finest is None:
            return None
        sizes = dict.fromkeys(("first_in", "first_out"), verts) | {"offsets": len(some.offsets)}
        return _enlarged(some, sizes, len(of_finest.senders))

    parts: Any = {"edges": edges(level.edges, finest.edges), "looped": edges(level.looped, finest.looped)}
    parts |= {name: _enlarged_tensor(getattr(level, name), verts) for name in ("members", "first_member")}
    return PackedLevel(level.offsets.clone(), **parts)


def _enlarged(record: PackedEdges, sizes: Mapping[str, int], size: int) -> PackedEdges:
    tensors: Any = {
        entry.name: _enlarged_tensor(getattr(record, entry.name), sizes.get(entry.name, size))
        for entry in fields(record)
    }
    return PackedEdges(**tensors)


def _enlarged_tensor(tensor: Tensor | None, size: int) -> Tensor | None:
    return None if tensor is None else tensor.new_zeros(size, *tensor.shape[1:])
