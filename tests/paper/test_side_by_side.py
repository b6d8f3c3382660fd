"""Several processes at once: their answers, their deaths, their end."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from geoskip.paper.parallel import TRIES, run_side_by_side
from geoskip.paper.running import Job, finished
from tests.paper.runs import job_of, record_of, row_named

JOBS = [job_of(row_named("table1", "MoNet M=9"), seed, "smoke", "tiny") for seed in range(4)]
# A worker that does as the file "orders" in its folder says for each seed, once; then it writes the record.
WORKER = """
import json, os, sys, time
from pathlib import Path
out = Path(sys.argv[1])
for line in sys.stdin:
    seed = json.loads(line)["seed"]
    order = out / f"order-{seed}"
    with (out / f"pids-{seed}").open("a") as pids:
        pids.write(f"{os.getpid()}\\n")
    said = order.read_text() if order.exists() else ""
    if said == "die once":
        order.unlink()
    if said.startswith("die"):
        os._exit(7)
    if said == "hang":
        time.sleep(600)
    if said != "fail":
        target = Path((out / f"target-{seed}").read_text())
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((out / f"record-{seed}").read_text())
    print(json.dumps({"fault": "ValueError: no" if said == "fail" else ""}), flush=True)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    for job in JOBS:
        record = {"format": 1, **asdict(record_of(job, {"mean_mm": float(job.seed)}))}
        (tmp_path / f"record-{job.seed}").write_text(json.dumps(record))
        (tmp_path / f"target-{job.seed}").write_text(str(job.record_path(tmp_path)))
    return [sys.executable, "-c", WORKER, str(tmp_path)]


def outcomes(out: Path, command: list[str], processes: int = 2) -> dict[int, tuple[float | None, str]]:
    found = {}
    for outcome in run_side_by_side(JOBS, out, processes=processes, command=command):
        mean = None if outcome.record is None else outcome.record.metrics["mean_mm"]
        found[outcome.job.seed] = mean, outcome.fault
    return found


def pids(out: Path, seed: int) -> list[str]:
    return (out / f"pids-{seed}").read_text().split()


def gone(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


def test_every_job_is_run_once(tmp_path: Path, command: list[str]) -> None:
    assert outcomes(tmp_path, command) == {seed: (float(seed), "") for seed in range(4)}
    used = [pid for seed in range(4) for pid in pids(tmp_path, seed)]
    assert len(used) == 4
    assert len(set(used)) <= 2, "processes are kept for the next job"
    assert all(gone(pid) for pid in used)


def test_a_lost_process_is_replaced(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "order-1").write_text("die once")
    assert outcomes(tmp_path, command) == {seed: (float(seed), "") for seed in range(4)}
    assert len(set(pids(tmp_path, 1))) == 2


def test_a_job_that_kills_its_processes_is_given_up(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "order-0").write_text("die")
    found = outcomes(tmp_path, command)
    assert found[0][0] is None
    assert f"its process ended {TRIES} times, with exit code 7; see" in found[0][1]
    assert [found[seed][0] for seed in (1, 2, 3)] == [1.0, 2.0, 3.0]
    assert len(set(pids(tmp_path, 0))) == TRIES


def test_a_fault_is_told_and_its_process_not_used_again(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "order-0").write_text("fail")
    found = outcomes(tmp_path, command, processes=1)
    assert found[0] == (None, "ValueError: no")
    assert pids(tmp_path, 0) != pids(tmp_path, 1)
    assert finished(JOBS[3], tmp_path) is not None


def test_who_stops_listening_stops_the_processes(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "order-3").write_text("hang")
    jobs: list[Job] = [JOBS[3], JOBS[0]]
    running = run_side_by_side(jobs, tmp_path, processes=2, command=command)
    assert next(running).job == JOBS[0]
    while not (tmp_path / "pids-3").exists():
        time.sleep(0.01)
    running.close()
    assert gone(pids(tmp_path, 3)[0])


def test_at_least_one_process(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs: need at least 1 process, got 0"):
        next(run_side_by_side(JOBS, tmp_path, processes=0))


def test_runs_in_progress_are_not_for_git(tmp_path: Path, command: list[str]) -> None:
    outcomes(tmp_path, command, processes=1)
    assert (tmp_path / "work" / ".gitignore").read_text() == "*\n"
