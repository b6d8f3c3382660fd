"""Options that several commands share, and the options of data sets as flags."""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.data.declaration import Option

RunFolder = Annotated[Path, typer.Argument(help="Folder of a trained run.", show_default=False)]
OutputFolder = Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.", show_default=False)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
MovedData = Annotated[str | None, typer.Option("--data", help="Where the data are now, if they have moved.")]


class Axis(StrEnum):
    """The axis that points up."""

    y = "y"
    z = "z"


UpAxis = Annotated[Axis, typer.Option(help="The axis that points up in the pictures.")]


def check_overwrite(path: Path, force: bool) -> None:
    """ValueError if a file exists and may not be overwritten."""
    if path.is_file() and not force:
        raise ValueError(f"{path}: already exists; choose another file with -o, or overwrite it with --force")


def parse_integers(option: str, text: str, example: str = "4,2") -> list[int]:
    """Positive integers separated by commas; ``option`` is named in the error."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        message = f"expected positive integers separated by commas, such as {example}, got {text!r}"
        raise typer.BadParameter(message, param_hint=option)
    return numbers


def with_data_flags(
    function: Callable[..., None],
    options: Iterable[Option],
    *,
    panel: str | None = None,
    hidden: Collection[str] = (),
    without: Collection[str] = (),
) -> Callable[..., None]:
    """The command with a flag for each option of a data set instead of its ``**`` argument, which receives them.

    hidden: options that the help leaves out.
    without: parameters of the function that the command does not have.
    """
    own = [
        entry
        for entry in signature(function).parameters.values()
        if entry.kind is not Parameter.VAR_KEYWORD and entry.name not in without
    ]
    taken = {entry.name for entry in own}
    parameters = own + [
        _parameter(option, parameter_name(option, taken), panel, option.name in hidden) for option in options
    ]

    def command(**values: Any) -> None:
        function(**values)

    command.__doc__ = function.__doc__
    command.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    vars(command)["__signature__"] = signature(function).replace(
        parameters=[entry.replace(kind=Parameter.KEYWORD_ONLY) for entry in parameters]
    )
    return command


def given_options(options: Iterable[Option], values: Mapping[str, Any], taken: Collection[str] = ()) -> dict[str, Any]:
    """The options of a data set that were given, as a configuration stores them."""
    given = {}
    for option in options:
        value = values.get(parameter_name(option, taken))
        if value is not None:
            parsed = option.parsed(value) if isinstance(value, str) else value
            given[option.name] = str(parsed) if isinstance(parsed, Path) else parsed
    return given


def parameter_name(option: Option, taken: Collection[str] = ()) -> str:
    """The name of an option's parameter: ``data_seed`` if the command has another ``seed``."""
    return f"data_{option.name}" if option.name in taken else option.name


def _parameter(option: Option, name: str, panel: str | None, hidden: bool) -> Parameter:
    flag = name.replace("_", "-")
    flags = f"--{flag}/--no-{flag}" if option.kind is bool else f"--{flag}"
    default = False if option.default is None else str(option.default)
    about = typer.Option(
        flags, help=f"{option.help}.", min=option.least, show_default=default, rich_help_panel=panel, hidden=hidden
    )
    kind: Any = option.kind if option.kind in (int, float, str, bool, Path) else str
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, about])
