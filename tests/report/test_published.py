"""The page in docs/ shows the records in results/."""

from __future__ import annotations

from pathlib import Path

import geoskip
from geoskip.report.runs import find_runs
from geoskip.report.tables import result_table_html
from tests.report.made_runs import result_tables

ROOT = Path(geoskip.__file__).parents[2]
PAGE = ROOT / "docs" / "report" / "index.html"


def test_the_page_has_the_tables_that_the_records_give() -> None:
    page, tables = PAGE.read_text(encoding="utf-8"), result_tables(find_runs([ROOT / "results" / "runs"]).runs)
    assert tables
    for table in tables:
        assert result_table_html(table) in page, f"{table.title}: regenerate the page as described in docs/report.md"


def test_it_is_small_enough_to_be_carried() -> None:
    assert PAGE.stat().st_size < 10e6
