"""What an analysis found, as JSON: rows, and how they came about."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from geoskip import __version__
from geoskip.records.atomic import write_whole
from geoskip.records.reading import read_json

FORMAT = 1


@dataclass(frozen=True)
class AnalysisRecord:
    """One analysis.

    Attributes:
        analysis: which one: ``"depth"``, ``"power"``, ``"smoothness"``, ``"share"``, ``"parts"``; ``"shares"`` are
            those of a study's runs.
        settings: what it was run with.
        rows: what was found.
        seconds: how long it took.
        device: where networks were trained, in words, or where the analysis ran if it trained none.
        versions: of the packages that matter, and of Python.
    """

    analysis: str
    settings: dict[str, Any]
    rows: Sequence[dict[str, Any]]
    seconds: float
    device: str
    versions: dict[str, str]


def make_record(
    analysis: str, settings: dict[str, Any], rows: Sequence[dict[str, Any]], seconds: float, device: str = "cpu"
) -> AnalysisRecord:
    versions = {
        "geoskip": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    return AnalysisRecord(analysis, settings, rows, round(seconds, 2), device, versions)


def write_analysis(path: Path, record: AnalysisRecord) -> None:
    """Write a record whole or not at all; numbers are kept to seven digits, and one row to a line."""
    entries = {"format": FORMAT, **_rounded(asdict(record))}
    rows = entries.pop("rows")
    head = json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False)
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False, allow_nan=False)}" for row in rows)
    write_whole(path, f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n'.encode())


def read_analysis(path: Path) -> AnalysisRecord:
    """The record in a file; ValueError, naming the file, if there is none or if it is not one."""
    try:
        entries = read_json(path)
        if entries.pop("format") != FORMAT:
            raise ValueError(f"of another format than {FORMAT}")
        return AnalysisRecord(**entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no record of an analysis can be read there ({error})") from error


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value
