"""docs/own-template.md, followed from top to bottom as a new user would."""

from pathlib import Path
from typing import Any

import pytest

from geoskip.data import load_template
from geoskip.meshes import read_mesh
from tests.docs.pages import DOCS, blocks, run_commands


def words(text: str) -> list[list[str]]:
    """Lines as words, without those that tell times or sizes, and without rules."""
    lines = [line.split() for line in text.splitlines() if "MB)" not in line and " s in total" not in line]
    return [line for line in lines if line and not line[0].startswith("─")]


def alike(shown: str, printed: str) -> bool:
    """Equal, or lengths within 5 %: which of many equal collapses goes first hangs on the last bit of a cost."""
    try:
        return shown == printed or float(shown) == pytest.approx(float(printed), rel=0.05)
    except ValueError:
        return False


def test_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command and every snippet, in order, in an empty folder; what the page shows is what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    names: dict[str, Any] = {"__name__": "__main__"}
    printed, shown = "", 0
    for block in blocks((DOCS / "own-template.md").read_text()):
        if block.language == "bash":
            printed = run_commands(block)
        elif block.language == "python":
            exec(compile(block.text, f"own-template.md:{block.line}", "exec"), names)
            printed = capsys.readouterr().out
        else:
            for expected, line in zip(words(block.text), words(printed), strict=True):
                assert len(expected) == len(line)
                assert all(map(alike, expected, line)), f"line {block.line}: {line}"
            shown += 1
    assert shown == 3
    assert load_template("template.template.safetensors").hierarchy.sizes == (162, 41, 11)
    assert (tmp_path / "pictures" / "template-levels.png").stat().st_size > 10_000
    assert read_mesh("rebuilt.ply").topology_hash() == read_mesh("template.ply").topology_hash()
    # It has learned: the page's error is well below that of answering with the mean shape.
    from_mean = (names["true"] - names["mean"]).norm(dim=-1).mean() * names["shapes"].unit_mm
    assert names["errors"].mean() < 0.7 * from_mean


@pytest.mark.parametrize("line", ["rm -rf meshes", "geoskip prepare absent.ply", "geoskip prepared x"])
def test_a_page_that_does_not_work_is_seen(line: str) -> None:
    (block,) = blocks(f"text\n```bash\n{line}\n```\n")
    with pytest.raises(AssertionError, match="line 2"):
        run_commands(block)
