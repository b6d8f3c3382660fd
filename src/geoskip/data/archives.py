"""Files of a dataset, out of its owners' archive or of a folder, without trusting either.

Nothing is unpacked to disk. Regular files with an expected name are handed on as bytes; an archive that holds a
link, a device, a name that leads outside, or one name twice is refused whole, and so is one that grows past its
bounds: the sizes it claims are checked before reading, and what it really gives while reading.
"""

import bz2
import gzip
import lzma
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

OPENERS: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}


class ArchiveError(ValueError):
    """An archive that is damaged, or not to be trusted; the message says why."""


@dataclass(frozen=True)
class Limits:
    """How large an archive may unpack: number of members, bytes in all and in one file, and growth."""

    members: int = 200_000
    total_bytes: int = 64 << 30
    file_bytes: int = 2 << 30
    ratio: float = 100.0

    def total(self, archive: Path) -> int:
        return min(self.total_bytes, int(self.ratio * archive.stat().st_size))


LIMITS = Limits()


def read_files(place: Path, wanted: re.Pattern[str], limits: Limits = LIMITS) -> Iterator[tuple[str, bytes]]:
    """Name and contents of each file of a folder, zip or tar whose path in it matches ``wanted``, in any order.

    The name is what the first group of ``wanted`` matched: so an archive with or without a top folder gives the
    same names. One name twice is refused.
    """
    seen: set[str] = set()
    for path, data in _reader(place)(place, wanted, limits):
        match = wanted.fullmatch(path)
        name = match[1] if match else path
        if name in seen:
            raise ArchiveError(f"{place}: two files are called {name}")
        seen.add(name)
        yield name, data


def _reader(place: Path) -> Callable[[Path, re.Pattern[str], Limits], Iterator[tuple[str, bytes]]]:
    if place.is_dir():
        return _read_folder
    if not place.is_file():
        raise FileNotFoundError(f"{place}: no such archive or folder")
    return _read_zip if zipfile.is_zipfile(place) else _read_tar


def _read_folder(folder: Path, wanted: re.Pattern[str], limits: Limits) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if wanted.fullmatch(name) and path.is_file():
            _refuse(path.stat().st_size > limits.file_bytes, folder, f"{name} is too large")
            yield name, path.read_bytes()


def _read_zip(archive: Path, wanted: re.Pattern[str], limits: Limits) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
            _refuse(len(members) > limits.members, archive, f"more than {limits.members} members")
            for member in members:
                _check_name(archive, member.filename)
                # Systems without file modes leave them 0.
                mode = stat.S_IFMT(member.external_attr >> 16)
                _refuse(mode not in (0, stat.S_IFREG, stat.S_IFDIR), archive, f"{member.filename} is no regular file")
            chosen = [member for member in members if not member.is_dir() and wanted.fullmatch(member.filename)]
            _check_sizes(archive, [(member.filename, member.file_size) for member in chosen], limits)
            for member in chosen:
                with file.open(member) as stream:
                    data = stream.read(member.file_size + 1)
                _refuse(len(data) != member.file_size, archive, f"{member.filename} is not as long as it claims")
                yield member.filename, data
    except ArchiveError:
        raise
    except Exception as error:  # of many kinds: what the modules for archives raise is not documented
        raise ArchiveError(f"{archive}: damaged, or of a kind that cannot be read: {error!r:.200}") from error


def _read_tar(archive: Path, wanted: re.Pattern[str], limits: Limits) -> Iterator[tuple[str, bytes]]:
    try:
        with archive.open("rb") as raw:
            opener = OPENERS.get(raw.read(2))
            raw.seek(0)
            stream = _Bounded(raw if opener is None else opener(raw), limits.total(archive), archive)
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as file:
                for count, member in enumerate(file):
                    _refuse(count >= limits.members, archive, f"more than {limits.members} members")
                    _check_name(archive, member.name)
                    regular = member.isdir() or (member.isreg() and not member.issparse())
                    _refuse(not regular, archive, f"{member.name} is no regular file")
                    if member.isdir() or not wanted.fullmatch(member.name):
                        continue
                    _check_sizes(archive, [(member.name, member.size)], limits)
                    data = cast(IO[bytes], file.extractfile(member)).read()
                    _refuse(len(data) != member.size, archive, f"{member.name} is not as long as it claims")
                    yield member.name, data
            while stream.read(1 << 16):  # to the end, where the checksum of the compressed stream stands
                pass
    except ArchiveError:
        raise
    except Exception as error:  # of many kinds: what the modules for archives raise is not documented
        raise ArchiveError(f"{archive}: damaged, or of a kind that cannot be read: {error!r:.200}") from error


class _Bounded:
    """A stream that refuses to give more than so many bytes; tarfile asks for small pieces, whatever a header says."""

    def __init__(self, stream: Any, budget: int, archive: Path) -> None:
        self.stream, self.budget, self.archive = stream, budget, archive

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.budget -= len(data)
        _refuse(self.budget < 0, self.archive, "unpacks to more than it may")
        return data


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name)
    _refuse(not _is_unicode(name), archive, f"the name {name!r:.200} is not Unicode")
    bad = path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts
    _refuse(bad, archive, f"the name {name!r} leads outside the archive")


def _is_unicode(name: str) -> bool:
    """Not so where a name was stored in an unknown encoding: it could not be printed, nor kept in the cache."""
    try:
        name.encode()
        return True
    except UnicodeEncodeError:
        return False


def _check_sizes(archive: Path, sizes: list[tuple[str, int]], limits: Limits) -> None:
    for name, size in sizes:
        _refuse(size > limits.file_bytes, archive, f"{name} is too large")
    _refuse(sum(size for _, size in sizes) > limits.total(archive), archive, "unpacks to more than it may")


def _refuse(bad: bool, archive: Path, fault: str) -> None:
    if bad:
        raise ArchiveError(f"{archive}: {fault}")
