"""A user's files in and out: everything is read and checked before anything is written, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from geoskip.meshes import Mesh, read_mesh
from geoskip.meshes.formats import PARSERS, WRITERS
from geoskip.records.files import atomic_write, mark_unfinished, unfinished_files
from geoskip.records.os_errors import explain_os_error, is_out_of_memory
from geoskip.records.reading import read_json, read_npy, read_text
from geoskip.shapes import Float

LATENT_SUFFIXES = (".npy", ".json")


class Outputs:
    """The files that a command writes to one folder: all names are checked before the first file is written.

    ``claim`` a name while inputs are read; ``write`` the contents at the end. Files that an interrupted command left
    unfinished are replaced. Leaving the context ends the writing, even if some claims were not used.
    """

    def __init__(self, folder: Path, force: bool = False) -> None:
        self.folder, self.force = folder, force
        self._claims: dict[str, str] = {}
        self._unwritten: set[str] = set()
        self._replaceable = unfinished_files(folder)
        self._writing = ExitStack()

    def __enter__(self) -> Outputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.__exit__(kind, error, trace)

    def claim(self, name: str, source: str) -> Path:
        """The path for ``name``; ValueError if another input has it already, or a file is there."""
        path = self.folder / name
        if name in self._claims:
            raise ValueError(f"{source}: its output {name} is also that of {self._claims[name]}; rename one of them")
        if path.exists() and not self.force and name not in self._replaceable:
            raise ValueError(f"{path}: already exists; choose another folder with -o, or overwrite it with --force")
        self._claims[name] = source
        return path

    def write(self, contents: Iterable[tuple[Path, bytes]]) -> list[Path]:
        """Write files whose names were claimed; the first call needs all claims to be made."""
        if not self._unwritten:
            self._unwritten = set(self._claims)
            self._writing.enter_context(mark_unfinished(self.folder, self._claims))
        paths = []
        for path, data in contents:
            atomic_write(path, data)
            paths.append(path)
            self._unwritten.discard(path.name)
        if not self._unwritten:
            self._writing.close()
        return paths


def output_stems(paths: Sequence[Path]) -> dict[Path, str]:
    """What the output of each input is called, without suffix: as the input, or, if two inputs in different folders
    have the same name, with the folders that differ: ``s00-pose0``."""
    stems = {path: path.stem for path in paths}
    if len(set(stems.values())) == len(stems):
        return stems
    folders = {path: path.absolute().parent for path in stems}
    common = os.path.commonpath(folders.values())
    return {path: "-".join([*folder.relative_to(common).parts, path.stem]) for path, folder in folders.items()}


def read_user_mesh(path: Path) -> Mesh:
    """The mesh in a file that a user named."""
    if path.is_dir():
        raise ValueError(f"{path}: a folder; name the meshes in it, such as {path}/*.ply")
    if not is_mesh(path):
        raise ValueError(f"{path}: unknown mesh format; known are {', '.join(sorted(PARSERS))}")
    return read_mesh(path)


def mesh_suffix(path: Path, chosen: str | None = None) -> str:
    """The suffix of the mesh made from ``path``: the chosen one, or its own; STL has no vertex order to keep."""
    suffix = chosen or path.suffix.lower()
    if chosen is not None and suffix not in WRITERS:
        raise ValueError(f"format: unknown mesh format {suffix!r}; known are {', '.join(sorted(WRITERS))}")
    return ".ply" if chosen is None and (suffix == ".stl" or suffix not in WRITERS) else suffix


def read_codes(path: Path, latent: int) -> Float[Tensor, "codes latent"]:
    """Latent codes in a file, one ``[latent]`` or several ``[codes, latent]``: .npy, or .json with a list of numbers, a
    list of lists, or such under ``"latent"``."""
    if path.suffix.lower() not in LATENT_SUFFIXES:
        raise ValueError(f"{path}: latent codes are in {' or '.join(LATENT_SUFFIXES)} files")
    values = _numbers(path)
    codes = values[None] if values.ndim == 1 else values
    if codes.ndim != 2 or codes.shape[1] != latent or not len(codes):
        raise ValueError(f"{path}: codes of {latent} numbers are needed, not an array of shape {values.shape}")
    with np.errstate(over="ignore"):
        codes = codes.astype(np.float32)
    if not np.isfinite(codes).all():
        raise ValueError(f"{path}: its codes are not finite in 32 bits")
    return torch.from_numpy(codes)


def read_values(path: Path) -> np.ndarray:
    """Values at vertices: .npy, .json (a list), or a text file with a number in each line."""
    if path.suffix.lower() in LATENT_SUFFIXES:
        return np.atleast_1d(_numbers(path))
    try:
        lines = read_text(path).splitlines()
        words = [word for line in lines for word in line.partition("#")[0].split()]
        if not words:
            raise ValueError("it is empty")
        # Labels stay whole numbers, up to 18 digits.
        whole = all(re.fullmatch(r"[+-]?\d{1,18}", word) for word in words)
        return np.loadtxt(lines, dtype=np.int64 if whole else np.float64, ndmin=1)
    except ValueError as error:
        raise ValueError(f"{path}: not a list of numbers: {error}") from error


def array_bytes(array: np.ndarray) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def is_mesh(path: Path) -> bool:
    return path.suffix.lower() in PARSERS


def _numbers(path: Path) -> np.ndarray:
    try:
        if path.suffix.lower() == ".npy":
            array = read_npy(path)
        else:
            stored = read_json(path)
            array = np.array(stored["latent"] if isinstance(stored, dict) else stored)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}: cannot be read as numbers: {error}") from error
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{path}: numbers are needed, not {array.dtype}")
    return array


T = TypeVar("T")


class BadFiles(ValueError):
    """Files that cannot be used.

    Attributes:
        faults: what is wrong with each, beginning with its name.
        summary: how many they are, and what to do.
    """

    def __init__(self, faults: Sequence[str], summary: str) -> None:
        self.faults, self.summary = tuple(faults), summary
        super().__init__("\n".join([*faults, summary]))


class Inputs:
    """Files that are all read before anything is written.

    Attributes:
        paths: the files that are still in use.
        skipped: with ``skip_bad``, what is wrong with the files that were left out.
    """

    def __init__(self, paths: Sequence[Path], skip_bad: bool = False) -> None:
        self.paths, self.skip_bad = list(paths), skip_bad
        self.skipped: list[str] = []
        self._count = len(self.paths)

    def each(self, function: Callable[[Path], T]) -> list[T]:
        """Apply ``function`` to every file in use. If it raises ValueError or OSError for some of them, raise BadFiles
        for all of these together or, with ``skip_bad``, leave them out; if none remains, raise BadFiles as well. The
        error of a single file is raised unchanged."""
        results: list[T] = []
        used: list[Path] = []
        faults: list[str] = []
        for path in self.paths:
            try:
                results.append(function(path))
                used.append(path)
            except (ValueError, OSError) as error:
                if self._count == 1 or is_out_of_memory(error):
                    raise
                faults.append(explain_os_error(error) if isinstance(error, OSError) else str(error))
        if faults and not (self.skip_bad and used):
            raise BadFiles([*self.skipped, *faults], self._summary(len(self.skipped) + len(faults)))
        self.paths, self.skipped = used, [*self.skipped, *faults]
        return results

    def _summary(self, bad: int) -> str:
        if bad == self._count:
            return f"none of the {bad:,} files can be used; nothing was written"
        advice = "fix or remove them, or skip them with --skip-bad"
        return f"{bad:,} of {self._count:,} files cannot be used; nothing was written: {advice}"
