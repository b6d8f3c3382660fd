"""What commands show on the terminal: errors as one line, the log, tables."""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from geoskip.training.signals import Interrupted

# What the package raises for bad input. MeshError is a ValueError, a missing extra an ImportError.
INPUT_ERRORS = (ValueError, TypeError, ImportError)
# A damaged file may contain a value of any length.
MAX_CHARACTERS = 1000
# What a message of geoskip starts with, if it is about an argument or a setting.
SETTING = re.compile(r"[a-z_][a-z_.]{,60}")
# Where the contexts of nested commands, which share their ``meta``, store the command that was called last.
CALLED = "geoskip.cli.called"


class CommandGroup(TyperGroup):
    """A group that lists its commands if an unknown one is called. Typer suggests a similar one itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if self.get_command(ctx, args[0]) is None and not get_close_matches(args[0], names):
            ctx.fail(f"No such command {args[0]!r}; there are {', '.join(names)}.")
        resolved = super().resolve_command(ctx, args)
        ctx.meta[CALLED] = resolved[1]
        return resolved


class MainGroup(CommandGroup):
    """The group of all commands. Bad input ends with one line and exit code 2; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # both are RuntimeErrors
            raise
        except Interrupted as interrupted:
            typer.echo(f"geoskip: {interrupted}", err=True)
            raise typer.Exit(interrupted.code) from interrupted
        except (*INPUT_ERRORS, OSError, MemoryError, RuntimeError) as error:
            if ctx.params.get("traceback") or not is_input_error(error):
                raise
            typer.echo(f"geoskip: {error_line(error, ctx.meta.get(CALLED))}", err=True)
            raise typer.Exit(2) from error


def is_input_error(error: BaseException) -> bool:
    """Whether the user can do something about it: geoskip raised it, a file failed, or memory ran out."""
    from geoskip.records.os_errors import is_out_of_memory

    if is_out_of_memory(error):
        return True
    if isinstance(error, OSError):
        return not isinstance(error, BrokenPipeError)
    return isinstance(error, INPUT_ERRORS) and _raised_in(error.__traceback__).startswith(("geoskip.", "benchmarks."))


def error_line(error: BaseException, command: Any = None) -> str:
    """The message of an error on one line, in terms of the options of the command that raised it."""
    from geoskip.records.os_errors import explain_os_error, is_out_of_memory, out_of_memory_message

    if is_out_of_memory(error):
        return out_of_memory_message(error, "in this command", "Give it fewer or smaller items, or a larger machine")
    message = explain_os_error(error) if isinstance(error, OSError) else str(error)
    line = with_flag(" ".join(message.split()) or type(error).__name__, command)
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]} …"


def with_flag(line: str, command: Any) -> str:
    """``kernel_size: …`` as ``--kernel-size: …``, and ``optim.lr: …`` as ``--set optim.lr: …``.

    Messages of geoskip start with the name of an argument or a setting, or with a path.
    """
    name, colon, rest = line.partition(": ")
    if not colon or command is None or not SETTING.fullmatch(name) or Path(name).exists():
        return line
    options = [entry for entry in command.params if entry.opts[0].startswith("-")]
    flags = {entry.name: max(entry.opts, key=len) for entry in options}
    # --format is stored as mesh_format.
    flags |= {flag.lstrip("-").replace("-", "_"): flag for flag in flags.values()}
    if "settings" in flags:
        from geoskip.training.config import Config

        # Options of the data set are in a panel of their own: --test is one, and test is a setting, too.
        own = {entry.name for entry in options if entry.rich_help_panel is None}
        group = name.partition(".")[0]
        settings = {entry.name for entry in fields(Config)} - own - {"data_options"}
        if group in settings or rest.startswith(f"unknown name {name!r}"):
            return f"{flags['settings']} {name}: {rest}"
    option = name.removeprefix("data_options.")
    # An option of the data comes first: train has --data-seed for it, and --seed of its own.
    candidates = [f"data_{option}", option] if option != name else [name]
    flag = next((flags[each] for each in candidates if each in flags), None)
    if flag is None and option != name and "settings" in flags:
        flag = f"{flags['settings']} {name}"
    return line if flag is None else f"{flag}: {rest}"


def _raised_in(traceback: TracebackType | None) -> str:
    """The module that raised an error."""
    frames = [frame for frame, _ in walk_tb(traceback)]
    return frames[-1].f_globals.get("__name__", "") if frames else ""


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Within the context, geoskip's log goes to standard error as plain lines."""
    log, handler = logging.getLogger("geoskip"), logging.StreamHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str] = (), **options: Any
) -> Table:
    """All columns but the first and those in ``left`` are aligned right; ``options`` are rich's."""
    table = Table(title_justify="left", caption_justify="left", **options)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], **options: Any) -> None:
    """Print :func:`make_table`."""
    Console().print(make_table(columns, rows, **options))
