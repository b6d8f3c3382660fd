"""PLY, ASCII and binary in both byte orders: elements ``vertex`` (x, y, z) and ``face`` (vertex_indices).

The header lists the elements in order, each with a count and typed properties (Turk 1994). The body holds the records
of each element. A record is a row of fields, one per property; a scalar is a list of length 1. If all lists are as long
as those of the first record, as in every triangle mesh, the records are read at a fixed stride, otherwise one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from geoskip.meshes.formats.polygons import Polygons, float_array, int_array
from geoskip.meshes.mesh import Mesh, MeshError

_MAX_HEADER_BYTES = 1 << 20
_MAX_PROPERTIES = 1000
# Both spellings of the types, as NumPy codes without byte order.
_TYPE_NAMES = "char uchar short ushort int uint float double int8 uint8 int16 uint16 int32 uint32 float32 float64"
_TYPES = dict(zip(_TYPE_NAMES.split(), ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"] * 2, strict=True))
_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_END = re.compile(rb"[\r\n]end_header[ \t]*(?:\r?\n|\r)")
_COLUMNS = {"vertex": ("x", "y", "z"), "face": ("vertex_indices", "vertex_index")}


def parse_ply(data: bytes) -> Polygons:
    order, elements, start = _parse_header(data)
    body = Body(data, order, start)
    columns = {element.name: body.take(element, _COLUMNS.get(element.name, ())) for element in elements}
    if body.rest().strip(b"\r\n\t \0"):
        raise MeshError("PLY file has data after the last element of its header")
    vertex, face = columns.get("vertex", {}), columns.get("face", {})
    if not vertex.keys() >= {"x", "y", "z"}:
        raise MeshError("PLY file without vertices: it needs an element 'vertex' with x, y and z")
    if len(face) != 1:
        raise MeshError("PLY file without faces: it needs an element 'face' with one list 'vertex_indices'")
    ((sizes, corners),) = face.values()
    if corners.dtype.kind not in "iu":
        raise MeshError("PLY face indices must be integers, but the header declares floats")
    if any((vertex[axis][0] != 1).any() for axis in "xyz"):
        raise MeshError("PLY vertex coordinates must be scalars, but the header declares lists")
    return Polygons(np.stack([vertex[axis][1] for axis in "xyz"], axis=1), sizes, corners)


class Property(NamedTuple):
    """A scalar of type ``code`` or, if ``size_code`` is set, a list of them preceded by its length."""

    name: str
    code: str
    size_code: str = ""


class Element(NamedTuple):
    name: str
    num_records: int
    properties: list[Property]


def _parse_header(data: bytes) -> tuple[str, list[Element], int]:
    """The byte order ("" for text), the elements, and where the body starts."""
    end = _END.search(data, 0, _MAX_HEADER_BYTES)
    if not data.startswith(b"ply") or end is None:
        raise MeshError("not a PLY file: no header from 'ply' to 'end_header'")
    magic, *lines = (line.decode("latin-1").split() for line in data[: end.start()].splitlines())
    statements = [words for words in lines if words and words[0] not in ("comment", "obj_info")]
    if magic != ["ply"] or not statements:
        raise MeshError("not a PLY file: its first line is not 'ply'")
    first = statements[0]
    if len(first) != 3 or first[0] != "format" or first[1] not in _FORMATS or first[2] != "1.0":
        raise MeshError(f"PLY header: expected a format of version 1.0, got {' '.join(first)[:80]!r}")
    elements: list[Element] = []
    for words in statements[1:]:
        _add_statement(words, elements)
    if len({element.name for element in elements}) != len(elements):
        raise MeshError("PLY header: two elements have the same name")
    return _FORMATS[first[1]], elements, end.end()


def _add_statement(words: list[str], elements: list[Element]) -> None:
    match words:
        case ["element", name, count] if re.fullmatch("[0-9]{1,18}", count):
            elements.append(Element(name, int(count), []))
            return
        case ["property", "list", size, code, name] if elements and size in _TYPES and code in _TYPES:
            new = Property(name, _TYPES[code], _TYPES[size])
        case ["property", code, name] if elements and code in _TYPES:
            new = Property(name, _TYPES[code])
        case _:
            raise MeshError(f"PLY header: cannot read {' '.join(words)[:80]!r}")
    last = elements[-1]
    if new.size_code.startswith("f"):
        raise MeshError(f"PLY header: the list {new.name!r} has a length that is not an integer")
    if len(last.properties) == _MAX_PROPERTIES:
        raise MeshError(f"PLY header: {last.name!r} has more than {_MAX_PROPERTIES} properties")
    if any(old.name == new.name for old in last.properties):
        raise MeshError(f"PLY header: {last.name!r} has two properties {new.name!r}")
    last.properties.append(new)


# One property of all records: the length of each list (1 for scalars), and the values of all lists in order.
Column = tuple[np.ndarray, np.ndarray]


class Body:
    """The records after the header, as ``length`` units: bytes of a binary file or words of a text file."""

    def __init__(self, data: bytes, order: str, start: int) -> None:
        self.order = order
        self.data = data if order else b""
        self.words = [] if order else data[start:].split()
        self.at = start if order else 0
        self.length = len(data) if order else len(self.words)

    def width(self, code: str) -> int:
        """The number of units of one value."""
        return int(code[1]) if self.order else 1

    def values(self, code: str, at: np.ndarray) -> np.ndarray:
        """The values that start at the units ``at``."""
        if self.order:
            # A view of all bytes in which a value starts at every byte.
            view = np.ndarray((max(self.length - self.width(code) + 1, 0),), self.order + code, self.data, 0, (1,))
            return view[at]
        words = [self.words[i] for i in at.tolist()]
        return float_array(words) if code.startswith("f") else int_array(words)

    def take(self, element: Element, wanted: Collection[str]) -> dict[str, Column]:
        """Read the next element and return the columns named in ``wanted``."""
        properties = element.properties
        if element.num_records == 0 or not properties:
            return {}
        self._require(element.num_records * sum(self.width(p.size_code or p.code) for p in properties), self.at)
        starts, sizes = self._uniform_layout(element) or self._layout(element)
        return {
            prop.name: (sizes[k], self.values(prop.code, _ranges(starts[k], sizes[k], self.width(prop.code))))
            for k, prop in enumerate(properties)
            if prop.name in wanted
        }

    def _uniform_layout(self, element: Element) -> tuple[np.ndarray, np.ndarray] | None:
        """Start and size of every field if all lists are as long as those of the first record; else None."""
        first, sizes, end = self._record(element, self.at)
        rows = (end - self.at) * np.arange(element.num_records)
        if self.at + element.num_records * (end - self.at) > self.length:
            return None
        for prop, start, size in zip(element.properties, first, sizes, strict=True):
            if prop.size_code:
                stored = self.values(prop.size_code, start - self.width(prop.size_code) + rows)
                if (stored != size).any():
                    return None
        self.at += element.num_records * (end - self.at)
        return np.add.outer(first, rows), np.repeat(np.array(sizes)[:, None], element.num_records, axis=1)

    def _layout(self, element: Element) -> tuple[np.ndarray, np.ndarray]:
        """Start and size of every field, found record by record."""
        starts, sizes = [], []
        for _ in range(element.num_records):
            record_starts, record_sizes, self.at = self._record(element, self.at)
            starts.append(record_starts)
            sizes.append(record_sizes)
        return np.array(starts).T, np.array(sizes).T

    def _record(self, element: Element, at: int) -> tuple[list[int], list[int], int]:
        """Start and size of the fields of the record at ``at``, and its end."""
        starts, sizes = [], []
        for prop in element.properties:
            size = 1
            if prop.size_code:
                self._require(self.width(prop.size_code), at)
                size = int(self.values(prop.size_code, np.array([at]))[0])
                at += self.width(prop.size_code)
            if size < 0:
                raise MeshError(f"PLY {element.name}: the list {prop.name!r} has length {size}")
            self._require(size * self.width(prop.code), at)
            starts.append(at)
            sizes.append(size)
            at += size * self.width(prop.code)
        return starts, sizes, at

    def rest(self) -> bytes:
        """What is left after the last element."""
        return self.data[self.at :] if self.order else b"".join(self.words[self.at :])

    def _require(self, units: int, at: int) -> None:
        if at + units > self.length:
            raise MeshError("truncated: the PLY header announces more data than the file has")


def _ranges(starts: np.ndarray, sizes: np.ndarray, step: int) -> np.ndarray:
    """start, start + step, …, with ``size`` entries for each start."""
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(starts, sizes) + step * within


def encode_ply(mesh: Mesh) -> bytes:
    """Binary, little endian, with float64 positions, so that nothing is rounded."""
    faces = np.empty(mesh.num_faces, dtype=[("size", "u1"), ("corners", "<i4", 3)])
    faces["size"], faces["corners"] = 3, mesh.faces
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {mesh.num_vertices}"]
    lines += [f"property double {axis}" for axis in "xyz"]
    lines += [f"element face {mesh.num_faces}", "property list uchar int vertex_indices", "end_header", ""]
    return "\n".join(lines).encode() + mesh.verts.astype("<f8").tobytes() + faces.tobytes()
