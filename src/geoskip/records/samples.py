"""A few test items as a run sees them, for the report to show: one safetensors file per run.

Arrays are float32 and int32 in memory; in the file, each has the smallest type that represents it exactly. Names and
units are in the metadata of the file. Every record is checked when it is created, so that a file that can be read can
also be drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors.numpy import save

from geoskip.arguments import check_value
from geoskip.records.files import DamagedFileError, atomic_write, read_verified
from geoskip.records.reading import parse_arrays, parse_json
from geoskip.records.run_record import RecordError
from geoskip.shapes import Float, Int

# The input, its reconstruction, and what is decoded if only one half of every block is kept.
PARTS = ("input", "full", "affine", "convolution")


@dataclass(frozen=True, eq=False)
class MeshLevel:
    """A coarser level of a mesh hierarchy; its vertices are vertices of the finest mesh.

    kept: the index of each vertex in the finest mesh.
    faces: triangles, numbered within the level.
    """

    kept: Int[np.ndarray, " kept"]
    faces: Int[np.ndarray, "triangles 3"]


@dataclass(frozen=True, eq=False)
class MeshSamples:
    """Meshes and their reconstructions, all with the same connectivity.

    names: the names of the samples.
    faces: triangles.
    unit_mm: the length of a unit of the positions in millimeters.
    parts: positions by part: ``"input"``, ``"full"`` and, if the model has such halves, ``"affine"`` and
        ``"convolution"``.
    levels: the coarser levels of the hierarchy, if any, finest first.
    """

    kind: ClassVar[str] = "meshes"
    format: ClassVar[str] = "1"

    names: tuple[str, ...]
    faces: Int[np.ndarray, "faces 3"]
    unit_mm: float
    parts: Mapping[str, Float[np.ndarray, "samples vertices 3"]]
    levels: tuple[MeshLevel, ...] = ()

    def __post_init__(self) -> None:
        if missing := [name for name in ("input", "full") if name not in self.parts]:
            raise RecordError(f"samples: parts have no {missing[0]!r}")
        if unknown := sorted(set(self.parts) - set(PARTS)):
            raise RecordError(f"samples: unknown part {unknown[0]!r}; parts are {', '.join(PARTS)}")
        if not (np.isfinite(self.unit_mm) and self.unit_mm > 0):
            raise RecordError(f"samples: unit_mm must be a positive length, got {self.unit_mm}")
        input = _floats("input", self.parts["input"], (len(self.names), None, 3))
        num_vertices, levels = input.shape[1], []
        for level in self.levels:
            kept = _indices("levels.kept", level.kept, (None,), num_vertices)
            levels.append(MeshLevel(kept, _indices("levels.faces", level.faces, (None, 3), len(kept))))
        _set(
            self,
            parts={name: _floats(name, self.parts[name], input.shape) for name in PARTS if name in self.parts},
            faces=_indices("faces", self.faces, (None, 3), num_vertices),
            levels=tuple(levels),
        )

    @property
    def count(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class MatchedMesh:
    """A mesh whose vertices were matched with those of a target.

    name: the name of the sample.
    verts, faces: the mesh.
    predicted: the target vertex that each vertex was matched with.
    labels: the true target vertex; -1 if it is not known.
    error_pct: the geodesic distance on the target between the two, in percent of its geodesic diameter; NaN if the
        label is not known.
    """

    name: str
    verts: Float[np.ndarray, "vertices 3"]
    faces: Int[np.ndarray, "faces 3"]
    predicted: Int[np.ndarray, " vertices"]
    labels: Int[np.ndarray, " vertices"]
    error_pct: Float[np.ndarray, " vertices"]

    @property
    def mean_error_pct(self) -> float | None:
        """The mean over the labeled vertices; None if there are none."""
        known = self.labels >= 0
        return float(self.error_pct[known].mean()) if known.any() else None

    @property
    def exact_pct(self) -> float | None:
        """The percentage of labeled vertices that were matched exactly; None if there are none."""
        known = self.labels >= 0
        return float((self.predicted == self.labels)[known].mean() * 100) if known.any() else None


@dataclass(frozen=True, eq=False)
class CorrespondenceSamples:
    """Meshes of any connectivity, matched with one target.

    meshes: the samples.
    target_verts, target_faces: the mesh that they were matched with.
    """

    kind: ClassVar[str] = "correspondence"
    format: ClassVar[str] = "2"

    meshes: tuple[MatchedMesh, ...]
    target_verts: Float[np.ndarray, "targets 3"]
    target_faces: Int[np.ndarray, "target_faces 3"]

    def __post_init__(self) -> None:
        target = _floats("target_verts", self.target_verts, (None, 3))
        _set(
            self,
            meshes=tuple(_checked_match(mesh, len(target)) for mesh in self.meshes),
            target_verts=target,
            target_faces=_indices("target_faces", self.target_faces, (None, 3), len(target)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(mesh.name for mesh in self.meshes)

    @property
    def count(self) -> int:
        return len(self.meshes)


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Classified graphs, packed one after another.

    pos: the position of each vertex in the plane, with the row pointing down.
    x: vertex features; the first is drawn as brightness.
    edges: senders and receivers, numbered over all graphs.
    offsets: the vertices of graph g are ``offsets[g] : offsets[g + 1]``.
    true, predicted: the class of each graph, and the class that the model predicted.
    class_names: the names of the classes.
    names: of the graphs; empty if they have none.
    """

    kind: ClassVar[str] = "graphs"
    format: ClassVar[str] = "1"

    pos: Float[np.ndarray, "vertices 2"]
    x: Float[np.ndarray, "vertices channels"]
    edges: Int[np.ndarray, "2 edges"]
    offsets: Int[np.ndarray, " graphs_plus_1"]
    true: Int[np.ndarray, " graphs"]
    predicted: Int[np.ndarray, " graphs"]
    class_names: tuple[str, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        pos = _floats("pos", self.pos, (None, 2))
        offsets = _indices("offsets", self.offsets, (None,), len(pos) + 1)
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(pos) or (np.diff(offsets) < 0).any():
            raise RecordError(f"samples: offsets must ascend from 0 to the {len(pos)} vertices")
        graphs, classes = (len(offsets) - 1,), len(self.class_names)
        if self.names and (len(self.names),) != graphs:
            raise RecordError(f"samples: {len(self.names)} names for {graphs[0]} graphs")
        _set(
            self,
            pos=pos,
            x=_floats("x", self.x, (len(pos), None)),
            edges=_indices("edges", self.edges, (2, None), len(pos)),
            offsets=offsets,
            true=_indices("true", self.true, graphs, classes),
            predicted=_indices("predicted", self.predicted, graphs, classes),
        )

    @property
    def count(self) -> int:
        return len(self.true)


Samples = MeshSamples | CorrespondenceSamples | GraphSamples
KINDS: dict[str, type[Samples]] = {cls.kind: cls for cls in (MeshSamples, CorrespondenceSamples, GraphSamples)}
# What is stored in the metadata.
_PLAIN = {"names": tuple[str, ...], "unit_mm": float, "class_names": tuple[str, ...]}
# Arrays of real numbers; the others are indices.
_REAL = {*PARTS, "verts", "target_verts", "error_pct", "pos", "x"}
_MATCH_ARRAYS = tuple(entry.name for entry in fields(MatchedMesh) if entry.name != "name")


def write_samples(path: str | Path, samples: Samples) -> None:
    """Write samples atomically."""
    arrays: dict[str, np.ndarray] = {}
    plain: dict[str, Any] = {}
    for entry in fields(samples):
        name, value = entry.name, getattr(samples, entry.name)
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, Mapping):
            arrays |= {f"{name}.{part}": array for part, array in value.items()}
        elif name in ("levels", "meshes"):
            for k, item in enumerate(value):
                own = vars(item).items()
                arrays |= {f"{name}.{k}.{part}": array for part, array in own if isinstance(array, np.ndarray)}
        else:
            plain[name] = value
    if isinstance(samples, CorrespondenceSamples):
        plain["names"] = samples.names
    metadata = {"geoskip": "samples", "format": samples.format, "kind": samples.kind, "plain": json.dumps(plain)}
    atomic_write(path, save({name: _smallest(array) for name, array in arrays.items()}, metadata))


def _smallest(array: np.ndarray) -> np.ndarray:
    """The array in the smallest type that represents it exactly."""
    types = ("uint8", "int16", "uint16", "float16") if array.dtype.kind == "f" else ("uint8", "int16", "uint16")
    with np.errstate(invalid="ignore", over="ignore"):
        copies = (array.astype(name) for name in types)
        return next((copy for copy in copies if np.array_equal(copy, array, equal_nan=True)), array)


def _widened(name: str, array: np.ndarray) -> np.ndarray:
    """Small integers in the type that the array has in memory; everything else as it is, for the records to check."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize > 2:
        return array
    return array.astype(np.float32 if name.rpartition(".")[2] in _REAL else np.int32)


def read_samples(path: str | Path) -> Samples:
    """The samples in a file; RecordError, naming the file, if there are none or if they cannot be drawn."""
    try:
        return _unpack(*parse_arrays(read_verified(Path(path))))
    except DamagedFileError as error:
        raise RecordError(str(error)) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        fault = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RecordError(f"{path}: cannot be read as samples: {fault}") from error


def _unpack(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Samples:
    if metadata.get("geoskip") != "samples":
        raise RecordError("not a file of samples")
    cls: Any = KINDS[metadata["kind"]]
    if metadata.get("format") != cls.format:
        raise RecordError(
            f"{cls.kind} in format {metadata.get('format')}; this version reads {cls.format}: run it again, or update"
        )
    arrays = {name: _widened(name, array) for name, array in arrays.items()}
    entries: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
    plain = _parse_plain(metadata["plain"])
    if wrong := sorted(_PLAIN.keys() & entries.keys()):
        raise RecordError(f"{wrong[0]} is stored as an array")
    if cls is MeshSamples:
        entries["parts"] = {name[6:]: array for name, array in arrays.items() if name.startswith("parts.")}
        num_levels = sum(name.startswith("levels.") and name.endswith(".kept") for name in arrays)
        entries["levels"] = tuple(
            MeshLevel(arrays[f"levels.{k}.kept"], arrays[f"levels.{k}.faces"]) for k in range(num_levels)
        )
    if cls is CorrespondenceSamples:
        entries["meshes"] = tuple(
            MatchedMesh(name, **{field: arrays[f"meshes.{k}.{field}"] for field in _MATCH_ARRAYS})
            for k, name in enumerate(plain.pop("names"))
        )
    return cls(**entries, **plain)


def _parse_plain(text: str) -> dict[str, Any]:
    """The entries in the metadata."""
    entries = parse_json(text)
    if not isinstance(entries, dict):
        raise RecordError("its metadata are not a JSON object")
    for name, value in entries.items():
        check_value(name, value, _PLAIN.get(name, Any))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()}


def _set(record: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


def _checked_match(mesh: MatchedMesh, num_targets: int) -> MatchedMesh:
    verts = _floats("verts", mesh.verts, (None, 3))
    labels = _indices("labels", mesh.labels, (len(verts),), num_targets, least=-1)
    error_pct = _floats("error_pct", mesh.error_pct, labels.shape, known=labels >= 0)
    if not np.isnan(error_pct[labels < 0]).all():
        raise RecordError("samples: error_pct must be NaN where there is no label")
    predicted = _indices("predicted", mesh.predicted, labels.shape, num_targets)
    faces = _indices("faces", mesh.faces, (None, 3), len(verts))
    return MatchedMesh(mesh.name, verts, faces, predicted, labels, error_pct)


def _floats(name: str, array: np.ndarray, shape: tuple[int | None, ...], known: Any = ...) -> np.ndarray:
    """A float32 copy of ``array``, which must have the given shape and be finite where ``known``."""
    _check_shape(name, array, shape)
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array[known]).all():
        raise RecordError(f"samples: {name} must be finite")
    return array


def _indices(name: str, array: np.ndarray, shape: tuple[int | None, ...], limit: int, least: int = 0) -> np.ndarray:
    _check_shape(name, array, shape)
    if array.dtype.kind not in "iu":
        raise RecordError(f"samples: {name} must be integers, got {array.dtype}")
    if array.size and (array.min() < least or array.max() >= limit):
        raise RecordError(f"samples: {name} must lie from {least} to {limit - 1}")
    return np.ascontiguousarray(array, dtype=np.int32)


def _check_shape(name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> None:
    fits = array.ndim == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = ", ".join("…" if want is None else str(want) for want in shape)
        raise RecordError(f"samples: {name} must be of shape ({wanted}), got {array.shape}")
