"""A worker in trouble; a module of its own, so that the processes of a cluster need not wait for torch."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def troubled(job: Mapping[str, Any], out: str, device: str, shared_by: int) -> Mapping[str, Any]:
    """Seed 1 dies at its first try, seed 2 at every try, seed 3 fails; others give the record that lies in ``out``."""
    tried = Path(out) / f"tried-{job['seed']}"
    first = not tried.exists()
    tried.touch()
    if job["seed"] == 2 or (job["seed"] == 1 and first):
        os._exit(1)
    if job["seed"] == 3:
        return {"record": None, "items": None, "fault": "ValueError: no"}
    record = json.loads((Path(out) / f"record-{job['seed']}").read_text())
    return {"record": record, "items": None, "fault": ""}
