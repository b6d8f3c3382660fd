"""Rows as tasks of a Ray cluster: a local one, on two cores."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from geoskip.paper.parallel import run_on_ray
from geoskip.paper.running import Outcome, finished
from tests.paper.runs import job_of, record_of, row_named
from tests.paper.troubled import troubled

JOBS = [job_of(row_named("table1", "MoNet M=9"), seed, "smoke", "tiny") for seed in range(4)]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One cluster for all tests: it takes seconds to start. Without the package this fails, and says so."""
    import ray

    root = Path(__file__).parents[2]
    with pytest.MonkeyPatch.context() as patch:
        # Workers inherit it: they import the tests, too.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root / "src"), str(root)]))
        patch.setenv("OMP_NUM_THREADS", "1")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield ray
        ray.shutdown()


def by_seed(outcomes: Iterator[Outcome]) -> dict[int, Outcome]:
    return {outcome.job.seed: outcome for outcome in outcomes}


def test_lost_workers_are_replaced(ray: Any, tmp_path: Path) -> None:
    for job in JOBS:
        record = {"format": 1, **asdict(record_of(job, {"mean_mm": float(job.seed)}))}
        (tmp_path / f"record-{job.seed}").write_text(json.dumps(record))
    found = by_seed(run_on_ray(JOBS, tmp_path, retries=1, run=troubled))
    for seed in (0, 1):
        assert found[seed].record == finished(JOBS[seed], tmp_path) is not None
    assert found[2].record is None
    assert found[2].fault.startswith("lost on the cluster 2 times: ")
    assert found[3].fault == "ValueError: no"
    assert finished(JOBS[3], tmp_path) is None
    assert ray.is_initialized(), "a cluster that was there before stays"


def test_rows_are_trained_on_the_cluster(ray: Any, tmp_path: Path) -> None:
    (outcome,) = run_on_ray(JOBS[:1], tmp_path, "cpu")
    assert outcome.fault == ""
    assert outcome.record == finished(JOBS[0], tmp_path) is not None
    assert JOBS[0].items_path(tmp_path).is_file()


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[cluster\]"):
        next(run_on_ray(JOBS, tmp_path))
