"""Kill geoskip in the middle of its work, over and over, and check that nothing is lost and nothing is left behind.

    make kills KILLS=300

Five stages: training, evaluation, export, ``apply`` and building an entry of the cache. Each is run once without a
kill, as the reference. Then it is killed (SIGKILL) several times in a row in a fresh folder, half of the times at a
random moment and half of the times at a random file operation, and at last it is run to its end, by the same command,
unless it was killed when all was done.

- After each kill every file that has its final name is complete, and training has not lost a checkpoint.
- At the end the folder has the same files as the reference, no more and no less, with the same contents. Only what a
  clock says may differ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.export
from safetensors import safe_open

from geoskip.cli import app
from geoskip.data import mesh_folder
from geoskip.data.cache import entries
from geoskip.meshes import read_mesh, write_mesh
from geoskip.records.files import atomic_write
from geoskip.report import picture_grids  # noqa: F401 (loaded once, not in every process)
from geoskip.training.checkpoint import newest_checkpoint, read_checkpoint_files
from geoskip.training.loop import commit
from tests.training import sets

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.kills"])
IN_A_ROW = 3
# File operations that Python reports; before each of them a process can be killed.
OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir", "os.chmod"}
CHECKSUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Stage:
    """A command, run in a folder that has what it needs; ``needs`` names the stages that come before it."""

    name: str
    run: Callable[[Path], None]
    needs: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What happened to a stage."""

    stage: str
    at_moments: int = 0
    at_operations: int = 0
    completed: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.at_moments + self.at_operations


def command(*arguments: str) -> Callable[[Path], None]:
    """``geoskip …``, in the folder."""

    def run(folder: Path) -> None:
        os.environ["GEOSKIP_CACHE"] = str(folder / "cache")
        os.chdir(folder)
        app(arguments, standalone_mode=False)

    return run


def build_cache(folder: Path) -> None:
    mesh_folder(folder / "meshes", unit_mm=100.0, cache=folder / "built")


SETTINGS = ["optim.batch_size=4", "checkpoint_every=2", "model.channels=[4,6]", "model.latent=3"]
SETTINGS += ["data_options.unit_mm=100"]
TRAIN = ["train", "reconstruction", "--data", "meshes", "--kernel-size", "2", "--epochs", "6", "-o", "run"]
TRAIN += [word for setting in SETTINGS for word in ("--set", setting)]
STAGES = {
    stage.name: stage
    for stage in (
        Stage("train", command(*TRAIN, "--device", "cpu")),
        Stage("evaluate", command("evaluate", "run", "--samples", "1"), needs=("train",)),
        Stage("export", command("export", "run", "-o", "model", "--program"), needs=("train",)),
        Stage("apply", command("apply", "run", *(f"meshes/{i}.ply" for i in range(8)), "-o", "out"), needs=("train",)),
        Stage("cache", build_cache),
    )
}


def kill_stage(stage: Stage, kills: int, folder: Path, seed: int = 0) -> Outcome:
    """Kill a stage so many times; folders are made in ``folder``."""
    outcome, chance = Outcome(stage.name), random.Random(f"{stage.name} {seed}")
    start = prepared(stage, folder / "start")
    # Always of the same name, as a configuration has the path of the data.
    work, operations = folder / "work", CONTEXT.Value("q", 0)
    shutil.copytree(start, work)
    code, seconds = run_process(stage, work, operations=operations)
    if code != 0:
        raise RuntimeError(f"{stage.name}: ended with code {code} without having been killed")
    expected = contents(work)
    shutil.rmtree(work)
    while outcome.kills < kills and len(outcome.failures) < 10:
        shutil.copytree(start, work)
        step = -1
        for _ in range(min(IN_A_ROW, kills - outcome.kills)):
            at_moment = chance.random() < 0.5
            moment, operation = chance.uniform(0.0, seconds), chance.randint(1, operations.value)
            code, _ = run_process(stage, work, moment if at_moment else None, 0 if at_moment else operation)
            what = f"{stage.name}: killed after {moment:.3f} s" if at_moment else f"{stage.name}: operation {operation}"
            if code == -signal.SIGKILL:
                outcome.at_moments += at_moment
                outcome.at_operations += not at_moment
            elif code != 0:
                outcome.failures.append(f"{what}: ended with code {code}")
            outcome.failures += [f"{what}: {fault}" for fault in incomplete(work)]
            newest = newest_step(work)
            if newest < step:
                outcome.failures.append(f"{what}: step {step} is lost, the newest is {newest}")
            step = max(step, newest)
            if code == 0:
                break
        # A process can be killed when all is done; to do it again, some commands would want --force.
        code = 0 if contents(work) == expected else run_process(stage, work)[0]
        outcome.completed += code == 0
        if code != 0:
            fault = f"{stage.name}: the same command ended with code {code} after kills"
            outcome.failures.append(f"{fault}: {last_line(folder / f'{stage.name}.log')}")
        outcome.failures += [f"{stage.name}: {fault}" for fault in differences(expected, contents(work))]
        shutil.rmtree(work)
    shutil.rmtree(folder)
    return outcome


def prepared(stage: Stage, folder: Path) -> Path:
    """A folder with meshes, and with what the stage needs."""
    data = sets.meshes(20)
    (folder / "meshes").mkdir(parents=True)
    for item in range(len(data)):
        write_mesh(data.mesh(item), folder / "meshes" / f"{item}.ply")
    for name in stage.needs:
        if (code := run_process(STAGES[name], folder)[0]) != 0:
            raise RuntimeError(f"{name}: ended with code {code}")
    return folder


def run_process(
    stage: Stage, folder: Path, moment: float | None = None, operation: int = 0, operations: Any = None
) -> tuple[int, float]:
    """Run a stage in a process of its own: its exit code and the seconds it took.

    It is killed after ``moment`` seconds, or before file operation number ``operation``; ``operations`` counts them.
    """
    ready = CONTEXT.Event()
    arguments = (stage.name, folder, ready, operation, operations)
    process = CONTEXT.Process(target=_child, args=arguments, daemon=True)
    process.start()
    if not ready.wait(120):
        raise RuntimeError(f"{stage.name}: the process did not start")
    began = time.monotonic()
    if moment is not None:
        process.join(moment)
        process.kill()
    process.join(600)
    return process.exitcode if process.exitcode is not None else 1, time.monotonic() - began


def _child(name: str, folder: Path, ready: Any, operation: int, operations: Any) -> None:
    torch.set_num_threads(1)
    sink = os.open(os.devnull, os.O_WRONLY)
    log = os.open(folder.parent / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(log, 2)
    count = 0

    def audit(event: str, arguments: Any) -> None:
        nonlocal count
        if event in OPERATIONS and arguments and str(arguments[0]).startswith((str(folder), "run", "model", "out")):
            count += 1
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    ready.set()
    STAGES[name].run(folder)
    if operations is not None:
        operations.value = count


def last_line(log: Path) -> str:
    return next(iter(reversed(log.read_text(encoding="utf-8").split("\n")[:-1])), "")


def newest_step(folder: Path) -> int:
    """The step of the newest complete checkpoint, -1 without one."""
    newest = newest_checkpoint(folder / "run" / "checkpoints")
    return -1 if newest is None else int(newest.name.split("-")[1].split(".")[0])


def incomplete(folder: Path) -> Iterator[str]:
    """Files with their final names that are not complete."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in parts):
            try:
                _check(path)
            except Exception as error:  # whatever is wrong with it
                yield f"{path.relative_to(folder)} is not complete: {error!r}"
    for path in (folder / "run" / "checkpoints").glob("step-*"):
        read_checkpoint_files(path)
    for root in (folder / "cache", folder / "built"):
        yield from (f"{entry.name}: {entry.fault}" for entry in entries(root, thorough=True) if entry.fault)


def _check(path: Path) -> None:
    if path.suffix == ".json":
        json.loads(path.read_bytes())
    elif path.suffix == ".safetensors":
        with safe_open(path, framework="pt"):
            pass
    elif path.suffix == ".ply":
        read_mesh(path)
    elif path.suffix == ".png" and b"IEND" not in path.read_bytes()[-12:]:
        raise ValueError("its end is missing")
    elif path.suffix == ".pt2":
        with zipfile.ZipFile(path) as file:
            file.testzip()


def contents(folder: Path) -> dict[str, Any]:
    """The files of a folder by name, hidden ones too, with all of their contents that do not depend on the clock."""
    return {
        path.relative_to(folder).as_posix(): _timeless(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def _timeless(path: Path) -> Any:
    if path.name.startswith("."):  # may be incomplete
        return path.read_bytes()
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_bytes()))
    if path.suffix == ".safetensors":  # which does not keep the order of its metadata
        with safe_open(path, framework="pt") as file:
            return file.metadata(), {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
    if path.suffix == ".jsonl":
        return [_without_times(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return "a program" if path.suffix == ".pt2" else path.read_bytes()


def _without_times(value: Any) -> Any:
    """Without seconds, and the lengths and checksums of files that hold seconds."""
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in ("seconds", "bytes", "size")}
    if isinstance(value, list):
        return [_without_times(inner) for inner in value]
    return "checksum" if isinstance(value, str) and CHECKSUM.fullmatch(value) else value


def differences(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"{name} is lost"
        elif name not in expected:
            yield f"{name} is left behind"
        elif expected[name] != found[name]:
            yield f"{name} is not what it is without kills"


def record(outcomes: list[Outcome], seed: int) -> dict[str, Any]:
    return {
        "kind": "kills",
        "commit": commit() or "unknown",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "system": f"{platform.system()} {platform.machine()}",
        "seed": seed,
        "kills": sum(outcome.kills for outcome in outcomes),
        "stages": {
            outcome.stage: {
                "at_random_moments": outcome.at_moments,
                "at_file_operations": outcome.at_operations,
                "completed_afterwards": outcome.completed,
                "failures": len(outcome.failures),
            }
            for outcome in outcomes
        },
        "failures": [failure for outcome in outcomes for failure in outcome.failures],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill geoskip in the middle of its work and see what is left.")
    parser.add_argument("--kills", type=int, default=300, help="in all stages together")
    parser.add_argument("--stage", choices=STAGES, action="append", help="only this stage; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of moments and operations")
    parser.add_argument("--record", type=Path, help="JSON file to write")
    given = parser.parse_args()
    stages = [STAGES[name] for name in given.stage or STAGES]
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for number, stage in enumerate(stages):
            share = given.kills // len(stages) + (number < given.kills % len(stages))
            outcomes.append(kill_stage(stage, share, Path(folder) / stage.name, given.seed))
            done = outcomes[-1]
            print(f"{stage.name}: {done.kills} kills, {done.completed} completions, {len(done.failures)} failures")
    for failure in (failure for outcome in outcomes for failure in outcome.failures):
        print(failure)
    if given.record is not None:
        atomic_write(given.record, (json.dumps(record(outcomes, given.seed), indent=1) + "\n").encode())
    sys.exit(any(outcome.failures for outcome in outcomes))
