"""The peak memory of a training step, estimated without allocating any of it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from geoskip.graphs import map_tensors
from geoskip.kernels import use_path
from geoskip.training.learner import DTYPES
from geoskip.training.tasks.base import Task


def estimate_step_memory(task: Task) -> int:
    """Bytes that forward, loss and backward of one full batch hold at their peak on CUDA, above the model, the
    optimizer's state and the batch.

    The step runs on fake tensors, which have shapes but no memory: nothing is allocated and nothing is computed. What
    a kernel allocates inside itself (partial sums, for instance) is not counted.
    """
    batch = task.batch(torch.arange(min(task.config.optim.batch_size, task.num_items)))
    dtype = DTYPES.get(task.config.precision)
    # Before tensors are fake: what the task derives from its data when it builds a model.
    task.meta_model()
    # The kernels of CUDA, whatever device there is: their shapes are known without running them.
    with use_path("interpreter"), FakeTensorMode(allow_non_fake_inputs=True) as fake:
        model = task.make_model().train()
        batch = map_tensors(batch, fake.from_tensor)
        tracker = StorageTracker([*model.parameters(), *model.buffers(), *tensors_in(batch)])
        with tracker:
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = task.loss(model, batch)
            loss.backward()
    return tracker.peak


class StorageTracker(TorchDispatchMode):
    """Follows the memory of tensors that operations create: ``live`` bytes now, ``peak`` bytes at most. The memory of
    ``known`` tensors is not counted."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        # Storages are compared by identity; while this one is alive, nothing else has its id.
        self._known = {id(storage): storage for storage in (tensor.untyped_storage() for tensor in known)}
        self._counted: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._known or id(storage) in self._counted:
            return
        self._counted.add(id(storage))
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, id(storage), storage.nbytes())

    def _release(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self.live -= size


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in a nest of tuples, lists, dictionaries and records."""
    if isinstance(value, Tensor):
        return [value]
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for inner in value for tensor in tensors_in(inner)] if isinstance(value, list | tuple) else []
