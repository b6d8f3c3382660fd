"""Every example and command of the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.meshes import icosphere, write_mesh
from tests.blocks.pyg_recipes import REFUSED, WRAPPED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf8")
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


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in a folder with a cache of its own; a few spheres in the place of the faces, a small network and one
    epoch. What makes data or measures time is only asked for help."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    sphere, random = icosphere(2), np.random.default_rng(0)
    (tmp_path / "shapes").mkdir()
    for number in range(6):
        verts = sphere.verts * np.exp(0.2 * random.standard_normal(3))
        write_mesh(sphere.with_verts(verts), tmp_path / "shapes" / f"{number}.ply")
    write_mesh(sphere, tmp_path / "face.ply")
    for command in COMMANDS:
        words = shlex.split(command.replace("--data faces", "--data shapes"))
        if words[0] == "reproduce" or words[:2] == ["data", "make"]:
            words.append("--help")
        if words[0] == "train":
            words += ["--epochs", "1", "--set", "model.channels=[4,4]", "--set", "data_options.unit_mm=100"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}\n{result.output}"
    assert (tmp_path / "report" / "index.html").is_file()
    assert (tmp_path / "hub" / "model.safetensors").is_file()
    assert (tmp_path / "out" / "face.ply").is_file()


def test_figures_are_those_of_the_tables() -> None:
    """The tables are made from records; the README repeats some of their figures."""
    pages = ((ROOT / "docs" / name).read_text(encoding="utf8") for name in ("results.md", "benchmarks.md"))
    lines = [line for page in pages for line in page.splitlines() if line.startswith("|")]
    tables = set(re.findall(r"[\d.]+", " ".join(lines)))
    results = " ".join(README.split("## Results\n")[1].split("\n## ")[0].split())
    figures = re.findall(r"\d+\.\d+", results)
    assert len(figures) > 10
    assert [figure for figure in figures if figure not in tables] == []
    ratios = re.findall(r"(?<![\d.])\d+(?=×)", results)
    assert [ratio for ratio in ratios if f"{ratio}.0" not in tables] == []
    (counts,) = [line.split(" | ")[1:] for line in lines if line.startswith("| **all** |")]
    total, holds, same, opposite, fails, one_seed = (int(count.strip(" |").replace("–", "0")) for count in counts)
    assert f"Of {total} comparisons" in results
    assert f"{holds} hold significantly, {same + opposite} are too close to tell, and {fails or 'none'} fail" in results
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf8")
    assert f"three seeds: {same + opposite} of {total} (" in page
    assert (f"; {one_seed} more ha{'s' if one_seed == 1 else 've'} only one seed" in results) == (one_seed > 0)


def test_the_number_of_tested_convolutions() -> None:
    total = len(WRAPPED) + len(REFUSED)
    assert f"{len(WRAPPED)} of PyTorch Geometric's {total} convolutions are tested" in README


def test_every_page_it_names_exists() -> None:
    pages = re.findall(r"\]\((docs/[\w.-]+|[A-Z]+\.\w+)\)", README)
    assert len(pages) > 5
    for page in pages:
        assert (ROOT / page).is_file(), page
