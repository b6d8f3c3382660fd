"""A process that trains one job after the other, as its parent sends them: a line of JSON in, a line of JSON out.

``python -m geoskip.experiments.worker OUT DEVICE``. Whatever else is printed goes to the log, standard error.
"""

import json
import os
import sys
from pathlib import Path
from typing import TextIO


def serve(requests: TextIO, replies: TextIO, out: Path, device: str) -> None:
    """Answer each job with ``{"fault": ""}`` once its record is written, or with what went wrong."""
    from geoskip.experiments.jobs import Job
    from geoskip.experiments.running import attempt
    from geoskip.training.progress import Lines

    for line in requests:
        outcome = attempt(Job.from_json(json.loads(line)), out, device, Lines())
        replies.write(json.dumps({"fault": outcome.fault}) + "\n")
        replies.flush()


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from geoskip.training.signals import Interrupted

    try:
        serve(sys.stdin, replies, Path(sys.argv[1]), sys.argv[2])
    except Interrupted as interrupted:
        sys.exit(interrupted.code)
