"""Files out of archives: the honest ones whole, the hostile ones not at all."""

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoskip.data.archives import ArchiveError, Limits, list_files, read_files
from tests.fuzz.mutations import mutate_bytes

WANTED = re.compile(r"(?:.*/)?(meshes/[^/]+\.ply)")
FILES = {"meshes/a.ply": b"aaa", "meshes/b.ply": b"b" * 1000}
OTHERS = {"readme.txt": b"hello", "other/c.ply": b"c"}


def make_zip(path: Path, files: dict[str, bytes], prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(prefix + name, data)
    return path


def make_tar(path: Path, files: dict[str, bytes], mode: Any = "w", prefix: str = "") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def make_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def special_tar(path: Path, kind: bytes, target: str = "/etc/passwd") -> Path:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("meshes/a.ply")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return path


def special_zip(path: Path, mode: int) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("meshes/a.ply")
        info.external_attr = (mode | 0o644) << 16
        archive.writestr(info, "/etc/passwd")
    return path


@pytest.mark.parametrize("prefix", ["", "TOP/", "./deep/er/"])
def test_all_containers_give_the_same_expected_files(tmp_path: Path, prefix: str) -> None:
    everything = FILES | OTHERS
    places = [
        make_zip(tmp_path / "a.zip", everything, prefix),
        make_folder(tmp_path / "folder" / prefix, everything),
        *[make_tar(tmp_path / f"a.{kind}", everything, f"w:{kind}", prefix) for kind in ("", "gz", "bz2", "xz")],
    ]
    for place in places:
        assert dict(read_files(place, WANTED)) == FILES, place


@pytest.mark.parametrize("name", ["../meshes/a.ply", "/meshes/a.ply", "x/../../meshes/a.ply", "x\\meshes/a.ply"])
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    for place in (make_zip(tmp_path / "a.zip", {name: b"x"}), make_tar(tmp_path / "a.tar", {name: b"x"})):
        with pytest.raises(ArchiveError, match="leads outside"):
            list(read_files(place, WANTED))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(ArchiveError, match="not a regular file"):
        list(read_files(special_tar(tmp_path / "a.tar", kind), WANTED))


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ArchiveError, match="not a regular file"):
        list(read_files(special_zip(tmp_path / "a.zip", mode), WANTED))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_one_name_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("meshes/a.ply", "1")
        archive.writestr("meshes/a.ply", "2")
    twice_with_prefix = make_tar(tmp_path / "a.tar", {"meshes/a.ply": b"1", "x/meshes/a.ply": b"2"})
    for place in (tmp_path / "a.zip", twice_with_prefix):
        with pytest.raises(ArchiveError, match=r"two files are called meshes/a.ply"):
            list(read_files(place, WANTED))


def test_bombs_are_refused_before_they_unpack(tmp_path: Path) -> None:
    bomb = {"meshes/a.ply": bytes(4 << 20)}
    for place in (make_zip(tmp_path / "a.zip", bomb), make_tar(tmp_path / "a.tgz", bomb, "w:gz")):
        assert place.stat().st_size < 10_000
        with pytest.raises(ArchiveError, match="unpacks to more than its limit"):
            list(read_files(place, WANTED))


def test_a_tar_header_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 8 << 30
    block = header.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(block + bytes(1024))
    with pytest.raises(ArchiveError, match="damaged"):
        list(read_files(tmp_path / "a.tar", WANTED))
    (tmp_path / "a.tgz").write_bytes(gzip.compress(block + bytes(4 << 20)))
    with pytest.raises(ArchiveError, match="unpacks to more than its limit"):
        list(read_files(tmp_path / "a.tgz", WANTED))


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("meshes/a.ply")
    header.type = tarfile.GNUTYPE_SPARSE
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ArchiveError, match="not a regular file"):
        list(read_files(tmp_path / "a.tar", WANTED))


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        (Limits(members=1), "more than 1 members"),
        (Limits(file_bytes=999), "meshes/b.ply is too large"),
        (Limits(total_bytes=1002), "unpacks to more than its limit"),
    ],
)
def test_counts_and_sizes_are_bounded(tmp_path: Path, limits: Limits, fault: str) -> None:
    for place in (make_zip(tmp_path / "a.zip", FILES), make_tar(tmp_path / "a.tar", FILES)):
        with pytest.raises(ArchiveError, match=fault):
            list(read_files(place, WANTED, limits))


def test_a_large_file_in_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"meshes/b.ply is too large"):
        list(read_files(make_folder(tmp_path, FILES), WANTED, Limits(file_bytes=999)))


def test_links_of_a_folder_are_followed_unless_they_have_no_end(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder", FILES | {"d.ply/readme.txt": b""})
    (folder / "linked").symlink_to(make_folder(tmp_path / "elsewhere", {"meshes/c.ply": b"c"}))
    (folder / "meshes" / "loop").symlink_to(folder)
    names = list(list_files(folder, re.compile(r".*\.ply")))
    assert names == ["linked/meshes/c.ply", "meshes/a.ply", "meshes/b.ply"]
    (folder / "meshes" / "gone.ply").symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=r"gone\.ply"):
        list_files(folder, WANTED)


def test_pipes_and_names_that_are_not_unicode_in_a_folder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(make_folder(tmp_path / "pipe", FILES) / "meshes" / "pipe.ply")
    with pytest.raises(ArchiveError, match=r"pipe\.ply is not a regular file"):
        list(read_files(tmp_path / "pipe", WANTED))
    (make_folder(tmp_path / "latin", FILES) / "meshes" / os.fsdecode(b"gr\xf6sse.ply")).touch()
    with pytest.raises(ArchiveError, match="is not Unicode; rename the file"):
        list(read_files(tmp_path / "latin", WANTED))


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    data = make_zip(tmp_path / "a.zip", {"meshes/a.ply": bytes(1000)}).read_bytes()
    lie = data.replace(struct.pack("<I", 1000), struct.pack("<I", 10))
    assert lie != data
    (tmp_path / "a.zip").write_bytes(lie)
    with pytest.raises(ArchiveError):
        list(read_files(tmp_path / "a.zip", WANTED))


def test_truncated_and_damaged_archives_are_refused(tmp_path: Path) -> None:
    for place in (make_zip(tmp_path / "a.zip", FILES), make_tar(tmp_path / "a.tgz", FILES, "w:gz")):
        data = place.read_bytes()
        for length in range(0, len(data), 7):
            place.write_bytes(data[:length])
            with pytest.raises(ArchiveError):
                list(read_files(place, WANTED))
    place = make_zip(tmp_path / "b.zip", FILES)
    flipped = bytearray(place.read_bytes())
    flipped[45] ^= 0xFF
    place.write_bytes(flipped)
    with pytest.raises(ArchiveError):
        list(read_files(place, WANTED))


def test_mutated_archives_give_nothing_that_was_not_in_them(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for place in (make_zip(tmp_path / "a.zip", FILES), make_tar(tmp_path / "a.tgz", FILES, "w:gz")):
        data, refused = place.read_bytes(), 0
        for _ in range(150):
            place.write_bytes(mutate_bytes(data, random))
            try:
                assert set(dict(read_files(place, WANTED)).values()) <= set(FILES.values())
            except ArchiveError:
                refused += 1
        assert refused > 50


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere.zip: no such archive"):
        list(read_files(tmp_path / "nowhere.zip", WANTED))


def test_names_in_another_encoding_are_refused(tmp_path: Path) -> None:
    """In a zip that calls them UTF-8, and in a tar, which does not say."""
    data = make_zip(tmp_path / "a.zip", {"meshes/ä.ply": b"a"}).read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace("ä".encode(), b"\xff\xfe"))
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.USTAR_FORMAT, encoding="latin-1") as archive:
        info = tarfile.TarInfo("meshes/ä.ply")
        archive.addfile(info, io.BytesIO())
    for name in ("a.zip", "a.tar"):
        with pytest.raises(ArchiveError, match=name):
            list(read_files(tmp_path / name, WANTED))


@pytest.mark.parametrize("headers", [{"size": "9" * 400}, {"size": "-1"}, {"GNU.sparse.map": "x,y"}])
def test_numbers_of_a_tar_that_no_file_has_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("meshes/a.ply", "meshes/b.ply"):
            info = tarfile.TarInfo(name)
            info.pax_headers = headers
            archive.addfile(info, io.BytesIO())
    with pytest.raises(ArchiveError, match=r"a\.tar"):
        list(read_files(tmp_path / "a.tar", WANTED))
