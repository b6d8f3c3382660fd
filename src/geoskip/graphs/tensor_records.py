"""Records of tensors: moved as a whole, registered as pytrees, kept in the buffers of a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from operator import is_
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

T = TypeVar("T")


def register_record(cls: type[T]) -> type[T]:
    """Class decorator: register a frozen dataclass as a pytree. Private fields get their default value."""
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
    # Records contain only tensors, so torch.load may read them, also as example inputs of an exported program.
    torch.serialization.add_safe_globals([cls])
    return cls


def map_tensors(record: T, function: Callable[[Tensor], Tensor]) -> T:
    """The same record with ``function`` applied to every tensor in it."""
    return pytree.tree_map_only(Tensor, function, record)


def move(record: T, *args: Any, **kwargs: Any) -> T:
    """Like ``Tensor.to`` for a whole record; a dtype changes only floating-point tensors, as in modules."""
    device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)

    def one(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None, non_blocking)

    return map_tensors(record, one)


class RecordBuffers(nn.Module, Generic[T]):
    """Keeps a copy of a record, such as a :class:`~geoskip.graphs.Graph`, in the buffers of a module.

    ``.to()`` and ``state_dict()`` include the buffers, and calling the module returns the record. The tensors are
    copies, so the module never changes the original record, or another module with a copy of it.

    ``load_state_dict`` loads floating-point values. Indices are the topology and must be the same as in the module:
    loading weights that were saved for another topology is an error.

    Do not assign it to an attribute called ``graph``: ``torch.export`` cannot run a program with a submodule of that
    name.
    """

    def __init__(self, record: T) -> None:
        super().__init__()
        if not is_dataclass(record):
            raise TypeError(f"RecordBuffers: expected a record such as a Graph, got {type(record).__name__}")
        paths, _ = pytree.tree_flatten_with_path(record)
        for path, leaf in paths:
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                raise ValueError(
                    f"{_name(path)}: requires gradients, but a model keeps a constant copy of its graph. Detach it, or "
                    "pass the graph each time you call the model or its layers"
                )
        self._record: T = map_tensors(record, torch.clone)
        self._leaves = {_name(path): leaf for path, leaf in pytree.tree_flatten_with_path(self._record)[0]}
        for name, leaf in self._leaves.items():
            if isinstance(leaf, Tensor):
                self.register_buffer(name, leaf)
        self._tensors = list(self._buffers.values())

    def forward(self) -> T:
        # Buffers can be replaced from outside, for example by torch.func.functional_call.
        if not torch.compiler.is_compiling():
            self._update_record()
        return self._record

    def _update_record(self) -> None:
        """Rebuild the record if a buffer is a different tensor than before. Otherwise keep it, with what it cached."""
        if all(map(is_, self._buffers.values(), self._tensors)):
            return
        self._leaves = {name: self._buffers.get(name, leaf) for name, leaf in self._leaves.items()}
        self._tensors = list(self._buffers.values())
        # The structure is not stored in the module, because torch warns when deepcopy copies one.
        self._record = pytree.tree_unflatten(list(self._leaves.values()), pytree.tree_structure(self._record))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecordBuffers[T]:
        # Tensors created in inference mode have no version counter, which graphs need.
        with torch.inference_mode(False):
            super()._apply(fn, recurse)
        self._update_record()
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        errors: list[str] = rest[-1]
        kept, differences = self._compare(state_dict, prefix)
        if differences:
            errors.append(
                f"{prefix.rstrip('.') or 'record'}: the weights were saved for another topology of the same size "
                f"({differences[0]}). Build the model with the topology of the weights, or, to keep that of the model, "
                f'drop the keys that start with "{prefix}" and load with strict=False.'
            )
            kept = {prefix + name for name in self._buffers}
        # Equal values are not written: a captured CUDA graph may be reading this memory.
        others = {key: value for key, value in state_dict.items() if key not in kept}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, *rest)
        missing[:] = [key for key in missing if key not in kept]
        self._update_record()

    def _compare(self, state_dict: dict[str, Any], prefix: str) -> tuple[set[str], list[str]]:
        """The keys of ``state_dict`` that need no loading, and which indices differ from those of the module."""
        kept, differences = set(), []
        for name, own in self.named_buffers(remove_duplicate=False):
            given = state_dict.get(prefix + name)
            # A missing tensor or one of another shape is an error that nn.Module reports.
            if given is None or given.shape != own.shape or given.is_meta or own.is_meta:
                continue
            changed = int((given.to(own) != own).sum())
            if not changed:
                kept.add(prefix + name)
            elif not own.is_floating_point():
                differences.append(f"{name} differs in {changed:,} of {own.numel():,} entries")
        return kept, differences


def record_keys(model: nn.Module) -> set[str]:
    """The keys in ``model.state_dict()`` of the records of ``model``, which training does not change."""
    kept = [(path, part) for path, part in model.named_modules() if isinstance(part, RecordBuffers)]
    return {f"{path}.{name}".removeprefix(".") for path, part in kept for name in part.state_dict()}


def _name(path: tuple[Any, ...]) -> str:
    return "__".join(str(getattr(key, "name", getattr(key, "idx", key))) for key in path)


def record_from_buffers(kind: type[T], buffers: Mapping[str, Tensor], prefix: str) -> T:
    """The record that a :class:`RecordBuffers` module stored in a ``state_dict``; KeyError names a missing tensor.

    ``prefix`` is the name of the module and a dot. The record is not checked, see
    :func:`~geoskip.graphs.validation.check_hierarchy`.
    """
    hints = get_type_hints(kind)
    names = [entry.name for entry in fields(cast(Any, kind)) if entry.init]
    return kind(**{name: _field_from_buffers(hints[name], buffers, prefix + name) for name in names})


def _field_from_buffers(hint: Any, buffers: Mapping[str, Tensor], name: str) -> Any:
    if get_origin(hint) is tuple:
        parts: list[Any] = []
        while any(key.startswith(f"{name}__{len(parts)}__") for key in buffers):
            parts.append(record_from_buffers(get_args(hint)[0], buffers, f"{name}__{len(parts)}__"))
        return tuple(parts)
    if is_dataclass(hint):
        return record_from_buffers(cast(Any, hint), buffers, f"{name}__")
    if name not in buffers and type(None) not in get_args(hint):
        raise KeyError(name)
    return buffers.get(name)
