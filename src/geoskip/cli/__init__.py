"""The command line. A command imports what it needs when it runs, so that help and errors appear at once."""

import sys
from typing import Annotated

import typer

from geoskip import __version__
from geoskip.cli.analyze import analyze
from geoskip.cli.console import MainGroup
from geoskip.cli.data import data
from geoskip.cli.demo import demo
from geoskip.cli.meshes import prepare, warp
from geoskip.cli.report import params, report
from geoskip.cli.reproduce import reproduce
from geoskip.cli.train import train
from geoskip.cli.trained_models import apply, evaluate, export

app = typer.Typer(
    name="geoskip",
    cls=MainGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train)
for command in (evaluate, apply, export, report, prepare, warp, demo, reproduce, params):
    app.command()(command)
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
    """Run the program ``geoskip``."""
    for stream in (sys.stdout, sys.stderr):
        # If the terminal cannot show †, a question mark is better than an error.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="geoskip")
