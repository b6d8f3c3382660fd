"""One job: trained, taken up again, left alone, or failing by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geoskip.data.locks import try_lock
from geoskip.paper import running
from geoskip.paper.demo_runs import one_thread
from geoskip.paper.parallel import run_request, run_side_by_side
from geoskip.paper.running import Busy, Job, attempt, finished, loaded, run_here, run_job
from geoskip.records import RunRecord
from geoskip.records.reading import read_arrays
from geoskip.report.runs import find_runs
from geoskip.training.loop import train
from geoskip.training.signals import Interrupted
from geoskip.training.tasks import make_task
from tests.paper.runs import job_of, row_named

# Four steps of one mesh each.
JOB = job_of(row_named("correspondence", "GCN"), 0, "smoke", "tiny")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def cut_off(job: Job, out: Path, steps: int) -> None:
    """The same run, stopped on the way."""
    config = job.config("cpu")
    task = make_task(config, data=loaded(config))
    train(config, job.folder(out), task=task, stop_after=steps)


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    whole = run_job(JOB, tmp_path / "whole", "cpu")
    assert whole.steps == 4
    cut_off(JOB, tmp_path / "cut", steps=2)
    assert finished(JOB, tmp_path / "cut") is None
    said: list[str] = []
    (outcome,) = run_here([JOB], tmp_path / "cut", "cpu", said.append)
    assert outcome.fault == ""
    assert "GCN, seed 0: resuming after step 2 of 4" in said
    assert outcome.record is not None
    assert outcome.record.metrics == whole.metrics
    assert outcome.record.curves == whole.curves


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run_job(JOB, tmp_path, "cpu")
    monkeypatch.setattr(running, "_train", lambda *_: pytest.fail("trained again"))
    assert run_job(JOB, tmp_path, "cpu") == record


def test_what_a_job_leaves(tmp_path: Path) -> None:
    """Weights and samples, no checkpoints; the errors of all items next to the record; one run of a report."""
    record = run_job(JOB, tmp_path, "cpu")
    kept = {path.name for path in JOB.folder(tmp_path).iterdir()}
    assert {"model.safetensors", "samples.safetensors", "config.json", "record.json"} <= kept
    assert "checkpoints" not in kept
    items = read_arrays(JOB.items_path(tmp_path))
    assert JOB.items_path(tmp_path).parent == JOB.record_path(tmp_path).parent
    for name in ("accuracy_pct", "geodesic_mean_pct"):
        assert items[f"per_item_{name}"].shape == (2,)
        assert items[f"per_item_{name}"].mean() == pytest.approx(record.metrics[name], rel=1e-5)
    (found,) = find_runs([tmp_path]).runs
    assert found.record == record
    assert found.samples is not None


def test_records_say_what_the_result_depends_on(tmp_path: Path) -> None:
    (outcome,) = run_side_by_side([JOB], tmp_path, "cpu", processes=3)
    assert outcome.record is not None
    assert outcome.record.concurrency == 3
    assert re.fullmatch(r"[0-9a-f]{40}\+?", outcome.record.commit)
    assert outcome.record.versions.keys() >= {"python", "torch", "numpy", "geoskip"}


def test_seeds_make_a_difference(tmp_path: Path) -> None:
    first, second = (run_job(replace(JOB, seed=seed), tmp_path, "cpu") for seed in (0, 1))
    assert first.curves["loss"] != second.curves["loss"]
    assert (first.seed, second.seed) == (0, 1)


def test_two_processes_do_not_train_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_train", lambda *_: pytest.fail("trained all the same"))
    folder = JOB.folder(tmp_path)
    lock = tmp_path / "work" / "locks" / f"correspondence-{folder.parent.name}-{folder.name}.lock"
    with try_lock(lock, timeout=0.0):
        with pytest.raises(Busy, match=r"GCN, seed 0: process \d+ on .* is running it"):
            run_job(JOB, tmp_path, "cpu")
        assert "is running it" in attempt(JOB, tmp_path, "cpu").fault


def test_a_fault_does_not_reach_other_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(JOB, seed=1)
    true = running._train

    def fails(job: Job, out: Path, device: str, progress: Any, concurrency: int) -> RunRecord:
        if job == JOB:
            raise RuntimeError("the card is gone")
        return true(job, out, device, progress, concurrency)

    monkeypatch.setattr(running, "_train", fails)
    first, second = run_here([JOB, other], tmp_path, "cpu")
    assert (first.record, first.fault) == (None, "RuntimeError: the card is gone")
    assert second.record is not None
    assert "the card is gone" in (JOB.folder(tmp_path) / "fault.txt").read_text()


def test_an_interruption_ends_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(15, "told to stop")

    monkeypatch.setattr(running, "_train", interrupted)
    with pytest.raises(Interrupted, match="told to stop"):
        list(run_here([JOB, replace(JOB, seed=1)], tmp_path, "cpu"))


def test_a_request_returns_its_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "nothing"))
    wrong = {**JOB.to_json(), "data": "faust"}
    first, second = (run_request(entries, tmp_path, "cpu") for entries in (JOB.to_json(), wrong))
    assert first == ""
    assert second.startswith("MissingData: ")
    assert finished(JOB, tmp_path) is not None


def test_jobs_in_processes_of_their_own(tmp_path: Path) -> None:
    jobs = [replace(JOB, seed=seed) for seed in (0, 1)]
    found = {outcome.job: outcome for outcome in run_side_by_side(jobs, tmp_path, "cpu", processes=1)}
    for job in jobs:
        assert found[job].fault == ""
        assert found[job].record == finished(job, tmp_path) is not None


LEAN = """
import sys
for name in "anny beartype jaxtyping matplotlib PIL potpourri3d pygeodesic ray skimage torch_geometric trimesh".split():
    sys.modules[name] = None
from geoskip.cli import app
for experiment, row in (("affine_only", "*"), ("table2", "Aff-GCN")):
    chosen = ["--rows", row, "--schedule", "smoke", "--device", "cpu", "-o", sys.argv[1]]
    app(["reproduce", experiment, *chosen], standalone_mode=False)
"""


def test_rows_run_where_no_extra_is_installed(tmp_path: Path) -> None:
    """As on a machine that has torch and numpy, and the data from elsewhere."""
    command = [sys.executable, "-c", LEAN, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("\n1 of 1 done") == 2
