"""Every example and command of the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.meshes import icosphere, write_mesh

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^geoskip ([^#\n]*[^#\s])", README, flags=re.MULTILINE)


def test_there_is_something_to_run() -> None:
    assert len(EXAMPLES) == 2
    assert len(COMMANDS) >= 4


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a comment says is printed, is printed."""
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    for promise in re.findall(r"print\(.*#\s(torch\.Size.*)", example):
        assert promise in printed


def test_the_first_example_wraps_eight_convolutions(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})
    assert capsys.readouterr().out.count("GCNConv") == 8


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a mesh ``head.ply``, with a cache of its own. Long ones are only asked for help."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    write_mesh(icosphere(3), tmp_path / "head.ply")
    words = shlex.split(command)
    if words[0] == "bench" or words[:2] == ["data", "make"]:
        words.append("--help")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output


def test_every_page_it_names_exists() -> None:
    pages = re.findall(r"\]\((docs/[\w.-]+|[A-Z]+\.\w+)\)", README)
    assert len(pages) > 5
    for page in pages:
        assert (Path(__file__).parents[2] / page).is_file(), page
