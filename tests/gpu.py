"""Runs every test that needs a GPU, in several processes, and records the outcome.

    python -m tests.gpu [--jobs 4] [--seconds 500] [--record results/gpu-tests.json] [--commit HASH]

The record says which code was tested (a digest of ``src`` and ``tests``, and the commit where git knows it), on which
device, with which versions, and which tests passed, failed, were skipped, or were unfinished when the time was up. Test
files whose packages are not installed are left out and listed. If there is a record of the same code on the same
device, only the tests that it lists as failed or unfinished run, and the record is updated.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORT = "GEOSKIP_GPU_TESTS_REPORT"
KINDS = ("passed", "failed", "skipped", "unfinished")
PACKAGES = ["torch", "triton", "torch-geometric", "numpy", "scipy"]


def digest() -> str:
    """Of the code under test and of the tests."""
    total = hashlib.sha256()
    for path in sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        total.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def missing_packages(path: Path) -> list[str]:
    """Packages that a test file imports, itself or through other files of this repository, and that are not
    installed."""
    names, found, left = set(), {path}, [path]
    while left:
        modules = _imported_modules(left.pop())
        names |= {module.split(".")[0] for module in modules}
        files = {file for module in modules if (file := ROOT.joinpath(*module.split(".")).with_suffix(".py")).is_file()}
        left += files - found
        found |= files
    return sorted(name for name in names if find_spec(name) is None)


def _imported_modules(path: Path) -> set[str]:
    """Modules that a file imports when it is imported, and everything that it imports from them, which may be modules,
    too."""
    modules = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def collect(ignored: list[str]) -> list[str]:
    """The ids of all tests with the marker ``gpu``."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "gpu", *(f"--ignore={p}" for p in ignored)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode != 0:
        raise SystemExit(f"the tests cannot be collected:\n{found.stdout}{found.stderr}")
    return [line for line in found.stdout.splitlines() if "::" in line]


def run(tests: list[str], jobs: int, seconds: float | None = None) -> list[dict[str, str]]:
    """The outcome of each test; tests are dealt out in turn, so that slow files are shared among the processes.

    Processes that take longer than ``seconds`` are killed. Tests that have not ended by then are unfinished.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        # Without tests to run, a process would run all of them.
        for k in range(min(jobs, len(tests))):
            listing, log, report = (Path(folder, f"{k}.{ending}") for ending in ("txt", "log", "jsonl"))
            listing.write_text("\n".join(tests[k::jobs]))
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-m",
                "gpu",
                "-p",
                "tests.gpu",
                "--show-capture=no",
                f"@{listing}",
            ]
            with log.open("w") as output:
                environment = os.environ | {REPORT: str(report)}
                process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, env=environment)
            processes.append((process, log, report, tests[k::jobs]))
        outcomes = []
        for process, log, report, listed in processes:
            left = None if seconds is None else max(0.0, seconds - (time.monotonic() - start))
            with suppress(subprocess.TimeoutExpired):
                process.wait(left)
            process.kill()
            if process.wait():
                print(log.read_text()[-8000:])
            outcomes += _outcomes(report, listed)
    return outcomes


def pytest_runtest_logreport(report: Any) -> None:
    """Loaded by pytest as a plugin, this module writes down each outcome at once."""
    if report.when == "call" or report.outcome != "passed":
        outcome = {"id": report.nodeid, "outcome": report.outcome, "seconds": str(report.duration)}
        with open(os.environ[REPORT], "a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")


def run_alone(outcomes: list[dict[str, str]], seconds: float | None = None) -> list[str]:
    """Run what failed once more in a process of its own: tests that measure memory or time need the device for
    themselves. Outcomes of those that pass are changed in place; their names are returned."""
    failed = [outcome for outcome in outcomes if outcome["outcome"] == "failed"]
    repeated = run([o["id"] for o in failed], 1, seconds) if failed else []
    again = {outcome["id"]: outcome["outcome"] for outcome in repeated}
    passed = [outcome for outcome in failed if again.get(outcome["id"]) == "passed"]
    for outcome in passed:
        outcome["outcome"] = "passed"
    return [outcome["id"] for outcome in passed]


def _outcomes(report: Path, listed: list[str]) -> list[dict[str, str]]:
    """Of the tests of a process, by what it wrote down; the last word on a test counts."""
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    ended = {outcome["id"]: outcome for outcome in map(json.loads, lines)}
    return [ended.get(test, {"id": test, "outcome": "unfinished", "seconds": "0"}) for test in listed]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run all tests that need a GPU and record the outcome.")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--record", type=Path, default=ROOT / "results" / "gpu-tests.json")
    parser.add_argument("--commit", help="instead of what git says")
    parser.add_argument("--seconds", type=float, help="kill what runs longer, repeated failures included")
    arguments = parser.parse_args()
    import torch

    from geoskip.training.loop import commit

    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device was found; run this on a machine with an NVIDIA GPU")
    os.environ.setdefault("PYTHONPATH", str(ROOT / "src"))
    left_out = {}
    for path in sorted((ROOT / "tests").glob("**/test_*.py")):
        if missing := missing_packages(path):
            left_out[path.relative_to(ROOT).as_posix()] = missing
    start = time.monotonic()
    made_of = {"digest": digest(), "device": torch.cuda.get_device_name()}
    before = earlier_record(arguments.record, made_of)
    tests = tests_left(before) if before else collect(list(left_out))
    outcomes = run(tests, arguments.jobs, arguments.seconds)
    left = None if arguments.seconds is None else arguments.seconds - (time.monotonic() - start)
    alone = run_alone(outcomes, left) if left is None or left > 0 else []
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": arguments.commit or commit(),
        **made_of,
        "versions": {"python": sys.version.split()[0], "cuda": torch.version.cuda} | _versions(),
        **summary(outcomes, alone, round(time.monotonic() - start), before),
        "left_out": left_out,
    }
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    for outcome in sorted(outcomes, key=lambda o: -float(o["seconds"]))[:10]:
        print(f"{float(outcome['seconds']):6.1f} s {outcome['id']}")
    for name in record["failures"]:
        print("FAILED", name)
    for name in record["unfinished"]:
        print("UNFINISHED", name)
    print(f"{record['passed']} passed, {record['failed']} failed, {record['skipped']} skipped")
    return 0 if record["passed"] and not tests_left(record) else 1


def earlier_record(path: Path, made_of: Mapping[str, str]) -> dict[str, Any] | None:
    """The record of the same code on the same device, if it lists tests that have not passed."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    is_same = all(record.get(name) == value for name, value in made_of.items())
    return record if is_same and tests_left(record) else None


def tests_left(record: Mapping[str, Any]) -> list[str]:
    return [*record["failures"], *record["unfinished"]]


def summary(
    outcomes: Sequence[Mapping[str, str]], alone: Sequence[str], seconds: int, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The counts, in all and per file, and what did not pass; together with the outcomes of the record ``before``."""
    files: dict[str, dict[str, int]] = {}
    if before is not None:
        files = {name: dict.fromkeys(KINDS, 0) | counts for name, counts in before["files"].items()}
        for kind, names in (("failed", before["failures"]), ("unfinished", before["unfinished"])):
            for name in names:
                files[name.split("::")[0]][kind] -= 1
        alone, seconds = [*before["passed_only_alone"], *alone], before["seconds"] + seconds
    for outcome in outcomes:
        files.setdefault(outcome["id"].split("::")[0], dict.fromkeys(KINDS, 0))[outcome["outcome"]] += 1
    return {
        **{kind: sum(counts[kind] for counts in files.values()) for kind in KINDS[:-1]},
        "seconds": seconds,
        "files": {
            name: {kind: n for kind, n in counts.items() if n or kind != "unfinished"}
            for name, counts in sorted(files.items())
        },
        "passed_only_alone": list(alone),
        "failures": [outcome["id"] for outcome in outcomes if outcome["outcome"] == "failed"],
        "unfinished": [outcome["id"] for outcome in outcomes if outcome["outcome"] == "unfinished"],
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


if __name__ == "__main__":
    raise SystemExit(main())
