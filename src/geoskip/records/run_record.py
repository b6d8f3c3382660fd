"""The record of a training run as JSON: its configuration, its environment and its results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from geoskip.arguments import check_value
from geoskip.records.files import DamagedFileError, atomic_write, json_sha256, read_verified
from geoskip.records.reading import ReadError, parse_json

# Format 1 has no checksum.
FORMATS = (1, 2)


class RecordError(ValueError):
    """A file that is not a run record, or one that this version cannot read."""


@dataclass(frozen=True)
class RunRecord:
    """The results of one training run.

    Attributes:
        name: the method, as tables print it: ``"Aff-MoNet"``.
        experiment: the experiment that the run belongs to, such as ``"table1"``; empty for a user's own run.
        row: the row of the experiment: ``"Aff-MoNet M=9"``.
        config: the resolved configuration.
        seed: the seed of the initial values and of the order of the data.
        parameters: the number of trained parameters.
        steps: the number of optimizer steps.
        epochs: passes over the training items.
        schedule: ``"full"`` as in the paper, ``"short"``, ``"smoke"``, or ``"own"``.
        seconds: the wall time of training.
        device: a description of the device.
        versions: the versions of Python and of the packages that matter.
        metrics: the results at the end of training. Reconstruction has ``mean_mm``, ``std_mm``, ``median_mm``;
            correspondence ``accuracy_pct``, ``geodesic_mean_pct``; classification ``accuracy_pct``.
        curves: points (x, y) by name: ``loss`` over epochs; ``geodesic``, the percentage of vertices matched within
            an error in percent of the diameter.
        paper: the paper's results for the row, named as in ``metrics``.
        weight_matrices: in a convolution; 0 if the operator has no kernel size, and in older records.
        commit: of geoskip's source, with a + if files had been changed; empty if unknown, and in older records.
        data_key: identifies the data, see :class:`~geoskip.data.MeshSet`; empty if unknown, and in older records.
        data_versions: of Python and the packages that made the data; empty if unknown.
        concurrency: how many runs shared the device; 0 in older records.
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
    weight_matrices: int = 0
    commit: str = ""
    data_key: str = ""
    data_versions: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 0


def write_record(path: Path, record: RunRecord) -> None:
    """Write a record atomically."""
    text = json.dumps(record_to_json(record), indent=1, ensure_ascii=False)
    atomic_write(path, (text + "\n").encode())


def read_record(path: Path) -> RunRecord:
    """The record in a file; RecordError, naming the file, if there is none or if it is not one."""
    try:
        entries = parse_json(read_verified(path))
    except DamagedFileError as error:
        raise RecordError(str(error)) from error
    except (OSError, ReadError) as error:
        raise RecordError(f"{path}: cannot be read as a run record: {error}") from error
    return record_from_json(entries, str(path))


def record_to_json(record: RunRecord) -> dict[str, Any]:
    """A record as plain JSON, with its own checksum, because records are copied and kept without their runs."""
    entries = json.loads(json.dumps({"format": FORMATS[-1], **asdict(record)}, allow_nan=False))
    return {**entries, "sha256": json_sha256(entries)}


def record_from_json(entries: Any, source: str) -> RunRecord:
    """The record in plain JSON; errors name its ``source``."""
    if not isinstance(entries, dict):
        raise RecordError(f"{source}: not a run record: not a JSON object")
    given = {name: value for name, value in entries.items() if name not in ("format", "sha256")}
    try:
        _check(given, entries.get("format"), entries.get("sha256"))
    except ValueError as error:
        raise RecordError(f"{source}: {error}") from error
    # JSON has no tuples and does not distinguish 1 from 1.0.
    given |= {name: float(given[name]) for name in ("epochs", "seconds")}
    for group in ("metrics", "paper"):
        given[group] = {name: float(value) for name, value in given.get(group, {}).items()}
    curves = given.get("curves", {})
    given["curves"] = {name: [(float(x), float(y)) for x, y in points] for name, points in curves.items()}
    return RunRecord(**given)


def _check(given: dict[str, Any], version: Any, checksum: Any) -> None:
    """ValueError unless these are the entries of a record."""
    if version not in FORMATS:
        raise ValueError(f"format {version!r}; this version reads 1 and 2: run it again, or update geoskip")
    hints = get_type_hints(RunRecord)
    required = {e.name for e in fields(RunRecord) if e.default is MISSING and e.default_factory is MISSING}
    if unknown := sorted(given.keys() - hints.keys()):
        raise ValueError(f"unknown entries {', '.join(unknown)}")
    if missing := sorted(required - given.keys()):
        raise ValueError(f"missing entries {', '.join(missing)}")
    for name, value in sorted(given.items()):
        check_value(name, value, hints[name])
    if version != FORMATS[0] and checksum != json_sha256({"format": version, **given}):
        raise ValueError("damaged: it does not match its own checksum; restore the file, or run it again")
