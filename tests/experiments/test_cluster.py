"""Rows as tasks of a Ray cluster: a local one, on two cores."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from geoskip.experiments.cluster import run_on_ray
from geoskip.experiments.jobs import Job, finished
from geoskip.experiments.running import Outcome
from tests.experiments.runs import job_of, recipe_named, record_of

JOBS = [job_of(recipe_named("table1", "MoNet M=9"), seed, "smoke", "tiny") for seed in range(4)]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One cluster for all tests: it takes seconds to start. Without the package this fails, and says so."""
    import ray

    root = str(Path(__file__).parents[2])
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([f"{root}/src", root]), "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield ray
    ray.shutdown()


def troubled(job: Mapping[str, Any], out: str, device: str) -> Mapping[str, Any]:
    """A worker whose seed 1 dies at its first try, seed 2 at every try, and whose seed 3 fails."""
    tried = Path(out) / f"tried-{job['seed']}"
    first = not tried.exists()
    tried.touch()
    if job["seed"] == 2 or (job["seed"] == 1 and first):
        os._exit(1)
    if job["seed"] == 3:
        return {"record": None, "fault": "ValueError: no"}
    return {"record": {"format": 1, **asdict(record_of(Job.from_json(job), {"mean_mm": 0.5}))}, "fault": ""}


def by_seed(outcomes: Iterator[Outcome]) -> dict[int, Outcome]:
    return {outcome.job.seed: outcome for outcome in outcomes}


def test_lost_workers_are_replaced(ray: Any, tmp_path: Path) -> None:
    found = by_seed(run_on_ray(JOBS, tmp_path, retries=1, run=troubled))
    for seed in (0, 1):
        assert found[seed].record == finished(JOBS[seed], tmp_path) is not None
    assert found[2].record is None
    assert found[2].fault.startswith("lost on the cluster, 2 times: ")
    assert found[3].fault == "ValueError: no"
    assert finished(JOBS[3], tmp_path) is None
    assert ray.is_initialized(), "a cluster that was there before stays"


def test_rows_are_trained_on_the_cluster(ray: Any, tmp_path: Path) -> None:
    (outcome,) = run_on_ray(JOBS[:1], tmp_path, "cpu")
    assert outcome.fault == ""
    assert outcome.record == finished(JOBS[0], tmp_path) is not None


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *rest: Any, **given: Any) -> Any:
        if name == "ray":
            raise ImportError("no ray")
        return whole(name, *rest, **given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install geoskip\[cluster\]"):
        next(run_on_ray(JOBS, tmp_path))
