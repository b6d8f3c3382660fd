"""A process that trains one job after the other, as its parent sends them: a line of JSON in, a line of JSON out.

``python -m geoskip.paper.worker OUT DEVICE``. Whatever else is printed goes to the log, standard error.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path


def serve(requests: Iterable[str], reply: Callable[[str], object], out: Path, device: str) -> None:
    """Answer each job with ``{"fault": ""}`` once its record is written, or with what went wrong."""
    from geoskip.paper.jobs import Job
    from geoskip.paper.running import attempt
    from geoskip.training.progress import Lines

    for line in requests:
        outcome = attempt(Job.from_json(json.loads(line)), out, device, Lines())
        reply(json.dumps({"fault": outcome.fault}))


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from geoskip.training.signals import Interrupted

    try:
        serve(sys.stdin, partial(print, file=replies, flush=True), Path(sys.argv[1]), sys.argv[2])
    except Interrupted as interrupted:
        sys.exit(interrupted.code)
