"""The page on training: what it says of defaults is so."""

from __future__ import annotations

import pytest

from geoskip.data.catalog import BUILT_IN
from geoskip.training.config import resolve
from tests.docs.pages import DOCS

PAGE = (DOCS / "training.md").read_text()


@pytest.mark.parametrize("task", ["reconstruction", "correspondence", "classification"])
def test_the_table_has_the_defaults(task: str) -> None:
    row, *_ = [line for line in PAGE.splitlines() if line.startswith(f"| {task} |")]
    optim = resolve(task).optim
    assert f"| {resolve(task).kernel_size} |" in row
    assert f"×{optim.lr_decay} " in row
    assert f"batch {optim.batch_size}, {optim.epochs} epochs" in row
    names = [name for name, data_set in BUILT_IN.items() if data_set.task == task and name != "mnist"]
    assert all(f"`{name}`" in row for name in names)
