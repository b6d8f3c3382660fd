"""The cache: what it returns, what it refuses, and what survives kills, races and tampering."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from geoskip.data import cache
from geoskip.data.cache import (
    ARRAYS,
    MANIFEST,
    CacheEntry,
    CacheError,
    cached,
    clear,
    entries,
    entry_name,
    fingerprint,
    fingerprint_files,
    read_entry,
    versions_of,
    write_entry,
)
from geoskip.data.locks import owner, try_lock
from tests.records.windows import simulate_windows

RECIPE = {"version": 1, "radius": 0.5, "names": ["a", "b"]}


def content() -> CacheEntry:
    arrays = {"transposed": np.arange(12.0).reshape(3, 4).T, "scalar": np.array(3), "none": np.zeros((0, 3))}
    return CacheEntry(arrays, {"unit": "mm", "sizes": (1, 2)})


def refuse_to_build() -> CacheEntry:
    raise AssertionError("this entry is in the cache")


def the_entry(root: Path) -> Path:
    return root / entry_name("test", RECIPE)


def start_builder(root: Path, body: str) -> subprocess.Popen[str]:
    """Another process that asks for the same entry, with ``body`` as its build; prints what it gets."""
    program = f"""
        import logging, os, signal, sys, time
        from pathlib import Path
        import numpy as np
        from geoskip.data.cache import CacheEntry, cached
        logging.basicConfig(level=logging.INFO)
        def build():
            {body}
        print(cached("test", {RECIPE!r}, build, root=Path({str(root)!r})).meta["by"])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_second_call_loads_what_the_first_built(tmp_path: Path) -> None:
    built = cached("test", RECIPE, content, root=tmp_path)
    loaded = cached("test", RECIPE, refuse_to_build, root=tmp_path)
    assert built.meta == loaded.meta == {"unit": "mm", "sizes": [1, 2]}
    assert sorted(loaded.arrays) == sorted(content().arrays)
    for name, array in content().arrays.items():
        assert loaded.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded.arrays[name], array)


def test_entries_know_the_versions_of_what_made_them(tmp_path: Path) -> None:
    cached("test", RECIPE, content, root=tmp_path)
    assert versions_of(entry_name("test", RECIPE), tmp_path)["numpy"] == np.__version__
    assert versions_of(entry_name("test", {}), tmp_path) == {}
    assert versions_of("a hash of files", tmp_path) == {}


def test_another_recipe_or_kind_is_another_entry(tmp_path: Path) -> None:
    names = {
        entry_name("test", RECIPE),
        entry_name("rest", RECIPE),
        entry_name("test", RECIPE | {"version": 2}),
    }
    assert len(names) == 3
    assert entry_name("test", dict(reversed(RECIPE.items()))) in names


@pytest.mark.parametrize("recipe", [{"a": float("nan")}, {"a": np.float32(1)}, {"a": object()}])
def test_recipes_that_are_not_json_are_refused(recipe: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="plain finite JSON"):
        entry_name("test", recipe)


@pytest.mark.parametrize("kind", ["", "../up", "Upper", "a/b", "-a"])
def test_kinds_that_are_no_names_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="lower-case words"):
        entry_name(kind, RECIPE)


def test_fingerprint_sees_type_shape_order_and_content() -> None:
    a = np.arange(6.0).reshape(2, 3)
    others = [a.astype(np.float32), a.reshape(3, 2), np.asfortranarray(a + 1), a[::-1]]
    assert len({fingerprint(x) for x in [a, *others]}) == 5
    assert fingerprint(np.asfortranarray(a)) == fingerprint(a)
    assert fingerprint(a, a) != fingerprint(a)


NAMES = st.text("abc/", min_size=1, max_size=5).filter(lambda name: "//" not in name and name.strip("/") == name)
FILES = st.dictionaries(NAMES, st.binary(max_size=9), max_size=4)


def write_files(folder: Path, files: dict[str, bytes], seconds: int) -> list[Path]:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        os.utime(folder / name, (seconds, seconds))
    return [folder / name for name in reversed(files)]


@given(FILES, FILES, st.integers(0, 9), st.integers(0, 9))
def test_fingerprint_of_files_is_that_of_their_names_and_contents(
    one: dict[str, bytes], other: dict[str, bytes], before: int, after: int
) -> None:
    """Whatever their times; parts of 4 bytes, so that files have several."""
    prefixes = {parent for files in (one, other) for name in files for parent in PurePosixPath(name).parents}
    assume(not prefixes & {PurePosixPath(name) for files in (one, other) for name in files})
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(cache, "PART_BYTES", 4)
        seen = [
            fingerprint_files(write_files(Path(folder), files, seconds), Path(folder))
            for folder, files, seconds in ((first, one, before), (second, other, after))
        ]
    assert (seen[0] == seen[1]) == (one == other)


def test_fingerprint_sees_one_changed_byte_at_the_end_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2 * cache.PART_BYTES + 1)
    before = fingerprint_files([path], tmp_path)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert fingerprint_files([path], tmp_path) != before


def damage_arrays(entry: Path) -> None:
    data = bytearray((entry / ARRAYS).read_bytes())
    data[-1] ^= 1
    (entry / ARRAYS).write_bytes(data)


def truncate_arrays(entry: Path) -> None:
    os.truncate(entry / ARRAYS, 20)


def remove_arrays(entry: Path) -> None:
    (entry / ARRAYS).unlink()


def remove_manifest(entry: Path) -> None:
    (entry / MANIFEST).unlink()


def truncate_manifest(entry: Path) -> None:
    os.truncate(entry / MANIFEST, 30)


def list_manifest(entry: Path) -> None:
    (entry / MANIFEST).write_text("[]")


def edit_meta(entry: Path) -> None:
    manifest = json.loads((entry / MANIFEST).read_text())
    manifest["meta"]["unit"] = "m"
    (entry / MANIFEST).write_text(json.dumps(manifest))


def swap_in_another_entry(entry: Path) -> None:
    other = entry.with_name(entry_name("test", {"other": 1}))
    write_entry(other, "test", {"other": 1}, CacheEntry({"wrong": np.zeros(1)}))
    for name in (ARRAYS, MANIFEST):
        os.replace(other / name, entry / name)
    other.rmdir()


FAULTS = [
    (damage_arrays, "arrays.safetensors does not match"),
    (truncate_arrays, "arrays.safetensors does not match"),
    (remove_arrays, "unreadable"),
    (remove_manifest, "unreadable"),
    (truncate_manifest, "unreadable"),
    (list_manifest, "unreadable"),
    (edit_meta, "manifest.json does not match"),
    (swap_in_another_entry, "another recipe"),
]


@pytest.mark.parametrize(("damage", "fault"), FAULTS)
def test_damaged_entries_are_refused_reported_and_rebuilt(tmp_path, caplog, damage, fault) -> None:
    cached("test", RECIPE, content, root=tmp_path)
    damage(the_entry(tmp_path))
    with pytest.raises(CacheError, match=fault):
        read_entry(the_entry(tmp_path))
    assert [fault in entry.fault for entry in entries(tmp_path, thorough=True)] == [True]
    cached("test", RECIPE, content, root=tmp_path)
    assert "building it again" in caplog.text
    cached("test", RECIPE, refuse_to_build, root=tmp_path)
    assert [entry.fault for entry in entries(tmp_path, thorough=True)] == [""]
    assert not list(tmp_path.glob(".*"))


def test_an_entry_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("geoskip.data.cache.FORMAT", 99)
        cached("test", RECIPE, content, root=tmp_path)
    with pytest.raises(CacheError, match="format 99"):
        read_entry(the_entry(tmp_path))


def test_of_two_processes_one_builds_and_the_other_reuses(tmp_path: Path) -> None:
    go = tmp_path / "go"
    body = f"""
            open({str(tmp_path)!r} + f"/built-by-{{os.getpid()}}", "w").close()
            while not os.path.exists({str(go)!r}): time.sleep(0.01)
            return CacheEntry({{"x": np.arange(3)}}, {{"by": os.getpid()}})
    """
    builders = [start_builder(tmp_path / "cache", body.strip()) for _ in range(2)]
    while not (marks := list(tmp_path.glob("built-by-*"))):
        time.sleep(0.01)
    go.touch()
    answers = {builder.communicate(timeout=60)[0].strip() for builder in builders}
    marks = list(tmp_path.glob("built-by-*"))
    assert [builder.returncode for builder in builders] == [0, 0]
    assert answers == {marks[0].name.removeprefix("built-by-")}
    assert len(marks) == 1


def test_the_lock_of_a_killed_builder_is_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    started, root = tmp_path / "started", tmp_path / "cache"
    builder = start_builder(root, f"open({str(started)!r}, 'w').close(); time.sleep(600)")
    wait_for(started)
    lock = root / "locks" / f"{the_entry(root).name}.lock"
    assert owner(lock).startswith(f"process {builder.pid} on ")
    leftover = root / f".{the_entry(root).name}.abc"
    leftover.mkdir()
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    cached("test", RECIPE, content, root=root)
    assert f"process {builder.pid}" in caplog.text
    assert "taking over" in caplog.text
    assert not leftover.exists()
    assert owner(lock) == ""


def test_a_builder_killed_while_writing_leaves_no_entry(tmp_path: Path) -> None:
    body = """
            import geoskip.data.cache as cache
            cache._json_sha256 = lambda value: os.kill(os.getpid(), signal.SIGKILL)
            return CacheEntry({"x": np.arange(3)}, {"by": 0})
    """
    builder = start_builder(tmp_path, body.strip())
    builder.communicate(timeout=60)
    assert builder.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob(".*"))) == 1
    assert entries(tmp_path) == []
    cached("test", RECIPE, content, root=tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_without_the_lock_the_result_is_built_all_the_same(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / f"{the_entry(tmp_path).name}.lock"
    with try_lock(lock, timeout=0.0) as held:
        assert held
        with try_lock(lock, timeout=0.1) as again:
            assert not again
        assert cached("test", RECIPE, content, root=tmp_path, timeout=0.0).meta["unit"] == "mm"
    cached("test", RECIPE, refuse_to_build, root=tmp_path)


def test_the_loser_of_a_race_keeps_the_winners_entry(tmp_path: Path) -> None:
    folder = the_entry(tmp_path)

    def overtaken() -> CacheEntry:
        write_entry(folder, "test", RECIPE, content())
        return content()

    first = cached("test", RECIPE, overtaken, root=tmp_path)
    assert first.meta == read_entry(folder).meta
    assert not list(tmp_path.glob(".*"))


def test_a_cache_that_cannot_be_written_is_said_and_the_result_returned(tmp_path, caplog) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert cached("test", RECIPE, content, root=blocked).meta["unit"] == "mm"
    assert "was not kept" in caplog.text
    assert "no lock" in caplog.text


def test_disk_full_is_said_and_nothing_half_written_stays(tmp_path, caplog, monkeypatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("geoskip.data.cache.sync", full)
    cached("test", RECIPE, content, root=tmp_path)
    assert "No space left on device" in caplog.text
    assert entries(tmp_path) == []
    assert not list(tmp_path.glob(".*"))


def test_a_failing_build_leaves_nothing_and_frees_the_lock(tmp_path, caplog) -> None:
    def fail() -> CacheEntry:
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        cached("test", RECIPE, fail, root=tmp_path)
    assert entries(tmp_path) == []
    cached("test", RECIPE, content, root=tmp_path)
    assert "taking over" not in caplog.text


def test_list_and_clear_touch_entries_only(tmp_path: Path) -> None:
    mine = tmp_path / "my-thesis"
    mine.mkdir()
    cached("test", RECIPE, content, root=tmp_path)
    cached("other-kind", RECIPE, content, root=tmp_path)
    (tmp_path / f".{the_entry(tmp_path).name}.left").mkdir()
    assert [(entry.kind, entry.recipe, entry.fault) for entry in entries(tmp_path)] == [
        ("other-kind", RECIPE, ""),
        ("test", RECIPE, ""),
    ]
    assert all(entry.num_bytes > 100 for entry in entries(tmp_path))
    assert clear("test", tmp_path) == ([the_entry(tmp_path).name], [])
    assert [entry.kind for entry in entries(tmp_path)] == ["other-kind"]
    assert not list(tmp_path.glob(".*"))
    clear(root=tmp_path)
    assert entries(tmp_path) == []
    assert mine.exists()


def test_what_a_killed_process_left_of_any_entry_is_removed_by_the_next_call(tmp_path: Path) -> None:
    """Even if the entry is there, or is never asked for again."""
    cached("test", RECIPE, content, root=tmp_path)
    other = entry_name("other", RECIPE)
    for name in (the_entry(tmp_path).name, other):
        (tmp_path / f".{name}.left" / "part").mkdir(parents=True)
    (tmp_path / ".mine").mkdir()
    with try_lock(tmp_path / "locks" / f"{other}.lock", timeout=0.0):
        cached("test", RECIPE, refuse_to_build, root=tmp_path)
        assert sorted(path.name for path in tmp_path.glob(".*")) == [".mine", f".{other}.left"]
    cached("test", RECIPE, refuse_to_build, root=tmp_path)
    assert [path.name for path in tmp_path.glob(".*")] == [".mine"]


def test_the_name_of_an_owner_killed_at_its_end_is_removed(tmp_path: Path) -> None:
    """The entry is there, so that nobody builds it again."""
    cached("test", RECIPE, content, root=tmp_path)
    name = tmp_path / "locks" / f"{the_entry(tmp_path).name}.lock.owner"
    name.write_text('{"pid": 1, "host": "here"}')
    with try_lock(name.with_suffix(""), timeout=0.0):
        cached("test", RECIPE, refuse_to_build, root=tmp_path)
        assert name.exists()
    name.write_text('{"pid": 1, "host": "here"}')
    cached("test", RECIPE, refuse_to_build, root=tmp_path)
    assert not name.exists()


def test_on_windows_entries_are_written_replaced_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_windows(monkeypatch)
    cached("test", RECIPE, content, root=tmp_path)
    damage_arrays(the_entry(tmp_path))
    cached("test", RECIPE, content, root=tmp_path)
    assert cached("test", RECIPE, refuse_to_build, root=tmp_path).meta["unit"] == "mm"
    assert clear(root=tmp_path) == ([the_entry(tmp_path).name], [])
    assert entries(tmp_path) == []


def test_clear_leaves_an_entry_that_is_being_built(tmp_path: Path) -> None:
    cached("test", RECIPE, content, root=tmp_path)
    name = the_entry(tmp_path).name
    with try_lock(tmp_path / "locks" / f"{name}.lock", timeout=0.0):
        assert clear(root=tmp_path) == ([], [name])
    assert len(entries(tmp_path)) == 1


def test_entries_of_a_cache_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert entries(tmp_path / "nowhere") == []
    assert clear(root=tmp_path / "nowhere") == ([], [])


def test_where_the_cache_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "chosen"))
    assert cache.cache_root() == tmp_path / "chosen"
    monkeypatch.delenv("GEOSKIP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_root() == tmp_path / "xdg" / "geoskip"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says to ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_root() == tmp_path / ".cache" / "geoskip"
