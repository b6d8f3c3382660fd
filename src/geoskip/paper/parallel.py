"""Several jobs at once: in processes on this machine, or as tasks on a Ray cluster (the extra ``cluster``).

Small models leave a GPU idle between their kernels; a second process fills the gaps. A process runs one job after the
other and keeps its data in memory. If it dies (out of memory, killed), it is replaced, and its job resumes from the
last checkpoint.

On a cluster, a task takes a share of a GPU. If a worker is lost, Ray runs its task again; it resumes from the last
checkpoint if the results are in a shared folder. Records are sent back to the caller, which writes them, so nothing
else needs to be shared.

A worker process reads one request per line of JSON from standard input, and writes one answer per line to standard
output (:func:`be_worker`). Everything else that is printed goes to standard error, the log.
``python -m geoskip.paper.parallel OUT DEVICE PROCESSES`` is the worker for jobs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock, current_thread, main_thread
from types import FrameType
from typing import Any

from geoskip.paper.running import Job, Outcome, attempt, finished, ignored_by_git
from geoskip.records import write_record
from geoskip.records.files import atomic_write, termination_signals
from geoskip.records.run_record import record_from_json, record_to_json
from geoskip.training.progress import Lines
from geoskip.training.signals import Interrupted

TRIES = 3
STOP_SECONDS = 60.0  # that a process has to save its work after SIGTERM


def run_side_by_side(
    jobs: Sequence[Job], out: Path, device: str = "auto", processes: int = 2, command: Sequence[str] = ()
) -> Generator[Outcome, None, None]:
    """Yield outcomes in the order in which jobs end. ``command`` replaces the usual command of a worker."""
    usual = [sys.executable, "-m", "geoskip.paper.parallel", str(out), device, str(processes)]
    requests = [job.to_json() for job in jobs]
    with closing(ask_side_by_side(requests, out / "work", processes, command or usual)) as answers:
        for number, fault in answers:
            yield Outcome(jobs[number], None if fault else finished(jobs[number], out), fault)


def ask_side_by_side(
    requests: Sequence[Mapping[str, Any]], work: Path, processes: int, command: Sequence[str]
) -> Generator[tuple[int, str], None, None]:
    """Send requests to worker processes; yield the number of each and its error message, if any, in the order in which
    they end.

    work: the folder for the logs of the processes; git ignores it.
    command: the command of a worker process.
    """
    if processes < 1:
        raise ValueError(f"jobs: need at least 1 process, got {processes}")
    ignored_by_git(work)
    pool = WorkerPool(command, work / "logs", threads=max(1, (os.cpu_count() or 1) // processes))
    with ending_on_signals(), ThreadPoolExecutor(processes) as threads:
        try:
            pending = {threads.submit(pool.run, request): number for number, request in enumerate(requests)}
            for future in as_completed(pending):
                yield pending[future], future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            pool.close()


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP as an exception, so that the processes are ended, too. Only the main thread gets signals."""
    if current_thread() is not main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in termination_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class WorkerPool:
    """Worker processes; a request takes an idle one, or starts a new one."""

    def __init__(self, command: Sequence[str], logs: Path, threads: int) -> None:
        self.command, self.logs = command, logs
        self.environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
        self.idle: list[Worker] = []
        self.all: list[Worker] = []
        self.lock = Lock()
        self.closed = False

    def run(self, request: Mapping[str, Any]) -> str:
        """Send a request to a worker, or after its death to another; the error message, or nothing."""
        code = 0
        for _ in range(TRIES):
            worker = self._take()
            if worker is None:
                break
            answer = worker.ask(request)
            if answer is not None and not answer["fault"]:
                self.idle.append(worker)
                return ""
            # After an error on a device, the process may not be able to use it again.
            code = worker.stop()
            if answer is not None:
                return answer["fault"]
        return f"its process ended {TRIES} times, with exit code {code}; see {self.logs}"

    def close(self) -> None:
        """Ask every process to save its work and exit, and wait for it."""
        with self.lock:
            self.closed = True
        for worker in self.all:
            worker.process.terminate()
        for worker in self.all:
            worker.stop()

    def _take(self) -> Worker | None:
        with self.lock:
            if self.closed:
                return None
            if self.idle:
                return self.idle.pop()
            worker = Worker(self.command, self.logs / f"worker-{len(self.all)}.log", self.environment)
            self.all.append(worker)
            return worker


class Worker:
    """A process that answers requests, one at a time."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        pipe = subprocess.PIPE
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, encoding="utf-8"
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.replies = self.process.stdin, self.process.stdout

    def ask(self, request: Mapping[str, Any]) -> dict[str, str] | None:
        """Send a request and wait for the answer; None if the process died."""
        try:
            self.requests.write(json.dumps(request) + "\n")
            self.requests.flush()
            return json.loads(self.replies.readline())
        except (OSError, ValueError):  # died, perhaps in the middle of a line
            return None

    def stop(self) -> int:
        """Send no more requests, wait for the process to end, and return its exit code."""
        # It may have died already, or another thread may be waiting for its answer.
        with suppress(OSError, ValueError):
            self.requests.close()
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        with suppress(OSError, ValueError):
            self.replies.close()
        return code


def be_worker(run: Callable[[Any], str]) -> None:
    """Answer each line of standard input with ``{"fault": …}``: what ``run`` returns for it, empty once all is done."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        for line in sys.stdin:
            print(json.dumps({"fault": run(json.loads(line))}), file=replies, flush=True)
    except Interrupted as interrupted:
        sys.exit(interrupted.code)


def run_request(entries: Mapping[str, Any], out: Path, device: str, processes: int = 1) -> str:
    """Run the job that the entries describe; the error message, or nothing once its record is written."""
    return attempt(Job.from_json(entries), out, device, Lines(), processes).fault


def run_on_ray(
    jobs: Sequence[Job],
    out: Path,
    device: str = "auto",
    *,
    address: str | None = None,
    gpus: float = 0.0,
    retries: int = TRIES,
    run: Callable[[Mapping[str, Any], str, str, int], Mapping[str, Any]] | None = None,
) -> Iterator[Outcome]:
    """Yield outcomes in the order in which jobs end.

    address: of a running cluster (``auto``, ``ray://host:10001``); None starts Ray on this machine.
    gpus: the share of a GPU per job; 0 for the CPU.
    retries: how often a job is repeated after its worker was lost.
    run: replaces :func:`run_remotely` on the worker.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("running on a cluster needs Ray: pip install 'geoskip[cluster]'") from error
    starts = not ray.is_initialized()
    if starts:
        # Workers look for data in the same folders, unless they have settings of their own.
        folders = {name: os.environ[name] for name in ("GEOSKIP_CACHE", "GEOSKIP_DATA") if name in os.environ}
        options: dict[str, Any] = {} if address else {"include_dashboard": False}
        ray.init(address, log_to_driver=False, runtime_env={"env_vars": folders}, **options)
    try:
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=retries)(run or run_remotely)
        shared_by = max(1, round(1 / gpus)) if gpus else 1
        pending = {task.remote(job.to_json(), str(out.absolute()), device, shared_by): job for job in jobs}
        while pending:
            (ended, *_), _ = ray.wait(list(pending))
            job = pending.pop(ended)
            try:
                reply = ray.get(ended)
            except ray.exceptions.RayError as error:
                lost = f"lost on the cluster {1 + retries} times: {str(error).splitlines()[0]}"
                reply = {"record": None, "items": None, "fault": lost}
            record = None if reply["record"] is None else record_from_json(reply["record"], job.label)
            if reply["items"] is not None:
                atomic_write(job.items_path(out), reply["items"])
            if record is not None:
                write_record(job.record_path(out), record)
            yield Outcome(job, record, reply["fault"])
    finally:
        if starts:
            ray.shutdown()


def run_remotely(job: Mapping[str, Any], out: str, device: str, shared_by: int) -> Mapping[str, Any]:
    """Run a job on a worker; return its record as plain JSON and its errors per item, or the error message."""
    outcome = attempt(Job.from_json(job), Path(out), device, concurrency=shared_by)
    record = None if outcome.record is None else record_to_json(outcome.record)
    items = outcome.job.items_path(Path(out))
    return {"record": record, "items": items.read_bytes() if items.is_file() else None, "fault": outcome.fault}


if __name__ == "__main__":
    be_worker(partial(run_request, out=Path(sys.argv[1]), device=sys.argv[2], processes=int(sys.argv[3])))
