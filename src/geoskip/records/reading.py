"""Reads untrusted files: bytes, text, JSON, ``.npy`` and safetensors, with limits.

Every reader of the package uses these functions. They return plain data or raise :class:`ReadError` with one line that
says what is wrong with the contents; the caller adds the name of the file. ``OSError`` passes through. No format here
can execute code (no pickle), and nothing is allocated that the file does not contain.
"""

from __future__ import annotations

import io
import json
import math
import stat
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

MAX_BYTES = 4 << 30
MAX_JSON_BYTES = 256 << 20
MAX_DEPTH = 64
MAX_INTEGER = 1 << 64


class ReadError(ValueError):
    """The contents are not what they should be; the message says why."""


def read_bytes(path: str | Path, limit: int | None = None) -> bytes:
    """A regular file of at most ``limit`` bytes (``MAX_BYTES``): a pipe would block, and a device has no end."""
    path, limit = Path(path), MAX_BYTES if limit is None else limit
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ReadError(f"{path.name} is not a regular file")
    if status.st_size > limit:
        raise ReadError(f"{path.name} has {status.st_size} bytes, more than the limit of {limit}")
    return path.read_bytes()


def read_text(path: str | Path) -> str:
    """A file of UTF-8 text, with or without a byte order mark."""
    try:
        return read_bytes(path, MAX_JSON_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(f"not text in UTF-8: {error}") from error


def read_json(path: str | Path) -> Any:
    """The JSON in a file; see :func:`parse_json`."""
    return parse_json(read_bytes(path, MAX_JSON_BYTES))


def parse_json(text: str | bytes) -> Any:
    """JSON as the standard defines it: no NaN or Infinity, no duplicate names, at most ``MAX_DEPTH`` levels, integers
    that fit into 64 bits, and valid Unicode."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except ReadError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReadError(f"not valid JSON: {str(error)[:200]}") from error
    _check_json(value)
    return value


def read_npy(path: str | Path) -> np.ndarray:
    """The numbers in a ``.npy`` file; see :func:`parse_npy`."""
    return parse_npy(read_bytes(path))


def parse_npy(data: bytes) -> np.ndarray:
    """An array of numbers in native byte order, whose header agrees with the bytes that follow it."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        with warnings.catch_warnings(action="ignore"):  # about old spellings in the header
            shape, fortran, dtype = read_header[version](file)
    except Exception as error:  # of any type: the header is parsed as Python
        raise ReadError("not a .npy file of numbers: its header cannot be read") from error
    if dtype.kind not in "biuf" or dtype.subdtype is not None:
        raise ReadError(f"numbers are needed, not {str(dtype)[:60]}")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ReadError(f"an array cannot have the shape {str(shape)[:60]}")
    count, rest = math.prod(shape), len(data) - file.tell()
    if count * dtype.itemsize != rest or len(shape) > 32:
        raise ReadError(
            f"its header, shape {str(shape)[:60]} of {dtype}, asks for {count * dtype.itemsize:,} bytes of data, but "
            f"the file has {rest:,}"
        )
    flat = np.frombuffer(data, dtype, count, file.tell()) if count else np.zeros(0, dtype)
    try:
        array = flat.reshape(shape, order="F" if fortran else "C")
    except ValueError as error:  # an empty array with another axis too long to count
        raise ReadError(f"an array cannot have the shape {str(shape)[:60]}") from error
    return array.astype(dtype.newbyteorder("="))


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, which may be too large to be held in memory twice."""
    from safetensors.numpy import load_file

    return _load(load_file, path)


def parse_arrays(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file."""
    from safetensors.numpy import load

    return _parse_safetensors(data, load)


def parse_tensors(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    from safetensors.torch import load

    return _parse_safetensors(data, load)


def _parse_safetensors(data: bytes, load: Any) -> tuple[dict[str, Any], dict[str, str]]:
    arrays = _load(load, data)
    header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return arrays, header.get("__metadata__") or {}


def _load(load: Callable[[Any], dict[str, Any]], source: Any) -> dict[str, Any]:
    try:
        return load(source)
    except OSError:
        raise
    except Exception as error:  # of any type: types that the framework lacks, and the parser's own
        raise ReadError(f"not a file of tensors: {str(error)[:200]}") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ReadError(f"a name occurs twice: {name[:60]!r}")
    return names


def _check_json(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ReadError(f"JSON that is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict | list):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_json(item, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ReadError(f"not valid JSON: it contains {value}, which is not finite")
    elif type(value) is int and not -MAX_INTEGER < value < MAX_INTEGER:
        raise ReadError("an integer does not fit into 64 bits")
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ReadError("text that is not Unicode (half of a surrogate pair)") from error
