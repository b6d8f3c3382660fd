"""Sorted edges of an ``edge_index``: computed once, and reused as long as the tensor lives and does not change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from geoskip.graphs.checks import check_edge_index
from geoskip.kernels import Pattern, is_traced, is_transformed, sort_edges

T = TypeVar("T")


class SortedEdges(NamedTuple):
    """Edges in receiver order, and the position that each had in ``edge_index``."""

    pattern: Pattern
    order: Tensor


class _Entry(NamedTuple):
    tensors: list[Callable[[], Tensor | None]]
    versions: list[int]
    value: Any


_MEMO: Any = WeakIdKeyDictionary()


def remember(tensors: tuple[Tensor, ...], key: Hashable, build: Callable[[], T]) -> T:
    """What ``build`` computes from ``tensors``: the last value under ``key``, if the tensors are the same.

    The value is kept as long as the first tensor lives. Changes in place are noticed by version counters, which writing
    through ``.data`` or NumPy avoids. Nothing is kept of tensors that require gradients, of inference tensors, and
    while code is compiled or transformed.
    """
    if not _can_remember(tensors):
        return build()
    entries: dict[Hashable, _Entry] = _MEMO.setdefault(tensors[0], {})
    versions = [tensor._version for tensor in tensors]
    entry = entries.get(key)
    if entry and entry.versions == versions and all(a() is b for a, b in zip(entry.tensors, tensors, strict=True)):
        return entry.value
    value = build()
    entries[key] = _Entry([ref(tensor) for tensor in tensors], versions, value)
    return value


def _can_remember(tensors: tuple[Tensor, ...]) -> bool:
    if is_transformed() or any(is_traced(tensor) for tensor in tensors):
        return False
    return not any(tensor.requires_grad or tensor.is_inference() for tensor in tensors)


def sorted_edges(edge_index: Tensor, num_senders: int, num_receivers: int, flow: str) -> SortedEdges:
    """The edges of an ``edge_index``, sorted; ``flow`` as in PyTorch Geometric's ``MessagePassing``."""

    def build() -> SortedEdges:
        return sort(edge_index, num_senders, num_receivers, flow)

    return remember((edge_index,), ("edges", num_senders, num_receivers, flow), build)


def sort(edge_index: Tensor, num_senders: int, num_receivers: int, flow: str) -> SortedEdges:
    sources, targets = edge_index.long()
    senders, receivers = (sources, targets) if flow == "source_to_target" else (targets, sources)
    check_edge_index(torch.stack([senders, receivers]), max(num_senders, num_receivers))
    return SortedEdges(*sort_edges(senders, receivers, num_senders, num_receivers))


def mean_shares(pattern: Pattern, dtype: torch.dtype) -> Tensor:
    """1 / number of neighbors, for each edge."""
    return pattern.counts[0].to(dtype).reciprocal()[pattern.receivers]
