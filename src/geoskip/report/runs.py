"""The runs that a report is about, found under folders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from geoskip.records import RecordError, RunRecord, Samples, read_record, read_samples
from geoskip.records.reading import ReadError, read_json

RECORD, SAMPLES = "record.json", "samples.safetensors"


@dataclass(frozen=True, eq=False)
class ReportRun:
    """A run as the report sees it: its record and, where it has any, its samples."""

    record: RunRecord
    samples: Samples | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """Runs in order of their paths, and what could not be read, in words."""

    runs: tuple[ReportRun, ...]
    problems: tuple[str, ...]


def find_runs(places: Iterable[str | Path]) -> Found:
    """Every run in the given folders and below them; a file is taken for a record.

    A record is any JSON file that looks like one, whatever it is called; samples lie beside it. A run that is found
    twice, with and without its samples, counts once. A file that cannot be read costs its run only, and is reported.
    """
    runs: dict[str, ReportRun] = {}
    problems = []
    for path in _records(places):
        try:
            record = read_record(path)
        except RecordError as error:
            problems.append(str(error))
            continue
        beside = path.with_name(SAMPLES)
        try:
            samples = read_samples(beside) if path.name == RECORD and beside.exists() else None
        except RecordError as error:
            problems.append(str(error))
            samples = None
        known = runs.get(_identity(record))
        if known is None or known.samples is None:
            runs[_identity(record)] = ReportRun(record, samples)
    if not runs:
        raise RecordError("; ".join(problems) or "no run was named: give a run's folder, or a folder of runs")
    return Found(tuple(runs.values()), tuple(problems))


def _records(places: Iterable[str | Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for place in map(Path, places):
        if not place.exists():
            raise RecordError(f"{place}: there is no such file or folder")
        below = [path for path in sorted(place.rglob("*.json")) if _is_record(path)] if place.is_dir() else [place]
        if not below:
            raise RecordError(f"{place}: no run there: a run's folder holds a {RECORD}")
        found |= dict.fromkeys(below)
    return list(found)


def _is_record(path: Path) -> bool:
    """Whether a file is called a record, or holds what only a record holds."""
    if path.name == RECORD:
        return True
    try:
        entries = read_json(path)
    except (OSError, ReadError):
        return False
    return isinstance(entries, dict) and {"format", "seed", "parameters", "metrics"} <= set(entries)


def _identity(record: RunRecord) -> str:
    """The same for two copies of a record."""
    return json.dumps([asdict(record) | {"curves": 0}], sort_keys=True)
