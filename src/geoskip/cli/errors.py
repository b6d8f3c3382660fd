"""Errors raised on purpose end as one line; anything else is a fault of the program and keeps its traceback."""

from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from geoskip.training.signals import Interrupted

# What the package raises on purpose; MeshError is a ValueError, a missing extra an ImportError.
PURPOSEFUL = (ValueError, TypeError, ImportError)


class CleanErrors(TyperGroup):
    """The group of all commands, with an exit code of 2 for bad input, and that of its signal for an interruption."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Interrupted as interrupted:
            typer.echo(f"geoskip: {interrupted}", err=True)
            raise typer.Exit(interrupted.code) from interrupted
        except (*PURPOSEFUL, OSError) as error:
            if ctx.params.get("traceback") or not on_purpose(error):
                raise
            typer.echo(f"geoskip: {one_line(error)}", err=True)
            raise typer.Exit(2) from error


def on_purpose(error: BaseException) -> bool:
    """Whether the package itself raised it, or the system refused a file."""
    if isinstance(error, OSError):
        return not isinstance(error, BrokenPipeError)
    return isinstance(error, PURPOSEFUL) and _raised_in(error.__traceback__).startswith("geoskip.")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _raised_in(traceback: TracebackType | None) -> str:
    module = ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        traceback = traceback.tb_next
    return module
