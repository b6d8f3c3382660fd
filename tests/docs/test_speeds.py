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
    faces = ratio("h200-faces", "captured"), *sorted(ratio(f"h200-faces{of}", "geoskip") for of in ("-compiled", ""))
    assert faces[0] == ratio("h200-faces-compiled", "captured")
    assert "is {}× faster than in PyTorch Geometric with CUDA graphs, and {} to {}× without".format(*faces) in readme
    assert f"it needs {ratio('h200-faces', 'geoskip', 'memory_ratio'):.0f}× less memory" in readme
    small = [
        ratio(name, path) for name in ("h200-superpixels", "h200-bodies-compiled") for path in ("geoskip", "captured")
    ]
    assert (
        "Aff-MoNet is {}× faster on a batch of superpixels ({}× with them), {}× on a body ({}×)".format(*small)
        in readme
    )
    assert f"On two CPU cores, Aff-MoNet on faces is {ratio('cpu-faces', 'geoskip')}× faster" in readme
