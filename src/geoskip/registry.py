"""Registries: how operators, skips, tasks and data sets are found by name.

A registry knows three kinds of names, in this order:

- a built-in or registered name, such as ``monet``;
- an entry point of an installed package, such as ``myconv`` with ``[project.entry-points."geoskip.operators"]``;
- ``module:Name``, such as ``mypackage.conv:MyConv``, which is imported.

The name is stored in the configuration of a run exactly as it was given, so that another process can find the same
class again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, Generic, TypeVar

__all__ = ["Registry", "check_choice", "check_names", "import_object", "lazy_names", "unknown_name"]

# Error messages list all choices if there are so few.
FEW = 6

T = TypeVar("T")
Entry = TypeVar("Entry")


class Registry(Generic[T]):
    """Classes (or other objects) of one kind by name.

    Args:
        kind: what an entry is, in error messages: ``"operator"``.
        entries: built-in entries. A string ``"module:Name"`` is imported when it is first used.
        entry_points: the group of entry points that other packages can use.
        attribute: the class attribute that holds the name of a registered class.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, T | str] | None = None,
        *,
        entry_points: str,
        attribute: str = "name",
    ) -> None:
        self.kind = kind
        self.group = entry_points
        self._attribute = attribute
        self._entries: dict[str, T | str] = dict(entries or {})

    def register(self, entry: Entry) -> Entry:
        """Add a class under the name it declares. Use it as a decorator."""
        name = getattr(entry, self._attribute, "")
        if not isinstance(name, str) or not name or ":" in name:
            raise ValueError(f"{self._attribute}: {entry!r} must declare a name without a colon, got {name!r}")
        if self._entries.get(name, entry) is not entry:
            raise ValueError(f"{self._attribute}: the {self.kind} {name!r} exists already; choose another name")
        self._entries[name] = entry  # type: ignore[assignment]
        return entry

    def names(self) -> tuple[str, ...]:
        """All names, sorted; classes that are given as ``module:Name`` are not among them."""
        return tuple(sorted({*self._entries, *self._installed()}))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._entries or name in self._installed())

    def get(self, name: str) -> T:
        """The entry of a name; ValueError if there is none."""
        if not isinstance(name, str):
            raise ValueError(f"{self.kind}: {unknown_name(name, self.names())}")
        if name in self._entries:
            entry = self._entries[name]
            if not isinstance(entry, str):
                return entry
            self._entries[name] = loaded = self._import(entry)
            return loaded
        if (installed := self._installed().get(name)) is not None:
            return self._load(name, installed.load)
        if ":" in name:
            return self._import(name)
        raise ValueError(f"{self.kind}: {unknown_name(name, self.names())}")

    def _import(self, path: str) -> T:
        return self._load(path, lambda: import_object(path))

    def _load(self, name: str, load: Callable[[], Any]) -> T:
        try:
            return load()
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{self.kind}: cannot import {name!r} ({error}). Write it as module:Name, where the module is "
                "installed or in a folder on PYTHONPATH"
            ) from error

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}


def import_object(path: str) -> Any:
    """The object that ``module:Name`` names."""
    module, _, name = path.partition(":")
    return attrgetter(name)(import_module(module))


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names are imported when they are first used, so
    that the command line need not load torch.

    modules: the public names of each module of the package, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    public = sorted(module_of)

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return public, load, lambda: public


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """ValueError that starts with ``name``, unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}: {unknown_name(value, choices)}")


def check_names(given: Iterable[str], known: Sequence[str], prefix: str = "") -> None:
    """ValueError for a setting that is not among the known ones; ``prefix`` is the group of settings, with a dot."""
    for name in given:
        check_choice(f"{prefix}{name}", name, known)


def unknown_name(name: object, choices: Sequence[str]) -> str:
    """The error message for a name that is not one of the choices; it suggests a similar one."""
    if not isinstance(name, str):
        return f"expected a name, got {name!r:.80}; choose from {', '.join(choices)}"
    group, dot, last = name.rpartition(".")
    # optim.learning_rate is compared with the settings of optim alone.
    in_group = [choice for choice in choices if dot and choice.startswith(group + dot)]
    choices = in_group or choices
    # The last part of a dotted name counts too: lr is close to optim.lr.
    ends = {choice.rpartition(".")[2]: choice for choice in reversed(choices)}
    near = [] if in_group else get_close_matches(name, choices, n=1)
    near = near or [ends[end] for end in get_close_matches(last, list(ends), n=1)]
    listed = ", ".join(choices)
    advice = f"did you mean {near[0]}?" if near else f"choose from {listed}"
    if near and len(choices) <= FEW:
        advice += f" ({listed})"
    return f"unknown name {name!r:.200}; {advice}"
