"""What takes long says so in the log; commands show it while they run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def showing_log() -> Iterator[None]:
    """Within the context what geoskip logs goes to standard error, as plain lines."""
    log, handler = logging.getLogger("geoskip"), logging.StreamHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
