"""Several jobs at once on one machine: processes that each take the next job when they are done with one.

Small models leave a large card idle between their kernels; a second process fills the gaps. A process keeps its data
from job to job. One that dies (out of memory, killed) is replaced and its job tried again, going on from its last
checkpoint; the records that are there stay.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, current_thread, main_thread
from types import FrameType

from geoskip.paper.jobs import Job, finished
from geoskip.paper.running import Outcome, ignored_by_git
from geoskip.records.system import ending_signals

TRIES = 3
PATIENCE = 60.0  # seconds that a process has to save its work when it is told to end


def run_side_by_side(
    jobs: Sequence[Job], out: Path, device: str = "auto", processes: int = 2, command: Sequence[str] = ()
) -> Generator[Outcome, None, None]:
    """Outcomes in the order in which jobs end. ``command`` starts a worker, where it is not the usual one."""
    if processes < 1:
        raise ValueError(f"jobs: need at least 1 process, got {processes}")
    ignored_by_git(out / "work")
    usual = [sys.executable, "-m", "geoskip.paper.worker", str(out), device]
    crew = Crew(command or usual, out, threads=max(1, (os.cpu_count() or 1) // processes))
    with ending_on_signals(), ThreadPoolExecutor(processes) as pool:
        try:
            for future in as_completed([pool.submit(crew.run, job) for job in jobs]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            crew.disband()


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP as an exception, so that the processes are ended, too. Only the main thread gets signals."""
    if current_thread() is not main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Crew:
    """The processes at work; each job takes one that is idle, or a new one."""

    def __init__(self, command: Sequence[str], out: Path, threads: int) -> None:
        self.command, self.out, self.threads = command, out, threads
        self.idle: list[Worker] = []
        self.all: list[Worker] = []
        self.lock = Lock()
        self.disbanded = False

    def run(self, job: Job) -> Outcome:
        code = 0
        for _ in range(TRIES):
            worker = self._take()
            if worker is None:
                break
            answer = worker.ask(job)
            if answer is not None and not answer["fault"]:
                self.idle.append(worker)
                return Outcome(job, finished(job, self.out))
            # After a fault on a device its process may not be able to use it again.
            code = worker.stop()
            if answer is not None:
                return Outcome(job, None, answer["fault"])
        return Outcome(job, None, f"its process ended (code {code}) {TRIES} times over; see {self._log(0).parent}")

    def disband(self) -> None:
        """Tell every process to save its work and end, and wait for it."""
        with self.lock:
            self.disbanded = True
        for worker in self.all:
            worker.process.terminate()
        for worker in self.all:
            worker.stop()

    def _take(self) -> Worker | None:
        with self.lock:
            if self.disbanded:
                return None
            if self.idle:
                return self.idle.pop()
            worker = Worker(self.command, self._log(len(self.all)), self.threads)
            self.all.append(worker)
            return worker

    def _log(self, number: int) -> Path:
        return self.out / "work" / "logs" / f"worker-{number}.log"


class Worker:
    """A process that runs jobs, one at a time: :mod:`geoskip.paper.worker`."""

    def __init__(self, command: Sequence[str], log: Path, threads: int) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, encoding="utf-8"
            )

    def ask(self, job: Job) -> dict[str, str] | None:
        """Its answer; None if it is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job.to_json()) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):  # gone, in the middle of a line perhaps
            return None

    def stop(self) -> int:
        """Send no more jobs, and wait for its end: the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # Gone already, perhaps, or being asked by another thread.
        with suppress(OSError, ValueError):
            self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        with suppress(OSError, ValueError):
            self.process.stdout.close()
        return code
