"""The commands of the benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import app
from typer.testing import CliRunner

from tests.benchmarks.tiny import MESHES, plant

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.WORKLOADS", {"meshes": MESHES})
    monkeypatch.setattr("benchmarks.roofline.SIZES", {"cpu": (1 << 16, 32)})


@pytest.mark.parametrize("arguments", [["--help"], ["blocks", "--help"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    code = (
        "import sys; from benchmarks.__main__ import app\n"
        f"try: app({arguments!r})\n"
        "except SystemExit: pass\n"
        "print('heavy:', sorted({'torch', 'scipy', 'numpy', 'torch_geometric'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "heavy: []" in told.stdout, told.stderr


@pytest.mark.usefixtures("_tiny")
def test_blocks(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ["--device", "cpu", "--operator", "gcn", "--operator", "spiral", "--seconds", "0", "-o", str(path)]
    told = run(*arguments)
    assert told.exit_code == 0, told.output
    assert "meshes GCN, geoskip:" in told.stderr
    assert "fp32_precision" in told.stderr
    for word in ("GCN", "Aff-GCN", "SpiralNet++, M=4", "PyG", "reference", "roofline", "repeats"):
        assert word in told.stdout
    record = json.loads(path.read_text(encoding="utf-8"))
    assert [row["path"] for row in record["rows"]] == ["geoskip", "PyG"] * 2 + ["geoskip", "reference"] * 2
    page = run("table", str(path))
    assert page.exit_code == 0
    assert "| Aff-SpiralNet++, M=4 |" in page.stdout


@pytest.mark.usefixtures("_tiny")
def test_backward_on_the_calling_thread(tmp_path: Path) -> None:
    """The page says so, and the next run is as usual."""
    path, arguments = tmp_path / "run.json", ["--device", "cpu", "--operator", "gcn", "--seconds", "0"]
    for options, said in (["--one-thread"], True), ([], False):
        assert run(*arguments, *options, "-o", str(path)).exit_code == 0
        assert json.loads(path.read_text(encoding="utf-8"))["machine"]["one_thread"] is said
        assert ("Backward runs on the calling thread." in run("table", str(path)).stdout) is said


@pytest.mark.usefixtures("_tiny")
def test_wrong_result_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    told = run("--device", "cpu", "--operator", "monet", "--no-peers", "--seconds", "0")
    assert told.exit_code == 1
    assert "wrong result" in told.stdout
    assert "wrong result: theta is off by 1.0e-04" in told.stderr


def test_commands_are_listed() -> None:
    told = run("--help")
    assert told.exit_code == 0
    for command in ("blocks", "scaling", "table", "--own 8,20000,64,64,9"):
        assert command in told.output
    for option in ("--workload", "--own", "--quick", "--no-peers", "--compiled"):
        assert option in run("blocks", "--help").output


def test_a_mesh_of_ones_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.roofline.SIZES", {"cpu": (1 << 16, 32)})
    told = run("blocks", "--device", "cpu", "--own", "2,40,4,5,3", "--operator", "cheb", "--seconds", "0")
    assert told.exit_code == 0, told.output
    assert "### own: batch 2, 40 vertices, 4 → 5 channels" in told.stdout
    assert "| Aff-ChebNet, M=3 |" in told.stdout


@pytest.mark.usefixtures("_tiny")
def test_footnote_of_monet() -> None:
    told = run("--device", "cpu", "--operator", "monet", "--seconds", "0")
    assert told.exit_code == 0, told.output
    assert "cannot leave out MoNet's root weight" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "hands"], "geoskip: --workload: unknown name 'hands'"),
        (["--operator", "gat", "--workload", "bodies"], "geoskip: --operator: unknown name 'gat'"),
        (["--own", "8"], "geoskip: --own: expected batch, vertices, channels in, channels out and M, got '8'"),
        (["scaling", "--max-vertices", "10"], "geoskip: max-vertices: at least 1024, got 10"),
        (["scaling", "--operator", "gat"], "geoskip: --operator: unknown name 'gat'"),
        (["table", "absent.json"], "geoskip: absent.json: there is no such file or folder"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert told.stderr.splitlines()[-1].startswith(message)


def test_scaling(tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    told = run("scaling", "--device", "cpu", "--max-vertices", "2048", "--seconds", "0", "-o", str(path))
    assert told.exit_code == 0, told.output
    assert "2,048" in told.stdout
    record = json.loads(path.read_text(encoding="utf-8"))
    assert [point["vertices"] for point in record["points"]] == [1024, 2048]
    assert record["growth"] == [{"operator": "monet", "time": None, "memory": None}]
    page = tmp_path / "page.md"
    assert run("table", str(path), "-o", str(page)).exit_code == 0
    assert "| MoNet | 2,048 |" in page.read_text(encoding="utf-8")


def test_wrong_scaling_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    told = run("scaling", "--device", "cpu", "--max-vertices", "1024", "--seconds", "0")
    assert told.exit_code == 1
    assert "wrong result" in told.stdout
