"""Sorted edges of an ``edge_index``: computed once, and reused as long as the tensor lives and does not change."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar
from weakref import finalize, ref

import torch
from torch import Tensor

from geoskip.graphs.checks import check_edge_index, check_indices
from geoskip.kernels import Pattern, is_traced, is_transformed, sort_edges
from geoskip.kernels.branches import keep
from geoskip.kernels.paths import current_recording

T = TypeVar("T")


class SortedEdges(NamedTuple):
    """Edges in receiver order, and the position that each had in ``edge_index``."""

    pattern: Pattern
    order: Tensor


class _Entry(NamedTuple):
    tensors: list[Callable[[], Tensor | None]]
    versions: list[int]
    value: Any

    def fits(self, tensors: tuple[Tensor, ...]) -> bool:
        for given, remembered, version in zip(tensors, self.tensors, self.versions, strict=True):
            if given is not remembered() or given._version != version or given.requires_grad:
                return False
        return True


# So many values are kept of one tensor: more than the layers of a model need, but keys may contain a number that
# changes in every call, such as an ε that decays.
MOST = 32
# Under the identity of a tensor, as long as it lives. A WeakIdKeyDictionary takes longer than a kernel.
_MEMO: dict[int, dict[Hashable, _Entry]] = {}


def remember(tensors: tuple[Tensor, ...], key: Hashable, build: Callable[[], T]) -> T:
    """What ``build`` computes from ``tensors``: the last value under ``key``, if the tensors are the same.

    The value is kept as long as the first tensor lives, unless there are many newer ones of it. Changes in place are
    noticed by version counters, which writing through ``.data`` or NumPy avoids. Nothing is kept of tensors that
    require gradients, of inference tensors, while code is compiled or transformed, and while launches are recorded,
    because edges are not checked then.
    """
    if is_traced():
        return build()
    first = tensors[0]
    entries = _MEMO.get(id(first))
    if entries is not None:
        entry = entries.get(key)
        if entry is not None and entry.fits(tensors):
            return keep(entry.value)
    if not _can_remember(tensors):
        return build()
    # A value that is first needed in inference mode must also serve training.
    with torch.inference_mode(False):
        value = build()
    if entries is None:
        entries = _MEMO.setdefault(id(first), {})
        finalize(first, _MEMO.pop, id(first), None).atexit = False
    if len(entries) >= MOST and key not in entries:
        entries.pop(list(entries)[0], None)  # noqa: RUF015 (another thread may add one in the middle of an iteration)
    entries[key] = _Entry([ref(tensor) for tensor in tensors], [tensor._version for tensor in tensors], value)
    return value


def _can_remember(tensors: tuple[Tensor, ...]) -> bool:
    if is_transformed() or current_recording() is not None or any(is_traced(tensor) for tensor in tensors):
        return False
    return not any(tensor.requires_grad or tensor.is_inference() for tensor in tensors)


def sorted_edges(edge_index: Tensor, num_senders: int, num_receivers: int, flow: str) -> SortedEdges:
    """The edges of an ``edge_index``, sorted; ``flow`` as in PyTorch Geometric's ``MessagePassing``."""

    def build() -> SortedEdges:
        return sort(edge_index, num_senders, num_receivers, flow)

    return remember((edge_index,), ("edges", num_senders, num_receivers, flow), build)


def sort(edge_index: Tensor, num_senders: int, num_receivers: int, flow: str, are_valid: bool = False) -> SortedEdges:
    """:func:`sorted_edges` without the cache; edges that ``are_valid`` are not checked, which waits for the GPU."""
    sources, targets = edge_index.long()
    senders, receivers = (sources, targets) if flow == "source_to_target" else (targets, sources)
    if not are_valid:
        check_edge_index(edge_index, max(num_senders, num_receivers))
        if num_senders != num_receivers:
            check_indices("senders of edge_index", senders, num_senders)
            check_indices("receivers of edge_index", receivers, num_receivers)
    return SortedEdges(*sort_edges(senders, receivers, num_senders, num_receivers))


def mean_shares(pattern: Pattern, dtype: torch.dtype, num_loops: int = 0) -> Tensor:
    """1 / number of neighbors, for each edge; ``num_loops`` edges of each vertex do not count."""
    return (pattern.counts[0] - num_loops).to(dtype).reciprocal()[pattern.receivers]


def looped_edges(edge_index: Tensor, num_vertices: int, flow: str) -> SortedEdges:
    """The edges and one more self-loop for each vertex; its position is after those of all edges."""
    check_edge_index(edge_index, num_vertices)
    loops = torch.arange(num_vertices, device=edge_index.device).expand(2, -1)
    return sort(torch.cat([edge_index, loops], dim=1), num_vertices, num_vertices, flow, are_valid=True)
