"""Records survive the way to a file and back; the page is a function of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import app
from benchmarks.accelerated_models import AcceleratedRow
from benchmarks.cells import number
from benchmarks.document import document, load
from benchmarks.matrix_products import Product
from benchmarks.measurements import Row, busy, machine, precision, rows_of, save
from benchmarks.scaling import Growth, Point
from typer.testing import CliRunner

from tests.benchmarks.tiny import CPU

ROOT = Path(__file__).parents[2]
BARE = Row("faces", "monet", 9, False, "geoskip", "block(x, graph)", 0.5, (0.4, 0.6), 7, 50_000_000, error=2e-7)
BARE = replace(BARE, repeats=True, floor_milliseconds=0.25, against="PyG", peer_does_more=True, time_ratio=18.6)
AFFINE = replace(BARE, skip=True, milliseconds=0.55, peer_does_more=False, time_ratio=16.9, memory_ratio=60.04)
PEER = replace(AFFINE, path="PyG", call="GMMConv(x)", milliseconds=9.3, peak_bytes=3_002_000_000, time_ratio=None)
BROKEN = Row("faces", "gcn", 1, False, "geoskip", "", problem="wrong result: theta is off by 1.0e-01", error=0.1)


def blocks(rows: list[Row]) -> dict[str, Any]:
    return {
        "kind": "blocks",
        "machine": machine(CPU),
        "ceilings": {"bytes_per_second": 4.3e12, "operations_per_second": 5e13, "eager_milliseconds": 0.25},
        "workloads": {"faces": "batch 32"},
        "load": [0.1, 1.9],
        "rows": [asdict(row) for row in rows],
    }


def test_rows_come_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.json"
    save(path, blocks([BARE, PEER, BROKEN]))
    assert rows_of(load(path)) == [BARE, PEER, BROKEN]
    assert sorted(path.parent.iterdir()) == [path]


def test_machine_names_versions_and_flags_but_no_date() -> None:
    told = machine(CPU)
    assert {"geoskip", "python", "torch", "triton", "torch_geometric"} <= told["versions"].keys()
    assert told["precision"] == precision()
    assert told["device_type"] == "cpu"
    assert told["threads"] >= 1
    assert json.dumps(told) == json.dumps(machine(CPU))


def test_load_is_told_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1.26, 2.0, 3.0), raising=False)
    assert busy() == 1.3
    monkeypatch.delattr(os, "getloadavg")
    assert busy() is None


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not valid JSON"), ("[]", "not a benchmark record"), ("{}", "not a benchmark record")]
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load(path)


def lines_of(page: str, start: str) -> list[list[str]]:
    found = [line for line in page.splitlines() if line.startswith(f"| {start} ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


def test_page_compares_side_by_side() -> None:
    compiled = replace(AFFINE, path="compiled", milliseconds=0.4)
    page = document([("h200", blocks([BARE, AFFINE, compiled, PEER]))])
    assert "one small kernel forward and one backward takes 0.250 ms" in page
    (head,) = lines_of(page, "block")
    (bare,) = lines_of(page, "MoNet, M=9")
    (affine,) = lines_of(page, "Aff-MoNet, M=9")
    cells = dict(zip(head, affine, strict=True))
    assert cells["geoskip, ms"] == "0.550"
    assert cells["compiled, ms"] == "0.400"
    assert cells["PyG, ms"] == "9.30"
    assert cells["× faster"] == "16.9"
    assert cells["PyG, MB"] == "3002"
    assert cells["× less memory"] == "60.0"
    assert cells["roofline"] == "45 %"
    assert cells["repeats"] == "yes"
    assert dict(zip(head, bare, strict=True))["× faster"] == "18.6*"
    assert "MoNet in PyG: `GMMConv(x)`" in page
    assert "MoNet, M=9: 1.10× the time, 1.00× the memory" in page
    assert "4300 GB/s" in page
    assert "Load average: 0.1 before the run, 1.9 after it." in page


def test_page_admits_what_failed() -> None:
    page = document([("h200", blocks([BROKEN]))])
    (cells,) = lines_of(page, "GCN")
    assert cells[1] == "wrong result"
    assert "- GCN, geoskip: wrong result: theta is off by 1.0e-01" in page


def test_page_shows_growth() -> None:
    points = [Point("monet", 1 << 16, 6 << 16, 1.0, 10**8, 3e-7, True), Point("monet", 1 << 17, 0, problem="failed: x")]
    record = {"kind": "scaling", "machine": machine(CPU), "points": [asdict(point) for point in points]}
    page = document([("scaling", record | {"growth": [asdict(Growth("monet", 1.01, 1.002))]})])
    assert lines_of(page, "MoNet")[0] == ["MoNet", "65,536", "1.00", "100", "3e-07", "yes"]
    assert lines_of(page, "MoNet")[1][2] == "failed"
    assert lines_of(page, "**MoNet**")[0][1:4] == ["**exponent**", "1.01", "1.00"]


def test_committed_page_is_made_from_the_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a new record: python -m benchmarks table"""
    monkeypatch.setattr("benchmarks.document.PAGE", tmp_path / "page.md")
    assert CliRunner().invoke(app, ["table"]).exit_code == 0
    assert (tmp_path / "page.md").read_bytes() == (ROOT / "docs" / "benchmarks.md").read_bytes()
    assert len(list((ROOT / "results" / "bench").glob("*.json"))) > 10


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.012345, "0.0123"), (1.0, "1.00"), (99.94, "99.9"), (123.4, "123"), (4400.0, "4400"), (None, "–")],
)
def test_numbers_have_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_page_of_starts() -> None:
    row = {"task": "autoencoder", "operator": "monet", "side": "geoskip", "cache": "empty", "imports": 2.5}
    row |= {"first_step": 14.25, "second_step": 0.0031, "trace": 1.0, "compile": 9.0, "kernels": 40}
    peer = row | {"side": "PyG", "cache": "unused", "kernels": 0}
    page = document([("starts", {"kind": "start", "machine": machine(CPU), "rows": [row, peer]})])
    assert "| autoencoder | MoNet | geoskip | empty | 2.50 | 14.2 | 3.10 | 40 |" in page
    assert "| autoencoder | MoNet | PyG | unused | 2.50 | 14.2 | 3.10 | – |" in page


def test_page_of_products() -> None:
    rows = [
        asdict(Product("float32, cuBLAS", 1.25, 2.5, (1e-7, 2e-7, 3e-7))),
        asdict(Product("TF32", 0.5, None, (1e-4,))),
    ]
    page = document([("products", {"kind": "products", "machine": machine(CPU), "rows": rows})])
    assert "| float32, cuBLAS | 1.25 | 2.50 | 1e-07, 2e-07, 3e-07 |" in page
    assert "| TF32 | 0.500 | – | 1e-04 |" in page


def test_page_of_accelerated_models() -> None:
    row = asdict(AcceleratedRow("GIN", 3, 4.0, 2.0, 30_000_000, 10_000_000, 1e-7, 1e-16))
    page = document([("models", {"kind": "acceleration", "machine": machine(CPU), "rows": [row]})])
    assert "| GIN | 3 | 4 | 2 | 2.0× | 30 | 10 | 3.0× | 1e-07 | 1e-16 |" in page
