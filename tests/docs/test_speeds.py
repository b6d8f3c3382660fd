"""Times in the docs are those of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / "bench" / f"{name}.json").read_text())["rows"]
    return rows


def ratio(record: str, path: str, name: str = "time_ratio") -> float:
    """Of the block of Aff-MoNet."""
    (row,) = (r for r in rows(record) if (r["operator"], r["skip"], r["path"]) == ("monet", True, path))
    return round(row[name], 1)


def either(record: str, path: str) -> str:
    """The ratios of two runs, on two hosts."""
    return "{} to {}".format(*sorted(ratio(f"{record}{of}", path) for of in ("", "-compiled")))


def test_the_ways_of_a_loop() -> None:
    page = (ROOT / "docs" / "acceleration.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| .* \| ([\d.]+) \(([\d.]+)×\) \| ([\d.]+) \(([\d.]+)×\) \|$", page, flags=re.MULTILINE)
    paths = ["geoskip", "compiled", "reduce-overhead", "captured"]
    measured = {(row["operator"], row["path"]): row for row in rows("h200-loop") if row["workload"] == "autoencoder"}
    expected = [
        tuple(
            text
            for operator in ("monet", "feast")
            for row in [measured[operator, path]]
            for text in (f"{row['milliseconds']:.2f}", f"{row['time_ratio']:.1f}")
        )
        for path in paths
    ]
    assert table == expected


def test_the_speeds_of_the_readme() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert ratio("h200-faces", "captured") == ratio("h200-faces-compiled", "captured")
    assert f"as a CUDA graph, is {ratio('h200-faces', 'captured')}× faster than" in readme
    assert f"it is {either('h200-faces', 'geoskip')}× faster, depending on the host" in readme
    assert f"It needs {ratio('h200-faces', 'geoskip', 'memory_ratio'):.0f}× less memory" in readme
    digits = [ratio("h200-superpixels", path) for path in ("geoskip", "captured")]
    assert "Aff-MoNet is {}× faster on a batch of superpixels ({}× with them)".format(*digits) in readme
    bodies = [either("h200-bodies", path) for path in ("geoskip", "captured")]
    assert "{}× on a body ({}×)".format(*bodies) in readme
    assert f"On two CPU cores, Aff-MoNet on faces is {ratio('cpu-faces', 'geoskip')}× faster" in readme
