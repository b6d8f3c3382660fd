"""One trained model, as JSON: what was run, on what, and what came out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from geoskip.records.files import DamagedFileError, atomic_write, json_sha256, read_verified
from geoskip.records.reading import ReadError, parse_json

# Records of format 1 have no checksum.
UNSIGNED, FORMAT = 1, 2


class RecordError(ValueError):
    """A file that is not a run record, or one that this version cannot read."""


@dataclass(frozen=True)
class RunRecord:
    """A run.

    Attributes:
        name: the method, as tables print it: ``"Aff-MoNet"``.
        experiment: the experiment it belongs to, such as ``"table1"``; empty for a run of the user's own.
        row: what tells the row from others of the experiment: ``"Aff-MoNet M=9"``.
        config: the resolved configuration.
        seed: of initial values and of the order of the data.
        parameters: how many numbers were trained.
        steps: updates of the weights.
        epochs: passes over the training items.
        schedule: ``"full"`` as in the paper, ``"short"``, ``"smoke"``, or ``"own"``.
        seconds: wall time of training.
        device: in words.
        versions: of the packages that matter, and of Python.
        metrics: the figures at the end of training. Reconstruction has ``mean_mm``, ``std_mm``, ``median_mm``;
            correspondence ``accuracy_pct``, ``geodesic_mean_pct``; classification ``accuracy_pct``.
        curves: points (x, y) by name: ``loss`` over epochs; ``geodesic``, the percentage of vertices matched within
            an error in percent of the diameter.
        paper: the paper's figures for the row, named as in ``metrics``.
    """

    name: str
    config: Mapping[str, Any]
    seed: int
    parameters: int
    steps: int
    epochs: float
    seconds: float
    device: str
    versions: Mapping[str, str]
    metrics: Mapping[str, float]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    experiment: str = ""
    row: str = ""
    schedule: str = "own"
    paper: Mapping[str, float] = field(default_factory=dict)


def write_record(path: Path, record: RunRecord) -> None:
    """Write a record whole or not at all: a reader never sees half of one."""
    text = json.dumps(record_entries(record), indent=1, ensure_ascii=False)
    atomic_write(path, (text + "\n").encode())


def record_entries(record: RunRecord) -> dict[str, Any]:
    """A record as plain JSON, with a checksum of its own, since records are copied and kept without their runs."""
    entries = json.loads(json.dumps({"format": FORMAT, **asdict(record)}, allow_nan=False))
    return {**entries, "sha256": json_sha256(entries)}


def read_record(path: Path) -> RunRecord:
    """The record in a file; RecordError, naming the file, if there is none or if it is not one."""
    try:
        entries = parse_json(read_verified(path))
    except DamagedFileError as error:
        raise RecordError(str(error)) from error
    except (OSError, ReadError) as error:
        raise RecordError(f"{path}: no run record can be read there ({error})") from error
    return record_from(entries, str(path))


def record_from(entries: Any, place: str = "record") -> RunRecord:
    """The record in plain JSON; ``place`` is named where something is wrong with it."""
    if not isinstance(entries, dict) or "format" not in entries:
        raise RecordError(f'{place}: not a run record: it has no "format"')
    if entries["format"] not in (UNSIGNED, FORMAT):
        wanted = f"this version reads {UNSIGNED} and {FORMAT}: run it again, or update"
        raise RecordError(f"{place}: format {entries['format']!r}; {wanted}")
    known = {entry.name for entry in fields(RunRecord)}
    given = _without(entries, "format", "sha256")
    if unknown := sorted(set(given) - known):
        raise RecordError(f"{place}: unknown entries {', '.join(unknown)}")
    if missing := sorted(entry.name for entry in fields(RunRecord) if _required(entry) and entry.name not in given):
        raise RecordError(f"{place}: a run record has {', '.join(missing)} too")
    _check(given, place)
    if entries["format"] != UNSIGNED and entries.get("sha256") != json_sha256(_without(entries, "sha256")):
        raise RecordError(f"{place}: damaged: it does not match its own checksum; put the file back, or run it again")
    # JSON knows neither pairs nor the difference between 1 and 1.0.
    given["curves"] = {name: [(float(x), float(y)) for x, y in points] for name, points in _of(given, "curves")}
    for group in ("metrics", "paper"):
        given[group] = {name: float(value) for name, value in _of(given, group)}
    return RunRecord(**given | {name: float(given[name]) for name in ("epochs", "seconds")})


_TEXTS = ("name", "experiment", "row", "schedule", "device")
_NUMBERS = ("seed", "parameters", "steps", "epochs", "seconds")


def _check(given: Mapping[str, Any], place: str) -> None:
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise RecordError(f"{place}: {name} must be text, got {given[name]!r}")
    for name in _NUMBERS:
        _number(given[name], f"{place}: {name}")
    for name in ("config", "versions", "metrics", "paper", "curves"):
        if not isinstance(given.get(name, {}), Mapping):
            raise RecordError(f"{place}: {name} must be an object with names, got {given[name]!r}")
    for group in ("metrics", "paper"):
        for name, value in _of(given, group):
            _number(value, f"{place}: {group}.{name}")
    for name, points in _of(given, "curves"):
        if not isinstance(points, list | tuple) or any(not _is_point(point) for point in points):
            raise RecordError(f"{place}: curves.{name} must be a list of points [x, y]")


def _without(entries: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if key not in names}


def _of(given: Mapping[str, Any], group: str) -> Iterable[tuple[str, Any]]:
    return given.get(group, {}).items()


def _required(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _number(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordError(f"{what} must be a finite number, got {value!r}")


def _is_point(point: Any) -> bool:
    return (
        isinstance(point, list | tuple)
        and len(point) == 2
        and all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in point)
    )
