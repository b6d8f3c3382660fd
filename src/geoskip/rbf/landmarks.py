"""Landmark files: vertex numbers or points, named or in order, as JSON or CSV."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.meshes import Mesh
from geoskip.shapes import Float

# By name, or by place in the file where it names none.
Landmarks = dict[str, Float[np.ndarray, "3"]]


def read_landmarks(path: str | Path, mesh: Mesh | None = None) -> Landmarks:
    """The landmarks of a file, as points; vertex numbers are looked up in ``mesh``.

    JSON: a list, or an object with names, of vertex numbers or ``[x, y, z]``. CSV: a line for each, of
    ``vertex``, ``x,y,z``, ``name,vertex`` or ``name,x,y,z``; a first line without any number is a heading.
    """
    path = Path(path)
    readers = {".json": _from_json, ".csv": _from_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: landmarks are read from .json and .csv files")
    try:
        found = readers[path.suffix.lower()](path.read_text(encoding="utf-8-sig"))
        if not found:
            raise ValueError("no landmarks")
        return {name: _point(name, given, mesh) for name, given in found.items()}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def paired(
    landmarks: Landmarks, targets: Landmarks
) -> tuple[Float[np.ndarray, "landmarks 3"], Float[np.ndarray, "landmarks 3"]]:
    """Two files' landmarks beside each other: by name, and without names by place, of which there must be as many."""
    if set(landmarks) != set(targets):
        odd = sorted(set(landmarks) ^ set(targets))
        raise ValueError(
            f"landmarks: the two files have {len(landmarks)} and {len(targets)}; only one of them has "
            f"{', '.join(odd[:5])}"
        )
    return np.stack(list(landmarks.values())), np.stack([targets[name] for name in landmarks])


def _from_json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if isinstance(found, list):
        return {str(place): given for place, given in enumerate(found)}
    if not isinstance(found, dict):
        raise ValueError("a list of landmarks, or an object with their names, was expected")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name occurs twice")
    return names


def _from_csv(text: str) -> dict[str, Any]:
    lines = [[cell.strip() for cell in line] for line in csv.reader(text.splitlines())]
    lines = [line for line in lines if any(line)]
    if lines and not any(_is_number(cell) for cell in lines[0]):
        del lines[0]
    return _unique([_entry(place, line) for place, line in enumerate(lines)])


def _entry(place: int, line: list[str]) -> tuple[str, Any]:
    """1 or 3 numbers, a name before them or not."""
    name, numbers = (line[0], line[1:]) if len(line) in (2, 4) else (str(place), line)
    if len(numbers) not in (1, 3) or not all(map(_is_number, numbers)):
        raise ValueError(f"landmark {place} is {','.join(line)!r}, not [name,]vertex or [name,]x,y,z")
    if len(numbers) == 1:
        return name, int(numbers[0]) if numbers[0].isdecimal() else float(numbers[0])
    return name, [float(cell) for cell in numbers]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _point(name: str, given: Any, mesh: Mesh | None) -> np.ndarray:
    if type(given) is int:
        if mesh is None:
            raise ValueError(
                f"landmark {name} is a vertex number, but there is no mesh to look it up in; give its point"
            )
        if not 0 <= given < mesh.num_verts:
            raise ValueError(f"landmark {name} is vertex {given}, the mesh has 0 to {mesh.num_verts - 1}")
        return mesh.verts[given]
    if not isinstance(given, list) or len(given) != 3 or any(type(number) not in (int, float) for number in given):
        raise ValueError(f"landmark {name} is {given!r}, not a vertex number or [x, y, z]")
    point = np.array(given, dtype=np.float64)
    if not np.isfinite(point).all():
        raise ValueError(f"landmark {name} is {given!r}, which is not finite")
    return point
