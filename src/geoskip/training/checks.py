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
    "Mapping[str, Any]": ((Mapping,), "names with values"),
    "Optim": ((object,), "names with values"),
}


def check_types(record: Any, prefix: str = "") -> None:
    for entry in fields(record):
        value = getattr(record, entry.name)
        types, said = KINDS[str(entry.type)]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(f"{prefix}{entry.name}: expected {said}, got {value!r}")


def at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")
