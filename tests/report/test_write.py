import sys
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from geoskip.cli.report import report
from geoskip.records import RecordError
from geoskip.report import page as page_module
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
    written = write_report(RUNS, tmp_path)
    assert written.page.exists()
    assert [path.name for path in written.files] == ["meshes-s0.png"]
    (reason,) = written.missing
    assert reason.startswith("figures need matplotlib: ")


def test_renders_are_large_pictures_of_each_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "RENDER_SIZE", 32)
    written = write_report(RUNS, tmp_path, figures=False, renders=True)
    (scene,) = mesh_scenes(result_tables(RUNS))
    names = [f"meshes-s0-{number}.png" for number in range(1 + len(scene.methods))]
    assert [path.name for path in written.files] == names
    for path in written.files:
        with Image.open(path) as image:
            assert (image.size, image.mode) == ((32, 32), "RGBA")


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
