"""The snippets of the pages on the library: each page from top to bottom, as one program."""

from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.paper.experiments import EXPERIMENTS, all_rows
from tests.docs.pages import DOCS, blocks
from tests.report.made_runs import made_run, write_runs

PAGES = [
    "acceleration.md",
    "geometry.md",
    "graphs.md",
    "models.md",
    "operators.md",
    "report.md",
    "skips.md",
    "training.md",
    "what-skips-learn.md",
]


def snippets(page: str) -> dict[int, str]:
    """The Python blocks of a page, by the line that they begin in."""
    found = {block.line: block.text for block in blocks((DOCS / page).read_text()) if block.language == "python"}
    assert found, f"{page} has no snippets"
    return found


def run(found: dict[int, str], page: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    torch.manual_seed(0)
    for line, text in found.items():
        # Blank lines before it, so that an error names the line of the page.
        exec(compile("\n" * line + text, page, "exec"), names)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with some runs in runs/ for the page that is about them."""
    monkeypatch.chdir(tmp_path)
    row = EXPERIMENTS["table1"].rows[0]
    write_runs(tmp_path / "runs", [made_run(row, "faces", 0)])
    run(snippets(page), page)


def test_a_snippet_that_fails_is_seen() -> None:
    with pytest.raises(AssertionError, match="no snippets"):
        snippets("../CITATION.cff")
    with pytest.raises(AssertionError):
        run({1: "import torch\n", 9: "assert torch.ones(2).sum() == 3\n"}, "page.md")


def test_the_counts_on_the_page_are_the_papers() -> None:
    lines = [line for line in (DOCS / "models.md").read_text().splitlines() if ", M = " in line]
    assert len(lines) == 3
    counts = {(row.task, row.column, row.pseudo, row.method): row.figures["params"] for row in all_rows()}
    for line in lines:
        task = line.split(",")[0].removeprefix("| ").replace("superpixels", "classification")
        column = int(line.split("M = ")[1].split(",")[0].split()[0])
        pseudo = "position" if "by position" in line else None
        for method in ("MoNet", "Aff-MoNet"):
            assert f"{counts[task, column, pseudo, method]:,}" in line
