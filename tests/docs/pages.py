"""The pages of docs/: their fenced blocks, and running them as a reader would."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main
from typer.testing import CliRunner

import geoskip
from geoskip.cli import app

DOCS = Path(geoskip.__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page that it begins in."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    return [Block(found[1], found[2], page[: found.start()].count("\n") + 1) for found in FENCE.finditer(page)]


def commands(block: Block) -> list[list[str]]:
    """The command lines of a shell block, as words."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_commands(block: Block) -> str:
    """Run a shell block, which may hold nothing but ``geoskip …``; what it printed."""
    printed = ""
    for program, *arguments in commands(block):
        assert program == "geoskip", f"line {block.line}: {program} is not run by this test"
        told = CliRunner().invoke(app, arguments)
        assert told.exit_code == 0, f"line {block.line}: {told.output}"
        printed += told.stdout
    return printed


def parse_command(words: list[str]) -> None:
    """Raise what the command line would, without running anything."""
    command: Any = typer.main.get_command(app)
    assert words[0] == "geoskip", f"{words[0]} is not a command of this program"
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest, f"{' '.join(words)} names no command"
        assert rest[0] in command.commands, f"there is no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    command.make_context(words[0], rest)
