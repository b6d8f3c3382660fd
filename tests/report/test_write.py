import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from geoskip.cli.report import report
from geoskip.records import RecordError
from geoskip.report import renders
from geoskip.report.page import write_report
from geoskip.report.scenes import mesh_scenes
from tests.report.made_runs import made_runs, result_tables, spheres, write_runs

RUNS = made_runs(spheres(1), spheres(1), 1, ("*MoNet M=9",))[:3]


def test_a_report_is_a_page_and_its_figures(tmp_path: Path) -> None:
    written = write_report(RUNS, tmp_path)
    assert written.page == tmp_path / "index.html"
    assert written.missing == ()
    assert all(path.stat().st_size > 0 for path in written.files)
    kinds = {path.suffix for path in written.files}
    assert kinds == {".png", ".svg"}
    assert sorted(path.name for path in written.files if path.name.startswith("meshes")) == ["meshes-s0.png"]


def test_what_cannot_be_drawn_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(renders, "DRAW", ["-c", "import os; os.abort()"])
    written = write_report(RUNS, tmp_path, renders=True)
    assert written.page.exists()
    assert written.missing[0].startswith("figures need matplotlib: ")
    assert written.missing[1].startswith("renders: pyvista ended with code -6")
    assert "It needs OpenGL (on Debian: apt install" in written.missing[1]


@pytest.mark.parametrize(
    ("script", "limit", "message"),
    [
        ("import pyvista", 60.0, "renders: need pyvista: pip install geoskip[renders]"),
        ("import sys; sys.exit('the lamp is broken')", 60.0, "ended with code 1: the lamp is broken"),
        ("import time; time.sleep(60)", -39.5, "pyvista did not finish within 0.5 s"),  # 20 s for each picture
    ],
)
def test_why_there_are_no_renders(
    script: str, limit: float, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyvista.py").write_text("raise ModuleNotFoundError(\"No module named 'pyvista'\")")
    monkeypatch.setattr(renders, "DRAW", ["-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"])
    monkeypatch.setattr(renders, "TIME_LIMIT_S", limit)
    (missing,) = write_report(RUNS[:1], tmp_path, figures=False, renders=True).missing
    assert message in missing


def test_renders_are_drawn_in_a_separate_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pyvista's process gets every mesh."""
    scenes = mesh_scenes(result_tables(RUNS))
    script = tmp_path / "stand_in.py"
    script.write_text(
        "import json, sys, pathlib, numpy\n"
        "for job in json.load(sys.stdin)['jobs']:\n"
        "    with numpy.load(job['mesh']) as m: assert set(m) == {'verts', 'faces', 'colors'}\n"
        "    pathlib.Path(job['picture']).write_bytes(b'x')\n"
    )
    monkeypatch.setattr(renders, "DRAW", [str(script)])
    paths = renders.write_renders(scenes, tmp_path / "renders")
    assert [path.name for path in paths] == [f"s0-{n}.png" for n in range(1 + len(scenes[0].methods))]
    assert all(path.read_bytes() == b"x" for path in paths)


def test_renders_where_they_can_be_drawn(tmp_path: Path) -> None:
    """Without pyvista or OpenGL the report says so; with them the pictures are there."""
    written = write_report(RUNS[:1], tmp_path, figures=False, renders=True)
    drawn = [path.read_bytes()[:4] for path in written.files]
    assert drawn == ([] if written.missing else [b"\x89PNG"] * 2)


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(report)
    return app


def test_the_command_says_where_the_page_is(tmp_path: Path, command: typer.Typer) -> None:
    write_runs(tmp_path / "runs", RUNS)
    (tmp_path / "runs" / "run-000" / "samples.safetensors").write_bytes(b"no")
    done = CliRunner().invoke(command, [str(tmp_path / "runs"), "-o", str(tmp_path / "out"), "--no-figures"])
    assert done.exit_code == 0
    assert "left out" in done.output
    assert f"3 runs: {tmp_path / 'out' / 'index.html'}" in done.output
    assert "Not shown" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_the_command_without_runs(tmp_path: Path, command: typer.Typer) -> None:
    done = CliRunner().invoke(command, [str(tmp_path), "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, RecordError)
    assert not (tmp_path / "out").exists()
