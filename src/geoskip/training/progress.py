"""Shows how far training is, and writes the metrics: ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from geoskip.records.files import atomic_write
from geoskip.records.reading import ReadError, parse_json


class Progress:
    """Shows nothing. A subclass sets the seconds between updates of its display and overrides :meth:`show`."""

    first_seconds, seconds = math.inf, math.inf

    def start(self, total: int, done: int) -> None:
        """Training starts, or resumes after ``done`` of ``total`` steps."""
        self.total, self.first, self.began = total, done, time.monotonic()
        self.next = self.began + self.first_seconds

    def update(self, step: int, epoch: int, loss: float | None, metric: str = "") -> None:
        """A step is done; ``loss`` is that of the last complete epoch, ``metric`` the result of the last evaluation."""
        if (now := time.monotonic()) < self.next:
            return
        self.next = now + self.seconds
        parts = ["" if loss is None else f"loss {loss:.4g}", metric]
        status = ", ".join([f"step {step:,} of {self.total:,}", f"epoch {epoch + 1:,}", *filter(None, parts)])
        time_left = "starting"
        if step > self.first and now > self.began:
            rate = (step - self.first) / (now - self.began)
            seconds = round((self.total - step) / rate)
            hours, minutes = seconds // 3600, seconds // 60 % 60
            left = f"{hours}:{minutes:02d} h" if hours else f"{minutes}:{seconds % 60:02d} min"
            time_left = f"{rate:,.1f} steps/s, {left} left"
        self.show(step, status, time_left)

    def show(self, step: int, status: str, time_left: str) -> None:
        """Display the state of training: ``step 7 of 9, epoch 3, loss 0.5``, ``2.0 steps/s, 0:10 min left``."""

    def message(self, text: str) -> None:
        """Display a message."""

    def close(self) -> None:
        """Training has ended."""


class Lines(Progress):
    """A line of text after 5 seconds, and then every half minute."""

    first_seconds, seconds = 5.0, 30.0

    def show(self, step: int, status: str, time_left: str) -> None:
        self.message(f"{status}, {time_left}")

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar(Progress):
    """A bar with loss, metric, rate and remaining time."""

    first_seconds, seconds = 0.0, 0.1  # rich draws ten times a second

    def __init__(self, stream: TextIO | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
        self.bar = RichProgress(*columns, console=Console(file=stream or sys.stderr), transient=True)
        self.task: Any = None

    def start(self, total: int, done: int) -> None:
        super().start(total, done)
        self.bar.start()
        self.task = self.bar.add_task("training", total=total, completed=done, left="")

    def show(self, step: int, status: str, time_left: str) -> None:
        self.bar.update(self.task, completed=step, description=status, left=time_left)

    def message(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.bar.stop()


def choose_progress() -> Progress:
    """A bar if standard error is a terminal, otherwise lines."""
    return Bar() if sys.stderr.isatty() else Lines()


class MetricsWriter:
    """Writes ``metrics.jsonl``: one object per line, with its ``step`` and whatever was measured.

    A run that resumes from a checkpoint keeps the lines up to the checkpoint's step. Incomplete lines are removed.
    A line that is already the last one is not written again: a run can be killed between its last line and its record.
    """

    def __init__(self, path: Path, step: int = 0, tensorboard: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(path) if line["step"] <= step] if step else []
        atomic_write(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self._last = kept[-1] if kept else None
        self._file = path.open("a", encoding="utf-8")
        self._board = _tensorboard(path.parent / "tensorboard", step) if tensorboard else None

    def write(self, step: int, values: Mapping[str, int | float]) -> None:
        line = {"step": step, **values}
        if line != self._last:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            self._last = line
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a ``metrics.jsonl``."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            line = parse_json(text)
        except ReadError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard is not installed: pip install tensorboard") from error
    return SummaryWriter(str(folder), purge_step=step)
