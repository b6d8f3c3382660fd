"""Treats SIGINT, SIGTERM and SIGHUP as a request to stop after the current step, with a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):
    """Training stopped early and can be resumed. ``code`` is the exit code that shells expect: 129, 130 or 143."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.code = 128 + number


class Interrupts:
    """Within the context, a signal only sets ``number``; a second SIGINT raises KeyboardInterrupt.

    When the terminal closes (SIGHUP), standard output and error are redirected to the null device, because writing
    there would fail. Outside the main thread, where signals cannot be handled, nothing changes.
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
            self._before = {number: signal.signal(number, self._handle) for number in signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.number = number
        if number not in (signal.SIGINT, signal.SIGTERM):
            self._close_terminals()
        if number == signal.SIGINT:
            # Before the first step, while data are loaded, this may take a while.
            print("geoskip: stopping after this step, with a checkpoint; Ctrl-C again stops at once", file=sys.stderr)

    def _close_terminals(self) -> None:
        sink = os.open(os.devnull, os.O_WRONLY)
        for number in self._terminals:
            os.dup2(sink, number)
        os.close(sink)
