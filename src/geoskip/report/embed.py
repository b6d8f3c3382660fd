"""Data embedded in an HTML page: deflated arrays in base64, everything else as JSON. None of it is parsed as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

import numpy as np

from geoskip.shapes import Float, Shaped

TYPES = {"uint8": "u8", "int16": "i16", "uint16": "u16", "uint32": "u32"}


class Blobs:
    """The arrays of a page; equal arrays are stored once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self._texts.values()))

    def add(self, array: Shaped[np.ndarray, ...]) -> dict[str, Any]:
        """Store an array; the result refers to it in the data of the page.

        The first bytes of all numbers come first, then the second bytes, and so on: the high bytes of small numbers
        are equal and deflate to almost nothing.
        """
        kind = TYPES[array.dtype.name]
        plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
        planes = plain.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T.tobytes()
        digest = hashlib.sha256(kind.encode() + planes).hexdigest()
        if digest not in self._texts:
            self._numbers[digest] = len(self._texts)
            self._texts[digest] = base64.b64encode(zlib.compress(planes, 9)).decode("ascii")
        return {"blob": self._numbers[digest], "type": kind}

    def indices(self, array: Shaped[np.ndarray, ...]) -> dict[str, Any]:
        """Store indices in 16 or 32 bits; -1 becomes the largest number."""
        small = array.size == 0 or array.max() < 2**16 - 1
        return self.add(array.astype(np.int64).astype(np.uint16 if small else np.uint32))

    def steps(self, array: Float[np.ndarray, ...], step: float = 0.0) -> dict[str, Any]:
        """Store numbers as 16-bit multiples of a step: the given step, or a larger one if they would not fit."""
        largest = float(np.abs(array).max()) if array.size else 0.0
        step = max(step, largest / 32767, 1e-30)
        return self.add(np.round(array / step).astype(np.int16)) | {"step": step}

    def html(self) -> str:
        return "\n".join(
            f'<script type="text/plain" id="blob-{number}">{text}</script>'
            for number, text in enumerate(self._texts.values())
        )


def json_text(data: Any) -> str:
    """JSON that is safe inside ``<script>``: it contains no ``<``, ``>`` or ``&``, so no tag or comment can end it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
