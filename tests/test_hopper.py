"""Kernels are compiled for a GPU that is not there: a block here, all of them in ``make hopper``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import ROOT


@pytest.mark.compiled
def test_the_kernels_of_a_block_compile(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.hopper",
        "--only",
        r"block spline none \(\(16,\), 1, 32, 1\)",
    ]
    completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    count = re.search(r"(\d+) kernels compiled, 0 failed", completed.stdout)
    assert count is not None
    assert int(count[1]) > 3
