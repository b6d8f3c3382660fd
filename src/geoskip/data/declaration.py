"""What a data set declares about itself: its name, task, title and options, and how to get it.

Declare one of your own with the decorator :func:`data_set`. Nothing heavy is imported before a set is loaded, so that
the command line can list all options quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_type_hints

from geoskip.registry import import_object

KINDS: tuple[Any, ...] = (int, float, str, bool, Path, list[int], list[str])


class MissingData(FileNotFoundError):
    """Files that the user has to fetch first; the message says from where, and where to put them."""


@dataclass(frozen=True)
class Option:
    """An option of a data set: a keyword argument of its function that commands and configurations can set.

    kind: its type, one of ``KINDS``.
    help: a phrase for the help text.
    default: for the help text.
    least: the smallest number that is accepted.
    required: whether the set cannot be loaded without it.
    is_recipe: whether the data depend on it. A resumed run may change the others: where files are, how many processes.
    """

    name: str
    kind: Any
    help: str = ""
    default: Any = None
    least: int | None = None
    required: bool = False
    is_recipe: bool = True

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def checked(self, value: Any) -> Any:
        """The value as the function takes it; ValueError if it has another type."""
        from geoskip.arguments import check_least, check_value

        check_value(f"data_options.{self.name}", value, self.kind)
        if self.least is not None:
            check_least(f"data_options.{self.name}", value, self.least)
        return expand_path(value) if self.kind is Path else value

    def parsed(self, text: str) -> Any:
        """The value of a flag: ``28,28`` becomes a list, if the option is one."""
        if self.kind not in (list[int], list[str]):
            return text
        try:
            return [get_args(self.kind)[0](word.strip()) for word in text.split(",")]
        except ValueError:
            raise ValueError(f"{self.flag}: expected whole numbers, such as 28,28, got {text!r}") from None


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set, declared but not loaded. Call it as its function: ``faces(people=3)``.

    name: for ``--data``; also the name of its folder in the data folder, and of its kind in the cache.
    task: the task that trains on it.
    title: what it is, in a few words.
    function: returns the set; ``"module:function"`` is imported on first use.
    options: the arguments of the function that commands and configurations can set.
    extra: the extra of geoskip that is needed to make it.
    files: the files that the user has to fetch, best first: an archive as distributed, or what it unpacks to.
    how: how to get them, in a sentence or two.
    comparable: for a built-in set, whether the paper's figures may be shown next to those on it.
    """

    name: str
    task: str
    title: str
    function: Callable[..., Any] | str
    options: tuple[Option, ...] = ()
    extra: str = ""
    files: tuple[str, ...] = ()
    how: str = ""
    comparable: bool = True

    def __call__(self, *args: Any, **options: Any) -> Any:
        function = import_object(self.function) if isinstance(self.function, str) else self.function
        return function(*args, **options)

    @property
    def about(self) -> str:
        """One line for the help text."""
        source = f", read from {self.files[0]}" if self.files else ""
        return f"{self.title}{source}{f' (needs the extra: {self.extra})' if self.extra else ''}."

    def read(self, options: Mapping[str, Any], *folder: Path) -> Any:
        """Load it with the options of a configuration; ValueError names an option that is unknown or does not fit."""
        name, known = str(folder[0]) if folder else self.name, {option.name: option for option in self.options}
        if unknown := [key for key in options if key not in known]:
            raise ValueError(
                f"data_options.{unknown[0]}: {name} has no such option; it has {', '.join(known) or 'none'}"
            )
        for option in self.options:
            if option.required and option.name not in options:
                about = f". {option.help}" if option.help else ""
                raise ValueError(f"data_options.{option.name}: required for {name}{about}")
        checked = {key: known[key].checked(value) for key, value in options.items()}
        try:
            return self(*folder, **checked)
        except ValueError as error:
            # --test is an option of meshes, and --set test a setting of the run.
            if type(error) is not ValueError or str(error).partition(":")[0] not in known:
                raise
            raise ValueError(f"data_options.{error}") from error

    @property
    def folder(self) -> Path:
        """Where its files belong."""
        return data_root() / self.name

    def find(self, path: str | Path | None = None) -> Path:
        """Where its files are: ``path`` if given, otherwise the first of ``files`` that exists; or MissingData."""
        candidates = [Path(path)] if path is not None else [self.folder / name for name in self.files]
        for candidate in candidates:
            if candidate.exists():
                return candidate
        raise MissingData(
            f"{self.title}: not found at {' or '.join(map(str, candidates))}. {self.how} "
            f"Put it at {self.folder / self.files[0]}, or give its path."
        )


IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True, kw_only=True)
class IdxDataSet(DataSet):
    """Images in four IDX files, gzipped or not, as MNIST is distributed.

    url: the folder on the web with the four files.
    """

    image_size: ClassVar[tuple[int, int]] = (28, 28)

    url: str
    how: str = field(init=False)

    def __post_init__(self) -> None:
        files = f"{self.url}/{{{','.join(IDX_FILES)}}}.gz"
        object.__setattr__(self, "how", f"It is downloaded on first use; to do it yourself, fetch {files}.")

    def find(self, path: str | Path | None = None) -> Path:
        return self.find_all(path)[0].parent

    def find_all(self, path: str | Path | None = None) -> list[Path]:
        """The four files, in a folder (or where torchvision keeps them below it); MissingData names missing ones."""
        folder = self.folder if path is None else Path(path)
        paths = [_find_idx(folder, name) for name in IDX_FILES]
        if missing := [name for name, path in zip(IDX_FILES, paths, strict=True) if path is None]:
            fault = f"{self.title}: {', '.join(missing)} not found in {folder}"
            raise MissingData(f"{fault}. {self.how} Put them in that folder.")
        return [path for path in paths if path is not None]


def _find_idx(folder: Path, name: str) -> Path | None:
    folders = (folder, folder / "raw", folder / "MNIST" / "raw", folder / "FashionMNIST" / "raw")
    spellings = (name, f"{name}.gz", name.replace("-idx", ".idx"))
    candidates = (below / spelling for below in folders for spelling in spellings)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def data_set(*, task: str, title: str, name: str = "", **facts: Any) -> Callable[[Callable[..., Any]], DataSet]:
    """Declare the decorated function as a data set.

    Its keyword arguments become the options: their types and defaults are taken from its signature.

    Args:
        task: the task that trains on it: ``"reconstruction"`` for a function that returns a ``MeshSet``,
            ``"correspondence"`` for a ``CorrespondenceSet``, ``"classification"`` for a ``GraphSet``, or your own task.
        title: what it is, in a few words.
        name: by default the name of the function, with ``-`` for ``_``.
        facts: the other facts that :class:`DataSet` describes: ``extra``, ``files``, ``how``, ``options``.
    """

    def declare(function: Callable[..., Any]) -> DataSet:
        declared = DataSet(
            name=name or function.__name__.replace("_", "-"), task=task, title=title, function=function, **facts
        )
        return declared if declared.options else replace(declared, options=options_of(function))

    return declare


def options_of(function: Callable[..., Any]) -> tuple[Option, ...]:
    """The arguments of a function whose annotated types are those of options."""
    hints = get_type_hints(function)
    parameters = [(p, _without_none(hints.get(p.name))) for p in signature(function).parameters.values()]
    return tuple(
        Option(p.name, kind, default=None if p.default is Parameter.empty else p.default, required=p.default is p.empty)
        for p, kind in parameters
        if kind in KINDS
    )


def _without_none(kind: Any) -> Any:
    """``Path`` of ``Path | None``."""
    others = [part for part in get_args(kind) if part is not NoneType]
    return others[0] if isinstance(kind, UnionType) and len(others) == 1 else kind


def data_root() -> Path:
    """``$GEOSKIP_DATA``, or ``geoskip`` in the user's data folder (``$XDG_DATA_HOME`` or ``~/.local/share``)."""
    return user_folder("GEOSKIP_DATA", "XDG_DATA_HOME", ".local/share")


def user_folder(variable: str, xdg_variable: str, default: str) -> Path:
    if chosen := os.environ.get(variable):
        return expand_path(chosen)
    xdg = Path(os.environ.get(xdg_variable, ""))
    return (xdg if xdg.is_absolute() else Path.home() / default) / "geoskip"


def expand_path(path: str | Path) -> Path:
    """The path with ``~`` and ``~name`` replaced by home folders.

    Unlike pathlib, it accepts ``~name`` without such a user as an ordinary name, as a shell does.
    """
    return Path(os.path.expanduser(path))
