"""docs/protocol.md lists every run of which there is a record."""

from __future__ import annotations

import re

import pytest

from geoskip.records import RunRecord, read_record
from tests.docs.pages import DOCS

RESULTS = DOCS.parent / "results"
PAGE = (DOCS / "protocol.md").read_text(encoding="utf-8")
ON_TEST, _, REST = PAGE.partition("**Evaluated on validation items, or not at all**")
RECORDS = [
    path
    for folder in ("runs", "archive", "repeats")
    for path in sorted((RESULTS / folder).rglob("*.json"))
    if path.parent.name != "study-on-faces"
]


def is_listed(record: RunRecord, table: str) -> bool:
    """Whether a line has the record's data set and number of epochs."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    epochs = re.compile(rf"\b{record.config['optim']['epochs']}\b")
    return any(f"`{record.config['data']}`" in cells[0] and epochs.search(cells[1]) for cells in lines)


def test_every_record_is_listed() -> None:
    assert len(RECORDS) > 200
    for path in RECORDS:
        record = read_record(path)
        table = ON_TEST if record.config.get("test", True) else REST.partition("\n## ")[0]
        assert is_listed(record, table), path


@pytest.mark.parametrize("data", ["superpixels", "another"])
def test_a_run_that_is_not_listed_is_seen(data: str) -> None:
    record = read_record(RECORDS[0])
    config = {**record.config, "data": data, "optim": {**record.config["optim"], "epochs": 37}}
    assert not is_listed(RunRecord(**{**vars(record), "config": config}), ON_TEST)


def test_every_archive_is_linked_and_explained() -> None:
    explained = (RESULTS / "archive" / "README.md").read_text(encoding="utf-8")
    for folder in (path for path in (RESULTS / "archive").iterdir() if path.is_dir()):
        assert f"results/archive/{folder.name})" in PAGE
        assert f"| `{folder.name}` |" in explained


def test_only_the_records_that_the_page_names_are_incomplete() -> None:
    """Without commit, data key, versions of what made the data, concurrency, or the errors of the items."""
    incomplete = set()
    for path in RECORDS:
        record = read_record(path)
        facts = (record.commit, record.data_key, record.data_versions, record.concurrency)
        if not all(facts) or not path.with_suffix(".safetensors").is_file():
            incomplete.add((path.relative_to(RESULTS).parts[0], record.config["data"], record.schedule))
    current = {(data, schedule) for folder, data, schedule in incomplete if folder == "runs"}
    assert current == {("bodies", "short"), ("superpixels", "short"), ("superpixels", "first100")}
    assert "| `bodies`, `superpixels` in 20 and in 100 epochs, all that are archived or repeated | commit," in PAGE
