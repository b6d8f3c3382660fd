"""The command line. Each command loads what it needs when it runs, so that help and errors come at once."""

import sys
from typing import Annotated

import typer

from geoskip import __version__
from geoskip.cli.analyze import analyze
from geoskip.cli.apply import apply
from geoskip.cli.console import MainGroup
from geoskip.cli.data import data
from geoskip.cli.demo import demo
from geoskip.cli.evaluate import evaluate
from geoskip.cli.export import export
from geoskip.cli.meshes import prepare, warp
from geoskip.cli.report import params, report
from geoskip.cli.reproduce import reproduce
from geoskip.cli.tables import tables
from geoskip.cli.train import train

app = typer.Typer(
    name="geoskip",
    cls=MainGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(apply)
app.command()(demo)
app.command()(evaluate)
app.command()(export)
app.command()(params)
app.command()(prepare)
app.command()(report)
app.command()(reproduce)
app.command()(tables)
app.command("train")(train)
app.command()(warp)
app.add_typer(analyze, name="analyze")
app.add_typer(data, name="data")


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"geoskip {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def geoskip(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the code an error was raised.")] = False,
) -> None:
    """Affine skip connections for any graph convolution (Gong, Bahri et al., CVPR 2020)."""


def main() -> None:
    """What the command ``geoskip`` runs."""
    for stream in (sys.stdout, sys.stderr):
        # Where the terminal has no † a question mark is better than an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="geoskip")
