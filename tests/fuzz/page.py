"""Puts the counts of ``results/fuzz.json`` into ``docs/reliability.md``: ``python -m tests.fuzz.page``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "results" / "fuzz.json", ROOT / "docs" / "reliability.md"
BETWEEN = re.compile(r"(?<=<!-- fuzz -->\n).*?(?=<!-- /fuzz -->)", re.DOTALL)


def table(record: dict[str, Any]) -> str:
    """The counts in Markdown."""
    lines = [
        f"{record['inputs']:,} damaged inputs in {record['seconds']} s on {record['date']} (commit "
        f"`{record['commit'][:12]}`, seed {record['seed']}): {record['clear errors']:,} clear errors, "
        f"{record['accepted']:,} accepted, {record['crashes']:,} crashes.",
        "",
        "| reader | inputs | clear errors | accepted | crashes |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, counts in record["readers"].items():
        lines.append(f"| {name} | " + " | ".join(f"{count:,}" for count in counts.values()) + " |")
    return "\n".join(lines) + "\n"


def filled(page: str, record: dict[str, Any]) -> str:
    return BETWEEN.sub(lambda _: table(record), page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), json.loads(RECORD.read_text())))
