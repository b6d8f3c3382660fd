"""Checks of names and values that a user gives."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "int | None": ((int, type(None)), "a whole number or none"),
    "float": ((float, int), "a number"),
    "bool | None": ((bool, type(None)), "true, false or none"),
    "Sequence[int]": ((list, tuple), "whole numbers, such as [32,64]"),
    "Mapping[str, Any]": ((Mapping,), "names with values"),
    "Optim": ((object,), "names with values"),
}


def check_types(record: Any, prefix: str = "") -> None:
    for entry in fields(record):
        check_type(f"{prefix}{entry.name}", getattr(record, entry.name), str(entry.type))


def check_type(name: str, value: Any, kind: str) -> None:
    """ValueError unless the value is of a kind, one of ``KINDS``, as annotations write it."""
    types, said = KINDS[kind]
    fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not fits or (kind == "Sequence[int]" and any(type(entry) is not int for entry in value)):
        raise ValueError(f"{name}: expected {said}, got {value!r:.200}")


def at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")


WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", types.NoneType: "none"}


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any], prefix: str = "") -> None:
    """ValueError, naming the argument, unless every value fits the annotation of the parameter of its name."""
    hints = get_type_hints(function)
    for name, value in given.items():
        if name in hints and not fits(value, hints[name]):
            raise ValueError(f"{prefix}{name}: expected {described(hints[name])}, got {value!r:.200}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a kind; lists count as tuples, which JSON does not have."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is tuple:
        kinds = (inner[0],) * len(value) if inner[1:] == (...,) and isinstance(value, list | tuple) else inner
        return isinstance(value, list | tuple) and len(value) == len(kinds) and all(map(fits, value, kinds))
    if origin is Sequence:
        return isinstance(value, Sequence) and not isinstance(value, str) and all(fits(one, inner[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def described(hint: Any) -> str:
    """A kind in words: ``a list of texts or none``."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(one) for one in inner))
    if origin in (tuple, Sequence):
        return f"a list of {described(inner[0]).removeprefix('a ')}s"
    return WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")
