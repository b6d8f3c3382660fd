"""The body of a PLY file: the records of each element, by columns.

A record is a row of fields, one per property; scalars are lists of length one. Records whose lists are all as
long as those of the first, as in every triangle mesh, are read at a fixed stride; others one by one.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from geoskip.meshes.files.ply_header import Element, Header
from geoskip.meshes.files.polygons import float_array, int_array
from geoskip.meshes.mesh import MeshError


class Column(NamedTuple):
    """The field of every record: its lengths, and its values one after another."""

    sizes: np.ndarray
    values: np.ndarray


class Field(NamedTuple):
    """Where a list's length (-1 for a scalar) and its values stand in one record."""

    size_at: int
    at: int
    size: int


class Body(ABC):
    """A cursor over ``length`` units (bytes, or words of text); elements are taken in the header's order."""

    at: int
    length: int

    @abstractmethod
    def width(self, code: str) -> int:
        """Units that one value takes."""

    @abstractmethod
    def integer(self, code: str, at: int) -> int:
        """One value."""

    @abstractmethod
    def strided(self, code: str, at: int, stride: int, rows: int, size: int) -> np.ndarray:
        """``rows`` × ``size`` values, a row every ``stride`` units."""

    @abstractmethod
    def spans(self, code: str, spans: list[Field]) -> np.ndarray:
        """The values of several fields, one after another."""

    @abstractmethod
    def rest(self) -> bytes:
        """What no element has taken."""

    def take(self, element: Element, wanted: Collection[str]) -> dict[str, Column]:
        """The ``wanted`` columns of the next element."""
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
        """The fields of the record that starts at ``at``, and where it ends."""
        fields = []
        for prop in element.properties:
            size, size_at = 1, -1
            if prop.size_code:
                self._require(self.width(prop.size_code), at)
                size, size_at = self.integer(prop.size_code, at), at
                at += self.width(prop.size_code)
            if size < 0:
                raise MeshError(f"PLY {element.name}: a list {prop.name!r} of length {size}")
            self._require(size * self.width(prop.code), at)
            fields.append(Field(size_at, at, size))
            at += size * self.width(prop.code)
        return fields, at

    def _require(self, units: int, at: int | None = None) -> None:
        if (self.at if at is None else at) + units > self.length:
            raise MeshError("truncated: the PLY header promises more than the file holds")


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
        # Whole rows as opaque items: copied many times faster than unaligned numbers.
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
