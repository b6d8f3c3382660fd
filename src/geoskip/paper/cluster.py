"""The same jobs as tasks on a Ray cluster: the extra ``cluster``.

A task takes a share of a GPU, so that several small models live on one card. A worker that is lost is replaced and its
task tried again; where the results lie in a folder that all machines share, it goes on from its last checkpoint.
Records travel back to the caller, which writes them: nothing else needs to be shared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from geoskip.paper.jobs import Job
from geoskip.paper.running import Outcome, attempt
from geoskip.records import write_record
from geoskip.records.run_record import record_entries, record_from

RETRIES = 3
# Where workers find data: the same folders as here, unless they have settings of their own.
FOLDERS = ("GEOSKIP_CACHE", "GEOSKIP_DATA")
Remote = Callable[[Mapping[str, Any], str, str], Mapping[str, Any]]


def run_on_ray(
    jobs: Sequence[Job],
    out: Path,
    device: str = "auto",
    *,
    address: str | None = None,
    gpus: float = 0.0,
    retries: int = RETRIES,
    run: Remote | None = None,
) -> Iterator[Outcome]:
    """Outcomes in the order in which jobs end.

    address: of a running cluster (``auto``, ``ray://host:10001``); without it a Ray of this machine alone.
    gpus: the share of a GPU that a job takes; 0 keeps to the CPU.
    retries: how often a job is tried again after its worker was lost.
    run: what a worker does with a job, where it is not the usual.
    """
    ray = _ray()
    settings = {name: os.environ[name] for name in FOLDERS if name in os.environ}
    mine = not ray.is_initialized()
    if mine:
        own = {} if address else {"include_dashboard": False}
        environment = {"runtime_env": {"env_vars": settings}} if settings else {}
        ray.init(address, log_to_driver=False, **own, **environment)
    try:
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(run or run_remotely)
        pending = {task.remote(job.to_json(), str(out.absolute()), device): job for job in jobs}
        while pending:
            (done, *_), _ = ray.wait(list(pending))
            yield _collected(ray, done, pending.pop(done), out, retries)
    finally:
        if mine:
            ray.shutdown()


def run_remotely(job: Mapping[str, Any], out: str, device: str) -> Mapping[str, Any]:
    """What a worker does: the record as plain JSON, or the fault."""
    outcome = attempt(Job.from_json(job), Path(out), device)
    record = None if outcome.record is None else record_entries(outcome.record)
    return {"record": record, "fault": outcome.fault}


def _collected(ray: Any, done: Any, job: Job, out: Path, retries: int) -> Outcome:
    try:
        reply = ray.get(done)
    except ray.exceptions.RayError as error:
        return Outcome(job, None, f"lost on the cluster, {1 + retries} times: {str(error).splitlines()[0]}")
    if reply["record"] is None:
        return Outcome(job, None, reply["fault"])
    record = record_from(reply["record"], job.label)
    write_record(job.record_path(out), record)
    return Outcome(job, record)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("rows on a cluster need Ray, which is not installed: pip install geoskip[cluster]") from error
    return ray
