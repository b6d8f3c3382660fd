"""The edges of a graph, or the non-zeros of a sparse matrix, in both orders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.paths import is_traced, is_transformed
from geoskip.shapes import Int


@dataclass(frozen=True, eq=False)
class Pattern:
    r"""The edges of a graph, sorted by receiver and by sender.

    An edge carries features from its sender :math:`j` to its receiver :math:`i`. Sorted by receiver, the sum over
    :math:`\mathcal N(i)` is a sum over a contiguous segment; sorted by sender, so is its transpose, which gradients
    need. No two threads add to the same address, so results repeat bitwise.

    A pattern has either one set of edges that all M slots share (``groups == 1``; each edge has M weights), or M sets
    of edges, one per slot, stored one after the other (``groups == M``; each edge has one weight).

    Attributes:
        senders: sender of each edge, in receiver order.
        receivers: receiver of each edge, in receiver order.
        groups_of: group of each edge, in receiver order; ``None`` if there is one group.
        offsets: the edges of group g into vertex i are ``offsets[g, i] : offsets[g, i + 1]``.
        by_sender: the edges (their positions in receiver order) in sender order.
        sender_offsets: the edges of group g out of vertex j are
            ``by_sender[sender_offsets[g, j] : sender_offsets[g, j + 1]]``.
    """

    senders: Int[Tensor, " edges"]
    receivers: Int[Tensor, " edges"]
    groups_of: Int[Tensor, " edges"] | None
    offsets: Int[Tensor, "groups receivers_plus_1"]
    by_sender: Int[Tensor, " edges"]
    sender_offsets: Int[Tensor, "groups senders_plus_1"]

    @property
    def groups(self) -> int:
        return self.offsets.shape[0]

    @property
    def num_edges(self) -> int:
        return self.senders.shape[0]

    @property
    def num_receivers(self) -> int:
        return self.offsets.shape[1] - 1

    @property
    def num_senders(self) -> int:
        return self.sender_offsets.shape[1] - 1

    @property
    def device(self) -> torch.device:
        return self.senders.device

    @property
    def counts(self) -> Int[Tensor, "groups receivers"]:
        """Number of neighbors of each receiver."""
        return self.offsets.diff(dim=1)

    def transposed(self) -> Pattern:
        """The reversed edges. Weights follow as ``weights[..., pattern.by_sender, :]``."""
        inverse = torch.empty_like(self.by_sender)
        inverse[self.by_sender] = torch.arange(self.num_edges, device=self.device)
        return Pattern(
            senders=self.receivers[self.by_sender],
            receivers=self.senders[self.by_sender],
            groups_of=None if self.groups_of is None else self.groups_of[self.by_sender],
            offsets=self.sender_offsets,
            by_sender=inverse,
            sender_offsets=self.offsets,
        )

    def copies(self, count: int) -> Pattern:
        """Disjoint copies, one after the other, of a pattern with one group."""
        copies = torch.arange(count, device=self.device).unsqueeze(1)

        def numbered(values: Tensor, step: int) -> Tensor:
            return (values + copies * step).flatten()

        def starts(offsets: Tensor) -> Tensor:
            ends = offsets.new_full((1,), count * self.num_edges)
            return torch.cat([numbered(offsets[0, :-1], self.num_edges), ends]).unsqueeze(0)

        return Pattern(
            senders=numbered(self.senders, self.num_senders),
            receivers=numbered(self.receivers, self.num_receivers),
            groups_of=None,
            offsets=starts(self.offsets),
            by_sender=numbered(self.by_sender, self.num_edges),
            sender_offsets=starts(self.sender_offsets),
        )


def sizes_of(x: Tensor) -> tuple[int, int, int]:
    """Items, vertices and channels of x [*batch, vertices, channels]."""
    shape = x.shape
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    return shape[0] if len(shape) == 3 else shape[:-2].numel(), shape[-2], shape[-1]


def sort_edges(
    senders: Int[Tensor, " edges"],
    receivers: Int[Tensor, " edges"],
    num_senders: int,
    num_receivers: int,
    groups_of: Int[Tensor, " edges"] | None = None,
    groups: int = 1,
) -> tuple[Pattern, Int[Tensor, " edges"]]:
    """Sort edges by (group, receiver, sender); return the pattern and the position of each edge in the input.

    The order depends on the edges alone, not on the order in which they are given, and so do sums over them.
    """
    row = receivers if groups_of is None else groups_of * num_receivers + receivers
    order = _argsort(row * max(num_senders, 1) + senders)
    senders, receivers = senders.index_select(0, order), receivers.index_select(0, order)
    if groups_of is None:
        row, column = receivers, senders
    else:
        groups_of = groups_of[order]
        row, column = row[order], groups_of * num_senders + senders
    by_sender = _argsort(column, groups * num_senders)
    pattern = Pattern(
        senders=senders,
        receivers=receivers,
        groups_of=groups_of,
        offsets=_offsets(row, groups, num_receivers),
        by_sender=by_sender,
        sender_offsets=_offsets(column, groups, num_senders, by_sender),
    )
    return pattern, order


def _argsort(keys: Tensor, end: int | None = None) -> Tensor:
    """The order of integers below ``end``, stable."""
    if not _prefers_numpy(keys):
        return torch.argsort(keys, stable=True)
    if end is not None and end <= 1 << 16:
        # NumPy sorts 16 bits by counting.
        return torch.from_numpy(keys.numpy().astype(np.uint16).argsort(kind="stable"))
    bits = len(keys).bit_length()
    if int(keys.max()) >= 1 << 63 - bits:
        return torch.argsort(keys, stable=True)
    # A key and its position share one number.
    packed = (keys << bits).add_(torch.arange(len(keys), device=keys.device))
    packed.numpy().sort()
    return packed.bitwise_and_((1 << bits) - 1)


def _offsets(rows: Tensor, groups: int, num_rows: int, order: Tensor | None = None) -> Tensor:
    """Where each row starts among the sorted ones; ``order`` sorts them."""
    if _prefers_numpy(rows):
        offsets = functional.pad(torch.bincount(rows, minlength=groups * num_rows).cumsum(0), (1, 0))
    else:
        starts = torch.arange(groups * num_rows + 1, device=rows.device)
        offsets = torch.searchsorted(rows if order is None else rows[order], starts)
    if groups == 1:
        return offsets.unsqueeze(0)
    windows = torch.arange(groups, device=rows.device)[:, None] * num_rows
    return offsets[windows + torch.arange(num_rows + 1, device=rows.device)]


def _prefers_numpy(edges: Tensor) -> bool:
    """Whether sorting and counting is 2 to 6 times faster without ``torch.argsort`` and ``torch.searchsorted``: on the
    CPU, above a thousand edges. While torch traces, there are no values."""
    return not is_traced(edges) and not is_transformed() and edges.device.type == "cpu" and len(edges) > 1000
