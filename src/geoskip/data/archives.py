"""Files of a data set, from an archive or a folder that is not trusted.

Nothing is unpacked to disk: files with an expected name are passed on as bytes. An archive is rejected as a whole if it
contains a link, a device, a path that leads outside or two files of one name, or if it exceeds its limits. The sizes
that it claims are checked before reading, and the bytes that it really gives while reading.
"""

import bz2
import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

# Name, claimed size, whether it is a regular file (None: a folder), and a function that reads it.
Member = tuple[str, int, bool | None, Callable[[], bytes]]
OPENERS: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}


class ArchiveError(ValueError):
    """An archive that is damaged or not to be trusted; the message says why."""


@dataclass(frozen=True)
class Limits:
    """The largest number of members, of bytes in all and in one file, and of bytes per byte of the archive."""

    members: int = 200_000
    total_bytes: int = 64 << 30
    file_bytes: int = 2 << 30
    ratio: float = 100.0


DEFAULT = Limits()


def read_files(source: Path, pattern: re.Pattern[str], limits: Limits = DEFAULT) -> Iterator[tuple[str, bytes]]:
    """Name and contents of each file of a folder, zip or tar whose path in it matches ``pattern``.

    The name is what the first group of ``pattern`` matches, so that an archive gives the same names with or without a
    top folder.
    """
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such archive or folder")
    seen: set[str] = set()
    for path, data in (_read_folder if source.is_dir() else _read_archive)(source, pattern, limits):
        match = pattern.fullmatch(path)
        name = match[1] if match else path
        if name in seen:
            raise ArchiveError(f"{source}: two files are called {name}")
        seen.add(name)
        yield name, data


def list_files(folder: Path, pattern: re.Pattern[str], limits: Limits = DEFAULT) -> dict[str, Path]:
    """The files of a folder whose path in it matches ``pattern``, by that path, sorted. Links are followed."""
    files = {}
    for parent, subfolders, names in os.walk(folder, onerror=_fail, followlinks=True):
        here, resolved = Path(parent), Path(parent).resolve()
        # A link to a folder that contains it has no end.
        subfolders[:] = [name for name in subfolders if not resolved.is_relative_to((here / name).resolve())]
        for path in (here / name for name in names):
            name = path.relative_to(folder).as_posix()
            if pattern.fullmatch(name):
                status = path.stat()
                _check_unicode(name)
                _check(stat.S_ISREG(status.st_mode), f"{path} is not a regular file")
                _check(status.st_size <= limits.file_bytes, f"{path} is too large")
                files[name] = path
    return dict(sorted(files.items()))


def _fail(error: OSError) -> None:
    raise error


def _read_folder(folder: Path, pattern: re.Pattern[str], limits: Limits) -> Iterator[tuple[str, bytes]]:
    for name, path in list_files(folder, pattern, limits).items():
        yield name, path.read_bytes()


def _read_archive(archive: Path, pattern: re.Pattern[str], limits: Limits) -> Iterator[tuple[str, bytes]]:
    budget = min(limits.total_bytes, int(limits.ratio * archive.stat().st_size))
    members = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive, budget)
    try:
        for number, (name, size, is_file, read) in enumerate(members):
            _check(number < limits.members, f"more than {limits.members} members")
            _check_name(name)
            _check(is_file is not False, f"{name} is not a regular file")
            if is_file and pattern.fullmatch(name):
                _check(size <= limits.file_bytes, f"{name} is too large")
                budget -= size
                _check(budget >= 0, "unpacks to more than its limit")
                data = read()
                _check(len(data) == size, f"{name} does not have the size that it claims")
                yield name, data
    except ArchiveError as error:
        raise ArchiveError(f"{archive}: {error}") from None
    except tarfile.ReadError as error:
        raise ArchiveError(f"{archive}: damaged, or not a folder, a zip or a tar archive") from error
    except Exception as error:  # of many types: those of the modules for archives are not documented
        raise ArchiveError(f"{archive}: damaged, or of a kind that cannot be read: {error!r:.200}") from error


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:

        def read(info: zipfile.ZipInfo) -> bytes:
            with file.open(info) as stream:
                return stream.read(info.file_size + 1)

        for info in file.infolist():
            mode = stat.S_IFMT(info.external_attr >> 16)  # 0 from systems without file modes
            is_plain = mode in (0, stat.S_IFREG, stat.S_IFDIR)
            is_file = None if is_plain and info.is_dir() else is_plain
            yield info.filename, info.file_size, is_file, partial(read, info)


def _tar_members(archive: Path, budget: int) -> Iterator[Member]:
    with archive.open("rb") as raw:
        opener = OPENERS.get(raw.read(2))
        raw.seek(0)
        stream = _LimitedStream(raw if opener is None else opener(raw), budget)
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as file:

            def read(info: tarfile.TarInfo) -> bytes:
                return cast(IO[bytes], file.extractfile(info)).read()

            for info in file:
                is_file = None if info.isdir() else info.isreg() and not info.issparse()
                yield info.name, info.size, is_file, partial(read, info)
        while stream.read(1 << 16):  # to the end, which has the checksum of the compressed stream
            pass


class _LimitedStream:
    """A stream of at most ``budget`` bytes; tarfile reads it in small pieces, whatever a header claims."""

    def __init__(self, stream: Any, budget: int) -> None:
        self.stream, self.budget = stream, budget

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.budget -= len(data)
        _check(self.budget >= 0, "unpacks to more than its limit")
        return data


def _check_unicode(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:  # it could neither be printed nor stored in the cache
        raise ArchiveError(f"the name {name!r:.200} is not Unicode; rename the file") from None


def _check_name(name: str) -> None:
    _check_unicode(name)
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts
    _check(not outside, f"the name {name!r} leads outside the archive")
    _check("\\" not in name, f"the name {name!r} has a backslash, which leads outside on Windows; pack the files again")


def _check(condition: bool, fault: str) -> None:
    if not condition:
        raise ArchiveError(fault)
