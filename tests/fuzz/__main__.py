"""Feeds damaged files to every reader for some time and counts what happens.

A damaged input must end in a clear error (one line that names the file, as the command line prints it) or be accepted.
Everything else is a crash: any other exception, a warning, a process that dies (SIGSEGV) or hangs, and damage that a
checksum should have found. Inputs are numbered and follow from the number and the seed alone, so that a crash can be
repeated: ``python -m tests.fuzz --at NUMBER``.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.cli.console import error_line, is_input_error
from geoskip.training.loop import commit
from tests.fuzz.readers import Reader, all_readers

OUTCOMES = ("clear errors", "accepted", "crashes")
HANG_SECONDS = 60.0
MEMORY_BYTES = 16 << 30
SHOWN = 20


def attempt(readers: Sequence[Reader], number: int, seed: int, scratch: Path) -> tuple[str, str, str]:
    """Name of the reader, outcome, and what was said, of one input."""
    reader = readers[number % len(readers)]
    random = np.random.default_rng([seed, number])
    files = reader.seeds[random.integers(len(reader.seeds))]
    candidates = [name for name in files if _mutation(reader, name)]
    name = str(random.choice(candidates))
    damaged = _mutation(reader, name)(files[name], random)
    folder = scratch / f"input{number}"
    try:
        _write(folder, files | {name: damaged})
        if reader.sign is not None:
            with suppress(Exception):  # what is too damaged to be signed is read as it is
                reader.sign(folder)
        outcome, said = _outcome(reader, folder, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome == "accepted" and reader.notices and not _same(damaged, files[name], name):
        return reader.name, "crashes", f"{name}: damage that no checksum found"
    return reader.name, outcome, said


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def _same(one: bytes, other: bytes, name: str) -> bool:
    """Equal, but for blanks in JSON."""
    return one == other or (name.endswith(".json") and json.loads(one) == json.loads(other))


def _outcome(reader: Reader, folder: Path, name: str) -> tuple[str, str]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            reader.read(folder, name)
            outcome, said = "accepted", ""
        except Exception as error:
            said = error_line(error)
            named = reader.names(folder, name) in said
            outcome = "clear errors" if is_input_error(error) and named and len(said) < 2000 else "crashes"
            said = f"{type(error).__name__}: {said[:300]}"
    if warned and outcome != "crashes":
        return "crashes", f"warning: {warned[0].message}"
    return outcome, said


def _mutation(reader: Reader, name: str) -> Any:
    ends = [end for end in reader.mutations if name.endswith(end)]
    return reader.mutations[max(ends, key=len)] if ends else None


@dataclass
class Counts:
    """What happened, by reader, and the first crashes in words."""

    by_reader: dict[str, Counter[str]] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)

    def add(self, number: int, name: str, outcome: str, said: str) -> None:
        self.by_reader.setdefault(name, Counter())[outcome] += 1
        if outcome == "crashes":
            self.crashes.append(f"input {number}, {name}: {said}")

    @property
    def total(self) -> Counter[str]:
        return sum(self.by_reader.values(), Counter())


def unsound(readers: Sequence[Reader], scratch: Path) -> list[str]:
    """What readers say of inputs that nobody damaged; it should be nothing."""
    found = []
    for reader in readers:
        for number, files in enumerate(reader.seeds):
            folder = scratch / f"sound{number}"
            _write(folder, files)
            outcome, said = _outcome(reader, folder, next(iter(files)))
            shutil.rmtree(folder)
            if outcome != "accepted":
                found.append(f"{reader.name}, sound input {number}: {said}")
    return found


def fuzz(readers: Sequence[Reader], seed: int, numbers: Iterator[int], jobs: int, scratch: Path) -> Counts:
    """Damaged inputs in ``jobs`` processes; one that dies or hangs is counted and replaced."""
    counts, workers = Counts(), [_Worker(readers, seed, scratch) for _ in range(jobs)]
    try:
        for worker in workers:
            worker.give(next(numbers, None))
        while busy := [worker for worker in workers if worker.number is not None]:
            ready = wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                number = worker.number
                assert number is not None
                if worker.connection in ready:
                    counts.add(number, *worker.answer())
                elif time.monotonic() - worker.began > HANG_SECONDS:
                    counts.add(number, readers[number % len(readers)].name, "crashes", "hangs")
                    worker.restart()
                else:
                    continue
                worker.give(next(numbers, None))
    finally:
        for worker in workers:
            worker.stop()
    return counts


class _Worker:
    """A process that is given numbers and answers with outcomes."""

    def __init__(self, readers: Sequence[Reader], seed: int, scratch: Path) -> None:
        self.readers, self.seed, self.scratch = readers, seed, scratch
        self.restart()

    def restart(self) -> None:
        if hasattr(self, "process"):
            self.stop()
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.readers, self.seed, self.scratch), daemon=True)
        self.process.start()
        theirs.close()
        self.number: int | None = None

    def give(self, number: int | None) -> None:
        self.number, self.began = number, time.monotonic()
        if number is not None:
            self.connection.send(number)

    def answer(self) -> tuple[str, str, str]:
        assert self.number is not None
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
            name, code = self.readers[self.number % len(self.readers)].name, self.process.exitcode
            self.restart()
            return name, "crashes", f"the process died with exit code {code}"

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _work(connection: Connection, readers: Sequence[Reader], seed: int, scratch: Path) -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # Libraries for images write about damage on their own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        connection.send(attempt(readers, connection.recv(), seed, scratch))


def _numbers(first: int, count: int | None, seconds: float | None, started: float) -> Iterator[int]:
    number = first
    while (count is None or number < first + count) and (seconds is None or time.monotonic() - started < seconds):
        yield number
        number += 1


def _table(counts: Counts) -> str:
    rows = [*sorted(counts.by_reader.items()), ("all", counts.total)]
    lines = [f"{'reader':24} {'inputs':>8} " + " ".join(f"{name:>13}" for name in OUTCOMES)]
    for name, found in rows:
        lines.append(f"{name:24} {found.total():8,} " + " ".join(f"{found[outcome]:13,}" for outcome in OUTCOMES))
    return "\n".join(lines)


def _record(counts: Counts, seed: int, seconds: float) -> dict[str, Any]:
    readers = {
        name: {"inputs": found.total(), **{outcome: found[outcome] for outcome in OUTCOMES}}
        for name, found in sorted(counts.by_reader.items())
    }
    total = counts.total
    about: dict[str, Any] = {"date": date.today().isoformat(), "commit": commit(), "python": sys.version.split()[0]}
    about |= {"torch": torch.__version__, "seed": seed, "seconds": round(seconds)}
    return {**about, "inputs": total.total(), **{name: total[name] for name in OUTCOMES}, "readers": readers}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long; the default is 60 unless --inputs is given")
    parser.add_argument("--inputs", type=int, help="how many inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--reader", action="append", help="only readers whose name begins with this; may be repeated")
    parser.add_argument("--at", type=int, help="one input, in this process, with the traceback of its error")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="geoskip-fuzz-") as folder:
        os.environ["GEOSKIP_CACHE"] = f"{folder}/cache"
        (seeds := Path(folder, "seeds")).mkdir()
        readers = all_readers(seeds)
        wanted = tuple(given.reader or ("",))
        readers = [reader for reader in readers if reader.name.startswith(wanted)]
        if not readers:
            parser.error(f"no reader is called {' or '.join(wanted)}")
        if given.at is not None:
            return _show(readers, given.at, given.seed, Path(folder))
        if faults := unsound(readers, Path(folder)):
            print("\n".join(faults))
            return 1
        started = time.monotonic()
        seconds = 60.0 if given.seconds is None and given.inputs is None else given.seconds
        numbers = _numbers(0, given.inputs, seconds, started)
        counts = fuzz(readers, given.seed, numbers, given.jobs, Path(folder))
        took = time.monotonic() - started
    print(_table(counts))
    for crash in counts.crashes[:SHOWN]:
        print(crash)
    if given.json is not None:
        given.json.write_text(json.dumps(_record(counts, given.seed, took), indent=1) + "\n")
    return 1 if counts.crashes else 0


def _show(readers: Sequence[Reader], number: int, seed: int, scratch: Path) -> int:
    reader = readers[number % len(readers)]
    unsaid: list[BaseException] = []

    def read(folder: Path, name: str) -> None:
        try:
            reader.read(folder, name)
        except BaseException as error:
            unsaid.append(error)
            raise

    told = Reader(reader.name, reader.seeds, read, reader.mutations, reader.sign, reader.notices, reader.names)
    print(*attempt([told] * len(readers), number, seed, scratch), sep="\n")
    if unsaid:
        raise unsaid[0]
    return 0


if __name__ == "__main__":
    sys.exit(main())
