"""A few items of the test set as a run sees them, for the report to show: one safetensors file a run.

Arrays are kept as float32 and int32, names and units in the file's metadata. Every record is checked when it is made,
so that a file that can be read can also be drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from geoskip.records.files import DamagedFileError, atomic_write, read_verified
from geoskip.records.reading import ReadError, parse_arrays, parse_json
from geoskip.records.run_record import RecordError
from geoskip.shapes import Float, Int

# By kind of samples.
FORMATS = {"meshes": "1", "correspondence": "2", "graphs": "1"}
# The input, its reconstruction, and what decodes where only one half of every block is kept.
PARTS = ("input", "full", "affine", "convolution")
# What is stored in the metadata.
PLAIN = {"names", "unit_mm", "class_names"}


@dataclass(frozen=True, eq=False)
class MeshLevel:
    """A coarser level of a mesh hierarchy; its vertices are vertices of the finest mesh.

    kept: the index in the finest mesh of each vertex of the level.
    faces: triangles, numbered within the level.
    """

    kept: Int[np.ndarray, " kept"]
    faces: Int[np.ndarray, "triangles 3"]


@dataclass(frozen=True, eq=False)
class MeshSamples:
    """Meshes and their reconstructions, all of one connectivity.

    names: what each sample is called.
    faces: triangles.
    unit_mm: millimetres in a unit of the positions; 1 where positions are in millimetres.
    parts: positions by what they are: ``"input"``, ``"full"`` and, where the model has such halves, ``"affine"`` and
        ``"convolution"``.
    levels: the coarser levels of the hierarchy, finest first, where there is one.
    """

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
        input = _positions("input", self.parts["input"], (len(self.names), None, 3))
        parts = {name: _positions(name, self.parts[name], input.shape) for name in PARTS if name in self.parts}
        levels = tuple(_level(level, input.shape[1]) for level in self.levels)
        _set(self, parts=parts, faces=_indices("faces", self.faces, (None, 3), input.shape[1]), levels=levels)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.names)


@dataclass(frozen=True, eq=False)
class MatchedMesh:
    """A mesh whose vertices were matched with those of a target.

    name: what it is called.
    verts, faces: the mesh.
    predicted: the target vertex that each vertex was matched with.
    labels: the target vertex that it truly is; -1 where that is not known.
    error_pct: geodesic distance on the target between the two, in percent of its geodesic diameter; NaN where the
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
        """Over the labelled vertices; None where there are none."""
        return float(self.error_pct[self.labels >= 0].mean()) if (self.labels >= 0).any() else None

    @property
    def exact_pct(self) -> float | None:
        """How many of the labelled vertices were matched exactly; None where there are none."""
        known = self.labels >= 0
        return float((self.predicted == self.labels)[known].mean() * 100) if known.any() else None


@dataclass(frozen=True, eq=False)
class CorrespondenceSamples:
    """Meshes, of any connectivity each, matched with one target.

    meshes: the samples.
    target_verts, target_faces: the mesh that they were matched with.
    """

    meshes: tuple[MatchedMesh, ...]
    target_verts: Float[np.ndarray, "targets 3"]
    target_faces: Int[np.ndarray, "target_faces 3"]

    def __post_init__(self) -> None:
        target = _positions("target_verts", self.target_verts, (None, 3))
        _set(
            self,
            meshes=tuple(_matched(mesh, len(target)) for mesh in self.meshes),
            target_verts=target,
            target_faces=_indices("target_faces", self.target_faces, (None, 3), len(target)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(mesh.name for mesh in self.meshes)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.meshes)


@dataclass(frozen=True, eq=False)
class GraphSamples:
    """Graphs that were classified, packed one after the other.

    pos: where each vertex lies in the plane, row downwards.
    x: its features; the first is drawn as brightness.
    edges: senders and receivers, numbered over all graphs.
    offsets: the vertices of graph g are ``offsets[g] : offsets[g + 1]``.
    true, predicted: the class of each graph, and the one that the model gave.
    class_names: what the classes are called.
    """

    pos: Float[np.ndarray, "vertices 2"]
    x: Float[np.ndarray, "vertices channels"]
    edges: Int[np.ndarray, "2 edges"]
    offsets: Int[np.ndarray, " graphs_plus_1"]
    true: Int[np.ndarray, " graphs"]
    predicted: Int[np.ndarray, " graphs"]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        pos = _positions("pos", self.pos, (None, 2))
        offsets = _indices("offsets", self.offsets, (None,), len(pos) + 1)
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(pos) or (np.diff(offsets) < 0).any():
            raise RecordError(f"samples: offsets must ascend from 0 to the {len(pos)} vertices")
        graphs, classes = (len(offsets) - 1,), len(self.class_names)
        _set(
            self,
            pos=pos,
            x=_positions("x", self.x, (len(pos), None)),
            edges=_indices("edges", self.edges, (2, None), len(pos)),
            offsets=offsets,
            true=_indices("true", self.true, graphs, classes),
            predicted=_indices("predicted", self.predicted, graphs, classes),
        )

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.true)


Samples = MeshSamples | CorrespondenceSamples | GraphSamples
KINDS: dict[str, type[Samples]] = {
    "meshes": MeshSamples,
    "correspondence": CorrespondenceSamples,
    "graphs": GraphSamples,
}


_MATCHED = tuple(entry.name for entry in fields(MatchedMesh) if entry.name != "name")


def write_samples(path: str | Path, samples: Samples) -> None:
    """Write samples whole or not at all."""
    tensors: dict[str, np.ndarray] = {}
    plain: dict[str, Any] = {}
    for entry in fields(samples):
        value = getattr(samples, entry.name)
        if entry.name == "parts":
            tensors |= {f"parts.{name}": array for name, array in value.items()}
        elif entry.name == "levels":
            for number, level in enumerate(value):
                tensors |= {f"levels.{number}.kept": level.kept, f"levels.{number}.faces": level.faces}
        elif entry.name == "meshes":
            plain["names"] = [mesh.name for mesh in value]
            for number, mesh in enumerate(value):
                tensors |= {f"meshes.{number}.{name}": getattr(mesh, name) for name in _MATCHED}
        elif isinstance(value, np.ndarray):
            tensors[entry.name] = value
        else:
            plain[entry.name] = value
    kind = next(name for name, cls in KINDS.items() if type(samples) is cls)
    metadata = {"geoskip": "samples", "format": FORMATS[kind], "kind": kind, "plain": json.dumps(plain)}
    atomic_write(path, save(tensors, metadata))


def read_samples(path: str | Path) -> Samples:
    """The samples in a file; RecordError, naming the file, if there are none or if they cannot be drawn."""
    try:
        tensors, metadata = parse_arrays(read_verified(Path(path)))
        return _from(metadata, tensors)
    except DamagedFileError as error:
        raise RecordError(str(error)) from error
    except (OSError, ReadError, RecordError, KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RecordError(f"{path}: no samples can be read there ({what})") from error


def _from(metadata: Mapping[str, str], tensors: dict[str, np.ndarray]) -> Samples:
    if metadata.get("geoskip") != "samples":
        raise RecordError("not a file of samples")
    kind = metadata["kind"]
    if metadata.get("format") != FORMATS[kind]:
        wanted = f"this version reads {FORMATS[kind]}: run it again, or update"
        raise RecordError(f"{kind} in format {metadata.get('format')}; {wanted}")
    entries: dict[str, Any] = {name: array for name, array in tensors.items() if "." not in name}
    plain = {name: tuple(x) if isinstance(x, list) else x for name, x in _plain(metadata["plain"]).items()}
    if twice := sorted(PLAIN & entries.keys()):
        raise RecordError(f"{twice[0]} is stored as an array")
    cls: Any = KINDS[kind]
    if cls is MeshSamples:
        entries["parts"] = {name[6:]: array for name, array in tensors.items() if name.startswith("parts.")}
        count = sum(name.startswith("levels.") and name.endswith(".kept") for name in tensors)
        entries["levels"] = tuple(
            MeshLevel(tensors[f"levels.{k}.kept"], tensors[f"levels.{k}.faces"]) for k in range(count)
        )
    if cls is CorrespondenceSamples:
        entries["meshes"] = tuple(
            MatchedMesh(name, **{field: tensors[f"meshes.{k}.{field}"] for field in _MATCHED})
            for k, name in enumerate(plain.pop("names"))
        )
    return cls(**entries, **plain)


def _plain(text: str) -> dict[str, Any]:
    """Names and numbers from the metadata: every list in them is one of words."""
    entries = parse_json(text)
    if not isinstance(entries, dict):
        raise RecordError("its metadata are not an object with names")
    for name, value in entries.items():
        words = isinstance(value, list) and all(isinstance(word, str) for word in value)
        if not words and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise RecordError(f"{name} in its metadata is neither a number nor a list of words")
    return entries


def _set(record: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


def _level(level: MeshLevel, num_vertices: int) -> MeshLevel:
    kept = _indices("levels.kept", level.kept, (None,), num_vertices)
    return MeshLevel(kept, _indices("levels.faces", level.faces, (None, 3), len(kept)))


def _matched(mesh: MatchedMesh, targets: int) -> MatchedMesh:
    verts = _positions("verts", mesh.verts, (None, 3))
    labels = _indices("labels", mesh.labels, (len(verts),), targets, least=-1)
    _check_shape("error_pct", mesh.error_pct, labels.shape)
    if not np.isnan(mesh.error_pct[labels < 0]).all():
        raise RecordError("samples: error_pct must be NaN where there is no label")
    _positions("error_pct", mesh.error_pct[labels >= 0], (None,))
    return MatchedMesh(
        name=mesh.name,
        verts=verts,
        faces=_indices("faces", mesh.faces, (None, 3), len(verts)),
        predicted=_indices("predicted", mesh.predicted, labels.shape, targets),
        labels=labels,
        error_pct=np.ascontiguousarray(mesh.error_pct, dtype=np.float32),
    )


def _positions(name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> np.ndarray:
    _check_shape(name, array, shape)
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(array).all():
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
