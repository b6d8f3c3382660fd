"""The readers that all others go through: what they refuse, and that nothing else comes out of them."""

from __future__ import annotations

import io
import json
import os
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from geoskip.records import reading
from geoskip.records.reading import (
    ReadError,
    parse_arrays,
    parse_json,
    parse_npy,
    parse_tensors,
    read_arrays,
    read_bytes,
    read_json,
    read_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)  # fmt: skip


@given(JSON)
def test_json_comes_back(value: object) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[" * 70 + "]" * 70, "more than 64 levels deep"),
        ("1" * 5000, "not valid JSON"),
        ("1" * 400, "does not fit into 64 bits"),
        ("-1" + "0" * 30, "does not fit into 64 bits"),
        ("NaN", "nan, which is not finite"),
        ('{"a": [Infinity]}', "inf, which is not finite"),
        ("1e999", "inf, which is not finite"),
        ('{"a": 1, "a": 2}', "a name occurs twice: 'a'"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        (b"\xff\xfe\xfd", "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
    ],
)
def test_what_is_not_json(text: str | bytes, fault: str) -> None:
    with pytest.raises(ReadError, match=fault):
        parse_json(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    with suppress(ReadError):
        json.dumps(parse_json(data), allow_nan=False).encode()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", ">u2", "|b1", "<f2"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 4), (2, 1, 3)])
def test_arrays_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    for order in "CF":
        array = np.asarray(np.arange(np.prod(shape)).reshape(shape).astype(dtype), order=order)  # type: ignore[call-overload]
        found = parse_npy(npy(array))
        np.testing.assert_array_equal(found, array)
        assert found.dtype == np.dtype(dtype).newbyteorder("=")
        assert found.flags.writeable


def header(text: str) -> bytes:
    data = text.encode()
    return b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "header cannot be read"),
        (b"PK\x03\x04", "header cannot be read"),
        (npy(np.arange(3))[:-1], "asks for 24 bytes of data, but the file has 23"),
        (npy(np.arange(3)) + b"x", "the file has 25"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (10**12,)}"), "header cannot be read"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"), "asks for 8,000,000,000,000"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"), "cannot have the shape"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 99999999999999999999)}"), "cannot have the"),
        (header("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (0,)}"), "numbers are needed"),
        (header("{'descr': '<U5', 'fortran_order': False, 'shape': (0,)}"), "numbers are needed"),
        (npy(np.array([{}, 1], dtype=object)), "numbers are needed"),
        (header("(" * 3000), "header cannot be read"),
    ],
)
def test_what_is_no_array(data: bytes, fault: str) -> None:
    with pytest.raises(ReadError, match=fault):
        parse_npy(data)


def test_tensors_and_metadata(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.ones(0)}
    data = save(arrays, {"x": "y"})
    found, metadata = parse_arrays(data)
    assert metadata == {"x": "y"}
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    tensors, metadata = parse_tensors(save_torch({"a": torch.ones(2, dtype=torch.bfloat16)}))
    assert metadata == {}
    assert torch.equal(tensors["a"], torch.ones(2, dtype=torch.bfloat16))
    (tmp_path / "a.safetensors").write_bytes(data)
    assert read_arrays(tmp_path / "a.safetensors").keys() == arrays.keys()


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}x", save({"a": np.ones(3)})[:-1]])
def test_what_holds_no_tensors(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    for parse in (parse_arrays, parse_tensors, lambda _: read_arrays(tmp_path / "a")):
        with pytest.raises(ReadError, match="not a file of tensors"):
            parse(data)


def test_pipes_and_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_bytes, read_text, read_json):
        with pytest.raises(ReadError, match="pipe is not a regular file"):
            read(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    monkeypatch.setattr(reading, "MAX_BYTES", 4)
    with pytest.raises(ReadError, match="large has 5 bytes, more than the limit of 4"):
        read_bytes(tmp_path / "large")
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "missing")


def test_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\xc3\xa4")
    assert read_text(tmp_path / "a") == "aä"
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(ReadError, match="not text in UTF-8"):
        read_text(tmp_path / "a")


# Those that read no file of a user: answers of processes that geoskip started, the paper's tables, lock files.
OWN = {
    "paper/parallel.py",
    "paper/rows.py",
    "paper/running.py",
    "data/locks.py",
}
DIRECT = re.compile(r"(?<!\w)(json\.loads?\((?!json\.dumps)|np\.load\(|np\.loadtxt\(path|safe_open\(|Image\.open\()")


def test_nobody_reads_around_these_readers() -> None:
    root = Path(reading.__file__).parents[1]
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if DIRECT.search(path.read_text("utf-8"))}
    assert found - OWN == {"records/reading.py", "data/image_sets.py"}
