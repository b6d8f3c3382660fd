"""How far a long job is: a bar on a terminal, a few plain lines in a log file."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

FIRST_LINE_SECONDS, LINE_SECONDS = 5.0, 30.0


@contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function that is called with the number of items done since the last call.

    ``total`` is None if it is not known. Without a terminal, a line is printed to standard error every half minute,
    and none for a job that ends within seconds.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            yield partial(bar.advance, bar.add_task(label, total=total))
        return
    done, next_line = 0, time.monotonic() + FIRST_LINE_SECONDS

    def advance(amount: int) -> None:
        nonlocal done, next_line
        done += amount
        if time.monotonic() >= next_line:
            print(f"{label}: {done:,}{'' if total is None else f' of {total:,}'}", file=sys.stderr, flush=True)
            next_line = time.monotonic() + LINE_SECONDS

    yield advance
