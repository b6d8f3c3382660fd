"""Checks of names and values that a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any


def unknown_name(name: Any, choices: Sequence[str]) -> str:
    """What to say of a name that is not one of the choices."""
    # The last part counts too: who writes lr means optim.lr.
    ends = {choice.rpartition(".")[2]: choice for choice in reversed(choices)}
    near = get_close_matches(str(name), choices, n=1)
    near = near or [ends[end] for end in get_close_matches(str(name).rpartition(".")[2], list(ends), n=1)]
    meant = f"; did you mean {near[0]}?" if near else f"; choose from {', '.join(choices)}"
    return f"unknown name {str(name)!r}{meant}"


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
        raise ValueError(f"{name}: expected {said}, got {value!r}")


def at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")
