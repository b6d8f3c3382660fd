"""Checks of arguments. Each error starts with the argument's name and says what was expected and what was given."""

from __future__ import annotations

import math
import operator
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from inspect import isclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

__all__ = [
    "as_whole",
    "check_arguments",
    "check_fields",
    "check_items",
    "check_least",
    "check_type",
    "check_value",
    "number_array",
    "real_number",
    "short_repr",
    "whole_number",
    "whole_numbers",
]


def whole_number(name: str, value: Any, owner: str, least: int | None = 1) -> int:
    """``value`` as an int: integers of Python, NumPy and torch, but no floats and no bools."""
    number = as_whole(value)
    if number is None or (least is not None and number < least):
        error = TypeError if number is None else ValueError
        bound = "" if least is None else f" of at least {least}"
        raise error(f"{name}: {owner} needs a whole number{bound}, got {short_repr(value)}")
    if abs(number) >= 2**63:
        raise ValueError(f"{name}: {owner} needs a whole number of 64 bits, got {short_repr(value)}")
    return number


def as_whole(value: Any) -> int | None:
    """``value`` as an int, or ``None`` if it is not a whole number."""
    if type(value) is int:  # first, as torch traces it
        return value
    try:
        return None if _is_bool(value) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def whole_numbers(name: str, values: Any, owner: str, least: int | None = 1) -> tuple[int, ...]:
    """As :func:`whole_number`, for each of several."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, dict)):
        raise TypeError(f"{name}: {owner} needs a sequence of whole numbers, got {short_repr(values)}")
    return tuple(whole_number(name, value, owner, least) for value in values)


def real_number(name: str, value: Any, owner: str) -> float:
    """``value`` as a finite float."""
    try:
        number = None if _is_bool(value) or isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None:
        raise TypeError(f"{name}: {owner} needs a number, got {short_repr(value)}")
    if not math.isfinite(number):
        raise ValueError(f"{name}: {owner} needs a finite number, got {number}")
    return number


def check_least(name: str, value: int | None, least: int) -> None:
    """A number that is given is not below ``least``."""
    if value is not None and value < least:
        raise ValueError(f"{name}: expected {least} or more, got {value}")


def check_type(name: str, value: Any, expected: type, advice: str = "") -> None:
    """``value`` is an instance of ``expected``."""
    if not isinstance(value, expected):
        article = "an" if expected.__name__[0] in "AEIOU" else "a"
        raise TypeError(
            f"{name}: expected {article} {expected.__name__}, got {short_repr(value)}{advice and '; ' + advice}"
        )


def check_items(name: str, values: Any, expected: type) -> None:
    """``values`` is a sequence of instances of ``expected``."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{name}: expected a list of {expected.__name__} records, got {short_repr(values)}")
    for position, value in enumerate(values):
        check_type(f"{name}[{position}]", value, expected)


def number_array(name: str, value: Any, kinds: str, dim: int) -> np.ndarray:
    """``value`` as a NumPy array of ``dim`` dimensions; ``kinds`` are those of its dtype: i, u, f.

    Tensors and lists of numbers are converted.
    """
    if getattr(value, "is_meta", False):
        raise ValueError(f"{name}: is a meta tensor, which has no values")
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}: expected an array of numbers, got {short_repr(value)}") from None
    if array.dtype.kind not in kinds and array.size:
        expected = "numbers" if "f" in kinds else "whole numbers"
        raise TypeError(f"{name}: expected an array of {expected}, got {short_repr(value)} of dtype {array.dtype}")
    if array.ndim != dim:
        raise ValueError(f"{name}: expected an array of {dim} dimensions, got shape {list(array.shape)}")
    return array


def short_repr(value: Any) -> str:
    """A value for an error message: in full if that is short, else its type."""
    if value is None or isinstance(value, (bool, int, float, complex, str, np.generic)):
        text = repr(value)
        if len(text) <= 40:
            return text
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    return f"{name} of shape {list(shape)}" if shape is not None and hasattr(value, "dtype") else name


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or "bool" in str(getattr(value, "dtype", ""))


WORDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path", types.NoneType: "none"
}  # fmt: skip


def check_arguments(function: Any, given: Mapping[str, Any], prefix: str = "") -> None:
    """ValueError, naming the argument, unless every value fits the annotation of the parameter of its name.

    ``function`` may be a class: then its constructor counts.
    """
    hints = get_type_hints(function.__init__ if isclass(function) else function)
    for name, value in given.items():
        if name in hints:
            check_value(f"{prefix}{name}", value, hints[name])


def check_fields(record: Any, prefix: str = "") -> None:
    """The same for the fields of a dataclass."""
    for name, hint in get_type_hints(type(record)).items():
        check_value(f"{prefix}{name}", getattr(record, name), hint)


def check_value(name: str, value: Any, hint: Any) -> None:
    """ValueError, naming the value, unless it fits a type hint."""
    if not fits(value, hint):
        expected = describe_hint(hint)
        brackets = "list" in expected and isinstance(value, str) and re.fullmatch(r"[\d,. ]{,50}", value)
        advice = f"; write it in brackets, [{value}]" if brackets else ""
        raise ValueError(f"{name}: expected {expected}, got {value!r:.200}{advice}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits a type hint; lists count as tuples and text as paths, which JSON does not have."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is tuple:
        hints = (inner[0],) * len(value) if inner[1:] == (...,) and isinstance(value, list | tuple) else inner
        return isinstance(value, list | tuple) and len(value) == len(hints) and all(map(fits, value, hints))
    if origin in (Sequence, list):
        return isinstance(value, Sequence) and not isinstance(value, str) and all(fits(one, inner[0]) for one in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(one, inner[1]) for one in value.values())
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    return isinstance(value, str | Path if hint is Path else origin or hint)


def describe_hint(hint: Any) -> str:
    """A type hint in words: ``a list of texts or none``."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_hint(one) for one in inner))
    if origin in (tuple, Sequence, list):
        return f"a list of {describe_hint(inner[0]).removeprefix('a ')}s"
    if origin is Mapping:
        return "names with values"
    return WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")
