"""How long the rest takes, from what was timed so far."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from geoskip.paper.jobs import Job
from geoskip.records import RunRecord


def remaining_seconds(
    pending: Sequence[Job], done: Sequence[tuple[Job, RunRecord]], processes: int = 1
) -> float | None:
    """Each pending job takes as long as its row took with other seeds, or else as the rows of its task did on average.

    None before anything is known. Jobs side by side share the time.
    """
    if not done:
        return None
    costs = [_cost(job, done) for job in pending]
    return sum(costs) / max(1, min(processes, len(costs)))


def _cost(job: Job, done: Sequence[tuple[Job, RunRecord]]) -> float:
    known = [(other, record.seconds) for other, record in done]
    for alike in (
        [seconds for other, seconds in known if other.recipe == job.recipe],
        [seconds for other, seconds in known if other.recipe.task == job.recipe.task],
        [seconds for _, seconds in known],
    ):
        if alike:
            return fmean(alike)
    return 0.0


def in_words(seconds: float) -> str:
    """``2 h 5 min``, ``40 s``."""
    if seconds < 60:
        return f"{round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
