"""Reporting progress: a bar or lines on the terminal, a line of JSON per epoch, and TensorBoard."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from geoskip.records.files import atomic_write
from geoskip.records.reading import ReadError, parse_json

FIRST_LINE_SECONDS, LINE_SECONDS = 5.0, 30.0


@runtime_checkable
class Progress(Protocol):
    """What the loop tells."""

    def start(self, total: int, done: int) -> None:
        """Training begins, or goes on after ``done`` of ``total`` steps."""
        ...

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        """A step is done; ``loss`` is that of the last whole epoch, ``metric`` the last figure on the test items."""
        ...

    def say(self, text: str) -> None:
        """A message."""
        ...

    def close(self) -> None: ...


class Silent:
    """No progress."""

    def start(self, total: int, done: int) -> None: ...

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Tolerant:
    """Another progress, whose errors do not end the training: a terminal can close while a run goes on."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def start(self, total: int, done: int) -> None:
        with suppress(OSError):
            self.progress.start(total, done)

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        with suppress(OSError):
            self.progress.update(step, epoch, loss, metric)

    def say(self, text: str) -> None:
        with suppress(OSError):
            self.progress.say(text)

    def close(self) -> None:
        with suppress(OSError):
            self.progress.close()


class Lines:
    """A line after some seconds and then every half minute."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def start(self, total: int, done: int) -> None:
        self.total, self.first, self.began = total, done, time.monotonic()
        self.next_line = self.began + FIRST_LINE_SECONDS

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        now = time.monotonic()
        if now >= self.next_line:
            rate = (step - self.first) / (now - self.began)
            self.say(f"{described(step, self.total, epoch, loss, metric)}, {remaining(self.total - step, rate)}")
            self.next_line = now + LINE_SECONDS

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def close(self) -> None: ...


class Bar:
    """A bar with loss, metric, rate and remaining time."""

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
        self.bar = RichProgress(*columns, console=Console(file=stream or sys.stderr), transient=True)
        self.task: Any = None

    def start(self, total: int, done: int) -> None:
        self.total, self.first, self.began, self.shown = total, done, time.monotonic(), 0.0
        self.bar.start()
        self.task = self.bar.add_task("training", total=total, completed=done, left="")

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        now = time.monotonic()
        # Rich draws ten times a second; to tell it more often only costs time.
        if now < self.shown + 0.1:
            return
        self.shown, rate = now, (step - self.first) / (now - self.began)
        left = remaining(self.total - step, rate)
        description = described(step, self.total, epoch, loss, metric)
        self.bar.update(self.task, completed=step, description=description, left=left)

    def say(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.bar.stop()


def described(step: int, total: int, epoch: int, loss: float | None, metric: str = "") -> str:
    """Where a run is, in words."""
    known = "" if loss is None else f", loss {loss:.4g}"
    measured = f", {metric}" if metric else ""
    return f"step {step:,} of {total:,}, epoch {epoch + 1:,}{known}{measured}"


def remaining(steps: int, rate: float) -> str:
    """Steps in a second, and the time that the rest will take."""
    if rate <= 0:
        return "starting"
    seconds = round(steps / rate)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    left = f"{hours}:{minutes:02d} h" if hours else f"{minutes}:{seconds % 60:02d} min"
    return f"{rate:,.1f} steps/s, {left} left"


def choose_progress() -> Progress:
    """A bar where standard error is a terminal, lines elsewhere."""
    return Bar() if sys.stderr.isatty() else Lines()


class Journal:
    """``metrics.jsonl``: one object a line, with the ``step`` it belongs to and whatever was measured.

    A run that goes on from a checkpoint takes up the journal at the checkpoint's step; lines that a kill cut in half
    go too.
    """

    def __init__(self, path: Path, step: int = 0, tensorboard: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_journal(path) if line["step"] <= step] if step else []
        atomic_write(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")
        self._board = _board(path.parent / "tensorboard", step) if tensorboard else None

    def write(self, step: int, values: Mapping[str, int | float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal, without those that are not whole."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            line = parse_json(text)
        except ReadError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder), purge_step=step)
