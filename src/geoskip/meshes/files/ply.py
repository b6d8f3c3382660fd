"""PLY, ASCII and binary in both byte orders: elements ``vertex`` (x, y, z) and ``face`` (vertex_indices).

The header lists the elements in order, each with a count and typed properties (Turk 1994). The body holds the records
of each element. A record is a row of fields, one per property; a scalar is a list of length 1. If all lists are as long
as those of the first record, as in every triangle mesh, the records are read at a fixed stride, otherwise one by one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from geoskip.meshes.files.polygons import Polygons, float_array, int_array
from geoskip.meshes.mesh import Mesh, MeshError

_MAX_HEADER_BYTES = 1 << 20
_MAX_PROPERTIES = 1000
# Both spellings of the types, as NumPy codes without byte order.
_TYPE_NAMES = "char uchar short ushort int uint float double int8 uint8 int16 uint16 int32 uint32 float32 float64"
_TYPES = dict(zip(_TYPE_NAMES.split(), ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"] * 2, strict=True))
_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_END = re.compile(rb"(?:^|\n)end_header[ \t]*\r?\n")
_COLUMNS = {"vertex": ("x", "y", "z"), "face": ("vertex_indices", "vertex_index")}


def parse_ply(data: bytes) -> Polygons:
    header = _parse_header(data)
    columns = _columns(header, BinaryBody(data, header) if header.order else TextBody(data, header))
    vertex, face = columns.get("vertex", {}), columns.get("face", {})
    if not vertex.keys() >= {"x", "y", "z"}:
        raise MeshError("PLY file without vertices: it needs an element 'vertex' with x, y and z")
    if len(face) != 1:
        raise MeshError("PLY file without faces: it needs an element 'face' with one list 'vertex_indices'")
    (indices,) = face.values()
    if indices.values.dtype.kind not in "iu":
        raise MeshError("PLY face indices must be integers, but the header declares floats")
    if any((vertex[axis].sizes != 1).any() for axis in "xyz"):
        raise MeshError("PLY vertex coordinates must be scalars, but the header declares lists")
    verts = np.stack([vertex[axis].values for axis in "xyz"], axis=1)
    return Polygons(verts, indices.sizes, indices.values)


def _columns(header: Header, body: Body) -> dict[str, dict[str, Column]]:
    columns: dict[str, dict[str, Column]] = {}
    for element in header.elements:
        if element.name in columns:
            raise MeshError(f"PLY header: two elements {element.name!r}")
        columns[element.name] = body.take(element, _COLUMNS.get(element.name, ()))
    if body.rest().strip(b"\r\n\t \0"):
        raise MeshError("PLY file has data after the last element of its header")
    return columns


@dataclass(frozen=True)
class Property:
    """A scalar of type ``code`` or, if ``size_code`` is set, a list of them preceded by its length."""

    name: str
    code: str
    size_code: str = ""


@dataclass(frozen=True)
class Element:
    name: str
    count: int
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True)
class Header:
    """order: the byte order, "" for ASCII. length: the number of bytes before the body."""

    order: str
    elements: tuple[Element, ...]
    length: int


def _parse_header(data: bytes) -> Header:
    end = _END.search(data, 0, _MAX_HEADER_BYTES)
    if not data.startswith(b"ply") or end is None:
        raise MeshError("not a PLY file: no header from 'ply' to 'end_header'")
    magic, *lines = data[: end.start()].decode("latin-1").split("\n")
    statements = [words for words in map(str.split, lines) if words and words[0] not in ("comment", "obj_info")]
    if magic.strip() != "ply" or not statements:
        raise MeshError("not a PLY file: its first line is not 'ply'")
    elements: list[Element] = []
    for words in statements[1:]:
        _add_statement(words, elements)
    return Header(_byte_order(statements[0]), tuple(elements), end.end())


def _byte_order(words: list[str]) -> str:
    if len(words) != 3 or words[0] != "format" or words[1] not in _FORMATS or words[2] != "1.0":
        raise MeshError(f"PLY header: expected a format of version 1.0, got {' '.join(words)[:80]!r}")
    return _FORMATS[words[1]]


def _add_statement(words: list[str], elements: list[Element]) -> None:
    match words:
        case ["element", name, count] if re.fullmatch("[0-9]{1,18}", count):
            elements.append(Element(name, int(count)))
        case ["property", "list", size, code, name] if elements and size in _TYPES and code in _TYPES:
            _append_property(elements, Property(name, _TYPES[code], _TYPES[size]))
        case ["property", code, name] if elements and code in _TYPES:
            _append_property(elements, Property(name, _TYPES[code]))
        case _:
            raise MeshError(f"PLY header: cannot read {' '.join(words)[:80]!r}")


def _append_property(elements: list[Element], new: Property) -> None:
    last = elements[-1]
    if new.size_code.startswith("f"):
        raise MeshError(f"PLY header: the list {new.name!r} has a length that is not an integer")
    if len(last.properties) == _MAX_PROPERTIES:
        raise MeshError(f"PLY header: {last.name!r} has more than {_MAX_PROPERTIES} properties")
    if any(old.name == new.name for old in last.properties):
        raise MeshError(f"PLY header: {last.name!r} has two properties {new.name!r}")
    elements[-1] = Element(last.name, last.count, (*last.properties, new))


class Column(NamedTuple):
    """One property of all records: the length of each list, and the values of all lists one after another."""

    sizes: np.ndarray
    values: np.ndarray


class Field(NamedTuple):
    """The position of a list's length (-1 for a scalar) and of its values in one record."""

    size_at: int
    at: int
    size: int


class Body(ABC):
    """A cursor over ``length`` units: bytes of a binary body or words of text. Elements are read in header order."""

    at: int
    length: int

    @abstractmethod
    def width(self, code: str) -> int:
        """The number of units of one value."""

    @abstractmethod
    def integer(self, code: str, at: int) -> int:
        """One value."""

    @abstractmethod
    def strided(self, code: str, at: int, stride: int, rows: int, size: int) -> np.ndarray:
        """``rows`` × ``size`` values; rows are ``stride`` units apart."""

    @abstractmethod
    def spans(self, code: str, spans: list[Field]) -> np.ndarray:
        """The values of several fields, one after another."""

    @abstractmethod
    def rest(self) -> bytes:
        """What is left after the last element."""

    def take(self, element: Element, wanted: Collection[str]) -> dict[str, Column]:
        """Read the next element and return the columns named in ``wanted``."""
        if element.count == 0 or not element.properties:
            return {}
        self._require(element.count * sum(self.width(p.size_code or p.code) for p in element.properties))
        columns = self._take_uniform(element, wanted)
        return self._take_each(element, wanted) if columns is None else columns

    def _take_uniform(self, element: Element, wanted: Collection[str]) -> dict[str, Column] | None:
        rows = element.count
        first, end = self._record(element, self.at)
        stride = end - self.at
        if self.at + rows * stride > self.length:
            return None
        for prop, field in zip(element.properties, first, strict=True):
            if prop.size_code:
                sizes = self.strided(prop.size_code, field.size_at, stride, rows, 1)
                if (sizes != field.size).any():
                    return None
        self.at += rows * stride
        return {
            prop.name: Column(
                np.full(rows, field.size),
                self.strided(prop.code, field.at, stride, rows, field.size).reshape(-1),
            )
            for prop, field in zip(element.properties, first, strict=True)
            if prop.name in wanted
        }

    def _take_each(self, element: Element, wanted: Collection[str]) -> dict[str, Column]:
        kept: dict[str, list[Field]] = {name: [] for name in wanted}
        for _ in range(element.count):
            record, self.at = self._record(element, self.at)
            for prop, field in zip(element.properties, record, strict=True):
                if prop.name in kept:
                    kept[prop.name].append(field)
        return {
            prop.name: Column(
                np.array([field.size for field in kept[prop.name]]), self.spans(prop.code, kept[prop.name])
            )
            for prop in element.properties
            if prop.name in kept
        }

    def _record(self, element: Element, at: int) -> tuple[list[Field], int]:
        """The fields of the record that starts at ``at``, and its end."""
        fields = []
        for prop in element.properties:
            size, size_at = 1, -1
            if prop.size_code:
                self._require(self.width(prop.size_code), at)
                size, size_at = self.integer(prop.size_code, at), at
                at += self.width(prop.size_code)
            if size < 0:
                raise MeshError(f"PLY {element.name}: the list {prop.name!r} has length {size}")
            self._require(size * self.width(prop.code), at)
            fields.append(Field(size_at, at, size))
            at += size * self.width(prop.code)
        return fields, at

    def _require(self, units: int, at: int | None = None) -> None:
        if (self.at if at is None else at) + units > self.length:
            raise MeshError("truncated: the PLY header announces more data than the file has")


class BinaryBody(Body):
    def __init__(self, data: bytes, header: Header) -> None:
        self.data, self.order = data, header.order
        self.at, self.length = header.length, len(data)

    def width(self, code: str) -> int:
        return int(code[1])

    def integer(self, code: str, at: int) -> int:
        order: Literal["little", "big"] = "little" if self.order == "<" else "big"
        return int.from_bytes(self.data[at : at + self.width(code)], order, signed=code.startswith("i"))

    def strided(self, code: str, at: int, stride: int, rows: int, size: int) -> np.ndarray:
        if size == 0:
            return np.empty((rows, 0), dtype=code)
        # Copying whole rows as opaque items is many times faster than copying unaligned numbers.
        opaque = np.ndarray((rows,), f"V{size * self.width(code)}", self.data, at, (stride,))
        return opaque.copy().view(self.order + code).reshape(rows, size)

    def spans(self, code: str, spans: list[Field]) -> np.ndarray:
        width = self.width(code)
        parts = b"".join(self.data[field.at : field.at + field.size * width] for field in spans)
        return np.frombuffer(parts, self.order + code)

    def rest(self) -> bytes:
        return self.data[self.at :]


class TextBody(Body):
    def __init__(self, data: bytes, header: Header) -> None:
        self.words = data[header.length :].split()
        self.at, self.length = 0, len(self.words)

    def width(self, code: str) -> int:
        return 1

    def integer(self, code: str, at: int) -> int:
        return int(int_array([self.words[at]])[0])

    def strided(self, code: str, at: int, stride: int, rows: int, size: int) -> np.ndarray:
        columns = [self.words[at + c : at + c + (rows - 1) * stride + 1 : stride] for c in range(size)]
        return _numbers(code, list(chain.from_iterable(columns))).reshape(size, rows).T

    def spans(self, code: str, spans: list[Field]) -> np.ndarray:
        words = chain.from_iterable(self.words[field.at : field.at + field.size] for field in spans)
        return _numbers(code, list(words))

    def rest(self) -> bytes:
        return b"".join(self.words[self.at :])


def _numbers(code: str, words: list[bytes]) -> np.ndarray:
    return float_array(words) if code.startswith("f") else int_array(words)


def encode_ply(mesh: Mesh) -> bytes:
    """Binary, little endian, with float64 positions, so that nothing is rounded."""
    faces = np.empty(mesh.num_faces, dtype=[("size", "u1"), ("corners", "<i4", 3)])
    faces["size"], faces["corners"] = 3, mesh.faces
    return _encode_header(mesh, "binary_little_endian") + mesh.verts.astype("<f8").tobytes() + faces.tobytes()


def encode_ply_ascii(mesh: Mesh) -> bytes:
    """ASCII, with the shortest decimals that read back as the same float64."""
    verts = [f"{x!r} {y!r} {z!r}\n" for x, y, z in mesh.verts.tolist()]
    faces = [f"3 {a} {b} {c}\n" for a, b, c in mesh.faces.tolist()]
    return _encode_header(mesh, "ascii") + "".join(verts + faces).encode()


def _encode_header(mesh: Mesh, encoding: str) -> bytes:
    lines = ["ply", f"format {encoding} 1.0", f"element vertex {mesh.num_vertices}"]
    lines += [f"property double {axis}" for axis in "xyz"]
    lines += [f"element face {mesh.num_faces}", "property list uchar int vertex_indices", "end_header", ""]
    return "\n".join(lines).encode()
