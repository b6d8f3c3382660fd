"""docs/applying.md, followed from top to bottom as a new user would."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoskip.meshes import read_mesh
from geoskip.training.tasks import find_task
from tests.docs.pages import DOCS, blocks, run_commands


def test_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command and every snippet, in order, in an empty folder; what the page shows is what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, shown = "", 0
    for block in blocks((DOCS / "applying.md").read_text()):
        if block.language == "bash":
            printed = run_commands(block)
        elif block.language == "python":
            exec(compile(block.text, f"applying.md:{block.line}", "exec"), names)
            printed = capsys.readouterr().out
        elif block.language == "text":
            assert block.text == printed, f"line {block.line}"
            shown += 1
    assert shown == 2
    evaluation = json.loads(Path("run/evaluation.json").read_text())
    # It has learned: the error is well below that of answering with the mean shape.
    verts = np.stack([read_mesh(path).verts for path in sorted(Path("meshes").iterdir())])
    from_mean = 100 * np.linalg.norm(verts - verts.mean(axis=0), axis=2).mean()
    assert evaluation["metrics"]["mean_mm"] < 0.6 * from_mean
    assert len(list(Path("between").iterdir())) == 5
    for name in ("000.ply", "001.ply"):
        assert np.allclose(read_mesh(f"rebuilt/{name}").verts, read_mesh(f"decoded/{name}").verts, atol=1e-6)
    assert (tmp_path / "copy" / "model.safetensors").is_file()
    tuned = [json.loads(Path(folder, "record.json").read_text())["config"] for folder in ("tuned", "tuned-from-python")]
    assert tuned[0]["init_from"] == tuned[1]["init_from"] == "model"
    assert tuned[0]["init_sha256"] == tuned[1]["init_sha256"]


def test_the_page_knows_every_action() -> None:
    page = (DOCS / "applying.md").read_text()
    tasks = ("reconstruction", "correspondence", "classification")
    actions = [action for name in tasks for action in find_task(name).actions]
    assert len(actions) == 6
    assert [action for action in actions if f"| `{action}`" not in page] == []
