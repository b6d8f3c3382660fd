"""Ways to damage a file: bytes of any format, values of JSON, tensors of safetensors. All follow from a generator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from safetensors.numpy import load, save

Random = np.random.Generator

NUMBERS = [b"-1", b"0", b"4294967295", b"9223372036854775807", b"1e308", b"1e999", b"nan", b"-inf", b"9" * 400, b""]
INTEGERS = [0, 1, -1, 127, 255, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1]
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 1 << 62, 10**30, 0.5, 1e300, "", "x", "\ud800", "../../x", [], {}, [0], [[]], {"x": 1},
    [1, 2, 3], ["a"], [None], "1e5",
]  # fmt: skip
TEXTS = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 100 + "]" * 100, "[" * 9000, '{"a":1,"a":2}']


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """One to four changes that know nothing of the format."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 5)):
        BYTE_CHANGES[random.integers(len(BYTE_CHANGES))](changed, random)
    return bytes(changed)


def mutate_json(data: bytes, random: Random) -> bytes:
    """One to three values replaced, removed or added, or spelt as JSON does not allow."""
    if random.random() < 0.2:
        return mutate_bytes(data, random)
    tree = json.loads(data)
    for _ in range(random.integers(1, 4)):
        tree = _with_change(tree, random)
    text = json.dumps(tree)
    if random.random() < 0.2:
        places = [place for place, letter in enumerate(text) if letter in ":,["]
        if places:
            place = int(random.choice(places)) + 1
            text = text[:place] + str(random.choice(TEXTS)) + "," * (text[place - 1] != ":") + text[place:]
    return text.encode("utf-8", "surrogatepass")


def mutate_tensors(data: bytes, random: Random) -> bytes:
    """One to three tensors with other values, another type or shape, another name, or none; or other metadata."""
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    tensors = {name: array.copy() for name, array in load(data).items()}
    for _ in range(random.integers(1, 4)):
        if metadata and random.random() < 0.2:
            key = str(random.choice(sorted(metadata)))
            try:
                metadata[key] = mutate_json(metadata[key].encode(), random).decode("utf-8", "replace")
            except (ValueError, RecursionError):  # no JSON, or no longer
                metadata[key] = str(random.choice(["", "2", "x", "{}"]))
        elif tensors:
            # Whole numbers first: they are indices.
            whole = sorted(name for name, array in tensors.items() if array.dtype.kind in "iu")
            _change_tensor(tensors, str(random.choice(whole or sorted(tensors))) if random.random() < 0.7 else
                           str(random.choice(sorted(tensors))), random)  # fmt: skip
    return save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, metadata or None)


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.integers(len(data))] ^= 1 << int(random.integers(8))


def _overwrite(data: bytearray, random: Random) -> None:
    if data:
        place, count = random.integers(len(data)), int(random.integers(1, 9))
        data[place : place + count] = random.bytes(count)


def _integer(data: bytearray, random: Random) -> None:
    size = int(random.choice([1, 2, 4, 8]))
    value = int(random.choice(INTEGERS)) & ((1 << (8 * size)) - 1)
    place = int(random.integers(len(data) + 1))
    data[place : place + size] = value.to_bytes(size, "little" if random.random() < 0.5 else "big")


def _number(data: bytearray, random: Random) -> None:
    """Another spelling in place of a run of digits."""
    places = [place for place, byte in enumerate(data[:100_000]) if 48 <= byte < 58]
    if places:
        end = start = int(random.choice(places))
        while end < len(data) and data[end] in b"0123456789.":
            end += 1
        data[start:end] = NUMBERS[random.integers(len(NUMBERS))]


def _cut(data: bytearray, random: Random) -> None:
    del data[random.integers(len(data) + 1) :]


def _remove(data: bytearray, random: Random) -> None:
    place = int(random.integers(len(data) + 1))
    del data[place : place + int(random.integers(1, 65))]


def _repeat(data: bytearray, random: Random) -> None:
    place = int(random.integers(len(data) + 1))
    data[place:place] = data[place : place + int(random.integers(1, 257))] * int(random.integers(1, 5))


BYTE_CHANGES: list[Callable[[bytearray, Random], None]] = [_flip, _flip, _overwrite, _integer, _number, _cut, _remove]
BYTE_CHANGES.append(_repeat)


def _with_change(tree: Any, random: Random) -> Any:
    if isinstance(tree, dict | list) and tree and random.random() < 0.85:
        key: Any = str(random.choice(list(tree))) if isinstance(tree, dict) else int(random.integers(len(tree)))
        choice = random.random()
        if choice < 0.12:
            tree.pop(key)
        elif choice < 0.2 and isinstance(tree, dict):
            tree["odd"] = tree[key]
        elif choice < 0.25 and isinstance(tree, list):
            tree.append(tree[key])
        else:
            tree[key] = _with_change(tree[key], random)
        return tree
    if isinstance(tree, int | float) and abs(tree) < 1e300 and not isinstance(tree, bool) and random.random() < 0.5:
        return [tree + 1, -tree, tree * 2, tree * 1000, tree + 0.5, str(tree)][random.integers(6)]
    return json.loads(json.dumps(VALUES[random.integers(len(VALUES))]))


def _change_tensor(tensors: dict[str, np.ndarray], name: str, random: Random) -> None:
    array, choice = tensors[name], random.random()
    if choice < 0.65 and array.size:
        flat = array.reshape(-1)
        place = random.integers(array.size)
        if array.dtype.kind in "iu":
            values = [*INTEGERS, int(flat[place]) + 1, int(flat[place]) - 1, int(flat.max()) + 1, len(flat)]
            with np.errstate(over="ignore"):
                flat[place] = np.array(int(random.choice(values)) & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(array.dtype)
        elif array.dtype.kind == "f":
            flat[place] = random.choice([np.nan, np.inf, -np.inf, 0, -1, 1e30, float(flat[place]) * 2])
        if random.random() < 0.3:
            random.shuffle(flat)
    elif choice < 0.75:
        del tensors[name]
    elif choice < 0.8:
        tensors[f"{name}x"] = tensors.pop(name)
    elif choice < 0.87:
        kinds = ["int64", "int32", "uint8", "float32", "float64", "float16", "bool"]
        with np.errstate(all="ignore"):
            tensors[name] = np.nan_to_num(array).astype(str(random.choice(kinds)))
    elif choice < 0.94:
        tensors[name] = array.reshape(-1)[: int(random.integers(array.size + 1))]
    else:
        tensors[name] = array[None] if random.random() < 0.5 else np.concatenate([array, array])
