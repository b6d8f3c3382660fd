"""Errors raised on purpose end as one line; anything else is a fault of the program and keeps its traceback."""

from difflib import get_close_matches
from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from geoskip.training.signals import Interrupted

# What the package raises on purpose; MeshError is a ValueError, a missing extra an ImportError.
PURPOSEFUL = (ValueError, TypeError, ImportError)
# Characters of a message: a damaged file may hold a value of any length.
LONGEST = 1000


class Choices(TyperGroup):
    """A group that tells its commands where an unknown one is asked for; one that is almost known is Typer's."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if self.get_command(ctx, args[0]) is None and not get_close_matches(args[0], names):
            ctx.fail(f"No such command {args[0]!r}; there are {', '.join(names)}.")
        return super().resolve_command(ctx, args)


class CleanErrors(Choices):
    """The group of all commands, with an exit code of 2 for bad input, and that of its signal for an interruption."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # RuntimeErrors, too
            raise
        except Interrupted as interrupted:
            typer.echo(f"geoskip: {interrupted}", err=True)
            raise typer.Exit(interrupted.code) from interrupted
        except (*PURPOSEFUL, OSError, MemoryError, RuntimeError) as error:
            if ctx.params.get("traceback") or not on_purpose(error):
                raise
            typer.echo(f"geoskip: {one_line(error)}", err=True)
            raise typer.Exit(2) from error


def on_purpose(error: BaseException) -> bool:
    """Whether the package itself raised it, the system refused a file, or memory ran out."""
    from geoskip.records.os_errors import is_out_of_memory

    if is_out_of_memory(error):
        return True
    if isinstance(error, OSError):
        return not isinstance(error, BrokenPipeError)
    return isinstance(error, PURPOSEFUL) and _raised_in(error.__traceback__).startswith(("geoskip.", "benchmarks."))


def one_line(error: BaseException) -> str:
    from geoskip.records.os_errors import explain_os_error, is_out_of_memory, out_of_memory_message

    if is_out_of_memory(error):
        return out_of_memory_message(error, "in this command", "Give it fewer or smaller items, or a larger machine")
    words = explain_os_error(error) if isinstance(error, OSError) else str(error)
    line = " ".join(words.split()) or type(error).__name__
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"


def _raised_in(traceback: TracebackType | None) -> str:
    module = ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        traceback = traceback.tb_next
    return module
