"""The header of a PLY file: elements in order, each with a count and typed properties (Turk 1994)."""

import re
from dataclasses import dataclass

from geoskip.meshes.mesh import MeshError

MAX_HEADER_BYTES = 1 << 20
MAX_PROPERTIES = 1000
# Both spellings of the standard's types, as numpy codes without byte order.
_NAMES = "char uchar short ushort int uint float double int8 uint8 int16 uint16 int32 uint32 float32 float64"
TYPES = dict(zip(_NAMES.split(), ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"] * 2, strict=True))
FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_END = re.compile(rb"(?:^|\n)end_header[ \t]*\r?\n")


@dataclass(frozen=True)
class Property:
    """A scalar of type ``code``, or, where ``size_code`` is set, a list of them preceded by its length."""

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
    """order: "" for ascii, else the byte order. length: bytes up to the body."""

    order: str
    elements: tuple[Element, ...]
    length: int


def parse_header(data: bytes) -> Header:
    end = _END.search(data, 0, MAX_HEADER_BYTES)
    if not data.startswith(b"ply") or end is None:
        raise MeshError("not a PLY file: no header from 'ply' to 'end_header'")
    magic, *lines = data[: end.start()].decode("latin-1").split("\n")
    statements = [words for words in map(str.split, lines) if words and words[0] not in ("comment", "obj_info")]
    if magic.strip() != "ply" or not statements:
        raise MeshError("not a PLY file: its first line is not 'ply'")
    elements: list[Element] = []
    for words in statements[1:]:
        _add(words, elements)
    return Header(_byte_order(statements[0]), tuple(elements), end.end())


def _byte_order(words: list[str]) -> str:
    if len(words) != 3 or words[0] != "format" or words[1] not in FORMATS or words[2] != "1.0":
        raise MeshError(f"PLY header: {' '.join(words)[:80]!r} where a format of version 1.0 should stand")
    return FORMATS[words[1]]


def _add(words: list[str], elements: list[Element]) -> None:
    match words:
        case ["element", name, count] if re.fullmatch("[0-9]{1,18}", count):
            elements.append(Element(name, int(count)))
        case ["property", "list", size, code, name] if elements and size in TYPES and code in TYPES:
            _append_property(elements, Property(name, TYPES[code], TYPES[size]))
        case ["property", code, name] if elements and code in TYPES:
            _append_property(elements, Property(name, TYPES[code]))
        case _:
            raise MeshError(f"PLY header: cannot read {' '.join(words)[:80]!r}")


def _append_property(elements: list[Element], new: Property) -> None:
    last = elements[-1]
    if new.size_code.startswith("f"):
        raise MeshError(f"PLY header: the list {new.name!r} has a length that is no integer")
    if len(last.properties) == MAX_PROPERTIES:
        raise MeshError(f"PLY header: {last.name!r} has more than {MAX_PROPERTIES} properties")
    if any(old.name == new.name for old in last.properties):
        raise MeshError(f"PLY header: {last.name!r} has two properties {new.name!r}")
    elements[-1] = Element(last.name, last.count, (*last.properties, new))
