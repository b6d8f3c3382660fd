"""The options of data sets as flags: ``geoskip data make`` and ``geoskip train`` offer the same ones."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.data.catalog import OPTIONS
from geoskip.data.declaration import Option

TYPED = (int, float, str, bool, Path)


def offering(options: Iterable[Option], function: Callable[..., None], panel: str | None = None) -> Callable[..., None]:
    """The command with a flag for each option instead of its ``**`` argument, which gets them; None where not given."""
    own = [entry for entry in signature(function).parameters.values() if entry.kind is not Parameter.VAR_KEYWORD]
    taken = {entry.name for entry in own}
    added = [_parameter(option, flag_of(option, taken), panel) for option in options]

    def command(**values: Any) -> None:
        function(**values)

    command.__doc__ = function.__doc__
    vars(command)["__signature__"] = signature(function).replace(
        parameters=[entry.replace(kind=Parameter.KEYWORD_ONLY) for entry in [*own, *added]]
    )
    command.__annotations__ = {entry.name: entry.annotation for entry in [*own, *added]}
    return command


def given_options(options: Iterable[Option], values: Mapping[str, Any], taken: Iterable[str] = ()) -> dict[str, Any]:
    """The options that were given, as a configuration keeps them."""
    taken, found = set(taken), {}
    for option in options:
        value = values.get(flag_of(option, taken))
        if value is not None:
            parsed = option.parsed(value) if isinstance(value, str) else value
            found[option.name] = str(parsed) if isinstance(parsed, Path) else parsed
    return found


def flag_of(option: Option, taken: Iterable[str] = ()) -> str:
    """The name of its parameter: ``data_seed`` where the command has a seed of its own."""
    return f"data_{option.name}" if option.name in taken else option.name


def train_command(task: str, data: str, given: Mapping[str, Any]) -> str:
    """The command that trains on a data set with these options."""
    from geoskip.cli.train import OWN

    words = ["geoskip", "train", task, "--data", data]
    for name, value in given.items():
        if name not in OPTIONS:
            words += ["--set", f"data_options.{name}={json.dumps(value)}"]
            continue
        flag = f"data-{name}" if name in OWN else name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def _parameter(option: Option, name: str, panel: str | None) -> Parameter:
    flag = name.replace("_", "-")
    flags = f"--{flag}/--no-{flag}" if option.kind is bool else f"--{flag}"
    default = False if option.default is None else str(option.default)
    about = typer.Option(flags, help=f"{option.help}.", min=option.least, show_default=default, rich_help_panel=panel)
    kind: Any = option.kind if option.kind in TYPED else str
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, about])
