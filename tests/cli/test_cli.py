"""The command line as its users meet it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import geoskip
from geoskip.cli import app
from geoskip.cli.console import error_line, is_input_error
from geoskip.meshes import icosphere, write_mesh
from geoskip.training.signals import Interrupted
from tests.paper.runs import job_of, kept, row_named

SOURCE = Path(geoskip.__file__).parents[1]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=SOURCE, capture_output=True, text=True, encoding="utf-8", check=False
    )


HELP = """
import sys, typer
from geoskip.cli import app

def commands(command, *words):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)

helps = [[*words, "--help"] for words in commands(typer.main.get_command(app))]
assert ["data", "make", "faces", "--help"] in helps
for words in (*helps, ["--version"], ["nonsense"], ["data"]):
    try:
        app(words)
    except SystemExit:
        pass
    heavy = {"torch", "scipy", "numpy", "trimesh", "matplotlib"} & set(sys.modules)
    assert not heavy, (words, heavy)
"""


def test_help_and_errors_do_not_wait_for_torch() -> None:
    """The help of every command, and what a wrong one says."""
    told = run_python("-c", HELP)
    assert told.returncode == 0, told.stderr


def test_runs_as_a_module() -> None:
    told = run_python("-m", "geoskip", "--version")
    assert (told.returncode, told.stdout) == (0, f"geoskip {geoskip.__version__}\n")


def test_commands_are_listed() -> None:
    told = run("--help")
    assert told.exit_code == 0
    for command in ("demo", "params"):
        assert command in told.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["nonsense"], "nonsense"), (["params", "--odd"], "--odd"), (["demo", "--seeds", "many"], "--seeds")],
)
def test_what_does_not_exist_is_refused(arguments: list[str], named: str) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert named in told.output
    assert "Traceback" not in told.output


def test_counts_as_json() -> None:
    entries = json.loads(run("params", "--json").stdout)
    assert len(entries) == 42 + 13 + 9
    assert all(entry["params"] == entry["paper"] for entry in entries)
    assert {entry["experiment"] for entry in entries} == {"table1", "table2", "correspondence"}


def test_counts_as_tables() -> None:
    told = run("params").stdout
    line = next(line for line in told.splitlines() if "Aff-MoNet" in line)
    assert [word for word in line.split() if word[0].isdigit()] == ["105,195", "167,865", "230,535"]
    assert "MoNet (degree)" in told
    assert "64 of 64 counts" in told


def test_wrong_count_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line counts; it does not praise."""
    monkeypatch.setattr("geoskip.paper.rows.num_parameters", lambda model: 7)
    told = run("params").stdout
    assert "0 of 64 counts" in told
    assert "(paper: 92,499)" in told


def test_bad_input_is_one_line() -> None:
    told = run("reproduce", "table1", "--seeds", "x")
    assert told.exit_code == 2
    assert told.stdout == ""
    assert told.stderr == "geoskip: --seeds: expected seeds such as 0..4 or 0,2,7, got 'x'\n"


def test_traceback_on_demand() -> None:
    told = run("--traceback", "reproduce", "table1", "--seeds", "x")
    assert isinstance(told.exception, ValueError)


def test_missing_file_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("geoskip.paper.experiments.all_rows", lambda: (tmp_path / "absent").read_text())
    told = run("params")
    assert told.exit_code == 2
    assert told.stderr == f"geoskip: {tmp_path / 'absent'}: there is no such file or folder; check the name\n"


def test_fault_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ValueError that somebody else's code raises is not the user's doing."""
    monkeypatch.setattr("geoskip.paper.experiments.all_rows", lambda: json.loads("{"))
    told = run("params")
    assert isinstance(told.exception, json.JSONDecodeError)


def test_an_interruption_is_one_line_with_the_code_of_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise Interrupted(signal.SIGTERM, "saved in runs/faces")

    monkeypatch.setattr("geoskip.paper.experiments.all_rows", stop)
    told = run("params")
    assert (told.exit_code, told.stderr) == (143, "geoskip: saved in runs/faces\n")


def test_broken_pipe_is_left_to_typer() -> None:
    assert not is_input_error(BrokenPipeError())
    assert is_input_error(FileNotFoundError())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "reconstruction", "--skip", "afine"], "--skip: unknown name 'afine'"),
        (["train", "reconstruction", "--set", "optim.lr=0"], "--set optim.lr: expected a rate above 0, got 0"),
        (["train", "reconstruction", "--set", "lr=1"], "--set lr: unknown name 'lr'; did you mean optim.lr?"),
        (["train", "reconstruction", "--set", "options.dims=3"], "--set options.dims: monet has no such option"),
        (["train", "reconstruction", "--data", ".", "--kernel-size", "0"], "--kernel-size: MoNetConv needs a whole"),
        (["train", "reconstruction", "--data", "."], "--unit-mm: required for"),
        (["train", "reconstruction", "--set", "test=false"], "--set test: false leaves nothing to evaluate"),
        (["train", "reconstruction", "--data", ".", "--unit-mm", "1", "--test", "z"], "--test: z is not a file or"),
        (
            ["train", "reconstruction", "--set", "model.channels=3,3"],
            "--set model.channels: expected a list of whole numbers, got '3,3'; write it in brackets, [3,3]",
        ),
        (
            ["train", "reconstruction", "--data", ".", "--unit-mm", "1", "--set", "model.factors=[2]"],
            "--set model.channels: give one number for each of the 1 steps",
        ),
        (["train", "reconstruction", "--data", ".", "--nodes", "3"], "--nodes: "),
        (["data", "make", "faces", "--split", "wink"], "--split: expected interpolation or"),
        (["analyze", "baselines", "nosuch"], "data: unknown name 'nosuch'"),  # an argument has no flag
    ],
)
def test_messages_name_flags(words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        write_mesh(icosphere(0), f"{name}.ply")
    told = run(*words)
    assert told.exit_code == 2
    assert told.stderr.startswith(f"geoskip: {message}"), told.stderr


def test_a_path_is_not_a_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    assert run("evaluate", "data").stderr.startswith("geoskip: data: not the folder of a run")


def test_message_of_several_lines_becomes_one() -> None:
    assert error_line(ValueError("a\n  b")) == "a b"
    assert error_line(ValueError()) == "ValueError"


def test_an_unknown_command_tells_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "No such command 'xyz'; there are train, evaluate, apply," in run("xyz").stderr
    assert "Did you mean 'train'?" in run("trian").stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prepare", "nosuch.ply"], "nosuch.ply: there is no such file or folder; check the name"),
        (["prepare", "mesh.ply", "--targets", "20", "-o", "results"], "results: is a folder, and a file is needed"),
        (["warp", "nosuch.ply", "a.json", "b.json"], "nosuch.ply: there is no such file or folder; check the name"),
        (["reproduce", "table1", "--schedule", "smoke", "-o", "plain.md"], "plain.md: is a file, and a folder is need"),
        (["report", "runs", "-o", "plain.md"], "plain.md: is a file, and a folder is needed; choose another"),
    ],
)
def test_files_that_are_refused_are_named_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("results", "runs"):
        Path(folder).mkdir()
    Path("plain.md").write_text("no tables\n")
    write_mesh(icosphere(1), "mesh.ply")
    kept(job_of(row_named("table1", "MoNet M=9")), Path("runs"), mean_mm=0.5, std_mm=0.1, median_mm=0.4)
    answer = run(*arguments)
    assert answer.exit_code == 2
    assert answer.stderr.startswith("geoskip: ")
    assert answer.stderr.count("\n") == 1
    assert told in answer.stderr
    assert Path("plain.md").read_text() == "no tables\n"
