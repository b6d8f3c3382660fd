"""Finds the runs of a report in folders."""

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
    """The record of a run, and its samples if it has any."""

    record: RunRecord
    samples: Samples | None = None


@dataclass(frozen=True, eq=False)
class LoadedRuns:
    """Runs in the order of their paths, and messages about files that could not be read."""

    runs: tuple[ReportRun, ...]
    problems: tuple[str, ...]


def find_runs(paths: Iterable[str | Path]) -> LoadedRuns:
    """Find all runs in the given folders, at any depth; a file is read as a record.

    A record is any JSON file with the entries of one; its samples are in the same folder. A run that occurs twice, with
    and without samples, counts once. A file that cannot be read is reported and does not affect other runs.
    """
    runs: dict[str, ReportRun] = {}
    problems = []
    for path in _records(paths):
        try:
            record = read_record(path)
        except RecordError as error:
            problems.append(str(error))
            continue
        samples_path = path.with_name(SAMPLES)
        try:
            samples = read_samples(samples_path) if path.name == RECORD and samples_path.exists() else None
        except RecordError as error:
            problems.append(str(error))
            samples = None
        known = runs.get(_identity(record))
        if known is None or known.samples is None:
            runs[_identity(record)] = ReportRun(record, samples)
    if not runs:
        raise RecordError("; ".join(problems) or "no runs given: name the folder of a run, or a folder of runs")
    return LoadedRuns(tuple(runs.values()), tuple(problems))


def _records(paths: Iterable[str | Path]) -> list[Path]:
    records: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise RecordError(f"{path}: no such file or folder")
        below = [file for file in sorted(path.rglob("*.json")) if _is_record(file)] if path.is_dir() else [path]
        if not below:
            raise RecordError(f"{path}: contains no run. The folder of a run contains a {RECORD}")
        records |= dict.fromkeys(below)
    return list(records)


def _is_record(path: Path) -> bool:
    """Whether a file has the name of a record or the entries of one."""
    if path.name == RECORD:
        return True
    try:
        entries = read_json(path)
    except (OSError, ReadError):
        return False
    return isinstance(entries, dict) and {"format", "seed", "parameters", "metrics"} <= set(entries)


def _identity(record: RunRecord) -> str:
    """A key that is equal for copies of a record."""
    return json.dumps([asdict(record) | {"curves": 0}], sort_keys=True)
