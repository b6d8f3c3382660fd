"""Records of tensors: moved as a whole, kept in a module's buffers, seen by torch as trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

T = TypeVar("T")


def register_record(cls: type[T]) -> type[T]:
    """Class decorator: let torch see the fields of a frozen dataclass. Private fields start afresh."""
    names = [f.name for f in fields(cast(Any, cls)) if not f.name.startswith("_")]
    pytree.register_pytree_node(
        cls,
        lambda record: ([getattr(record, name) for name in names], None),
        lambda values, _: cls(**dict(zip(names, values, strict=True))),
        serialized_type_name=f"geoskip.{cls.__name__}",
        flatten_with_keys_fn=lambda record: (
            [(pytree.GetAttrKey(name), getattr(record, name)) for name in names],
            None,
        ),
        to_dumpable_context=lambda context: context,
        from_dumpable_context=lambda context: context,
    )
    return cls


def map_tensors(record: T, function: Callable[[Tensor], Tensor]) -> T:
    """The same record with ``function`` applied to every tensor in it."""
    return pytree.tree_map_only(Tensor, function, record)


def move(record: T, *args: Any, **kwargs: Any) -> T:
    """As ``Tensor.to`` for a whole record; a dtype changes floating-point tensors alone, as in modules."""
    device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)

    def one(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None, non_blocking)

    return map_tensors(record, one)


class Held(nn.Module, Generic[T]):
    """A record held by a module: its tensors are buffers, so ``.to()`` and checkpoints carry them.

    ``held()`` gives the record back. It is rebuilt when the buffers change, and only then, so that what a graph
    remembers (its Laplacian, say) stays with it.
    """

    def __init__(self, record: T) -> None:
        super().__init__()
        if not is_dataclass(record):
            raise TypeError(f"Held: expected a record such as a Graph, got {type(record).__name__}")
        self._record: T = record
        paths, _ = pytree.tree_flatten_with_path(record)
        self._leaves = [(_name(path), None if isinstance(leaf, Tensor) else leaf) for path, leaf in paths]
        for path, leaf in paths:
            if isinstance(leaf, Tensor):
                self.register_buffer(_name(path), leaf)
        self.register_load_state_dict_post_hook(lambda module, _: module._rebuild())

    def _rebuild(self) -> None:
        leaves = [self._buffers.get(name, leaf) for name, leaf in self._leaves]
        # The tree is asked for anew: kept in the module, every deepcopy would copy it, and torch warns of that.
        self._record = pytree.tree_unflatten(leaves, pytree.tree_structure(self._record))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Held[T]:
        super()._apply(fn, recurse)
        self._rebuild()
        return self

    def forward(self) -> T:
        return self._record


def _name(path: tuple[Any, ...]) -> str:
    return "__".join(str(getattr(key, "name", getattr(key, "idx", key))) for key in path)
