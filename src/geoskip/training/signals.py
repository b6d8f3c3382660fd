"""SIGINT, SIGTERM and SIGHUP as a request to end after the current step, with a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):
    """Training ended early, and can go on. ``code`` is the exit code that shells expect: 129, 130 or 143."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.code = 128 + number


class Interrupts:
    """Within the context the signals are only noted; a second SIGINT interrupts at once, as ever.

    When the terminal hangs up (SIGHUP), what would still be printed there is dropped, as it could only fail. Elsewhere
    than in the main thread, where signals cannot be handled, nothing changes.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._terminals: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        # Not at the top: the command line imports this module for its help.
        from geoskip.records.files import termination_signals

        if threading.current_thread() is threading.main_thread():
            self._terminals = [number for number in (1, 2) if os.isatty(number)]
            signals = (signal.SIGINT, *termination_signals())
            self._before = {number: signal.signal(number, self._note) for number in signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.number = number
        if number not in (signal.SIGINT, signal.SIGTERM):
            self._close_terminals()
        if number == signal.SIGINT:
            # While data are made there is no step yet, and this may take a while.
            print("geoskip: ending after this step, with a checkpoint; Ctrl-C again ends at once", file=sys.stderr)

    def _close_terminals(self) -> None:
        sink = os.open(os.devnull, os.O_WRONLY)
        for number in self._terminals:
            os.dup2(sink, number)
        os.close(sink)
