"""How far a long job is: a bar on a terminal, a few plain lines in a log file."""

import sys
import time
from types import TracebackType
from typing import Any

FIRST_LINE_SECONDS, LINE_SECONDS = 5.0, 30.0


class ProgressBar:
    """``with ProgressBar("superpixels", total) as progress: … progress.advance(n)``, on standard error.

    ``total`` is None where it is not known beforehand. Without a terminal one line every half minute, and none at
    all for a job that ends within seconds.
    """

    def __init__(self, label: str, total: int | None) -> None:
        self.label, self.total, self.done = label, total, 0
        self.bar: Any = None

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self.bar = Bar(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total)
        self.next_line = time.monotonic() + FIRST_LINE_SECONDS
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, amount: int = 1) -> None:
        """So many more are done."""
        self.done += amount
        if self.bar is not None:
            self.bar.advance(self.task, amount)
        elif time.monotonic() >= self.next_line:
            total = "" if self.total is None else f" of {self.total:,}"
            print(f"{self.label}: {self.done:,}{total}", file=sys.stderr, flush=True)
            self.next_line = time.monotonic() + LINE_SECONDS
