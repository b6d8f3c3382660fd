"""The page that the repository carries: of the records that it carries."""

from __future__ import annotations

from pathlib import Path

import geoskip
from geoskip.report.runs import find_runs
from geoskip.report.tables import result_table_html

ROOT = Path(geoskip.__file__).parents[2]
PAGE = ROOT / "docs" / "report" / "index.html"


def test_the_page_has_the_tables_that_the_records_give() -> None:
    page, found = PAGE.read_text(encoding="utf-8"), result_tables(find_runs([ROOT / "results" / "runs"]).runs)
    assert found
    for experiment in found:
        assert result_table_html(experiment) in page, f"{experiment.title}: make the page anew, as docs/report.md says"


def test_it_is_small_enough_to_be_carried() -> None:
    assert PAGE.stat().st_size < 10e6
