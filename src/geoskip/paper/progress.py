"""Where an experiment stands: what is done, what is to do, what failed, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from geoskip.paper.estimates import in_words, remaining_seconds
from geoskip.paper.jobs import Job, finished, make_jobs
from geoskip.paper.recipe import Experiment, Recipe, chosen_data
from geoskip.paper.registry import find_experiment
from geoskip.paper.running import Outcome
from geoskip.paper.sheets import Sheet, cell, sheet
from geoskip.records import RunRecord


@dataclass
class Progress:
    """The jobs of one call, and how they end."""

    experiment: Experiment
    pending: list[Job]
    done: dict[Job, RunRecord]
    processes: int = 1
    faults: list[Outcome] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        name: str,
        patterns: Sequence[str],
        seeds: Sequence[int],
        schedule: str,
        data: Sequence[str],
        out: Path,
        processes: int = 1,
    ) -> Progress:
        """What the records in ``out`` leave to do."""
        whole = find_experiment(name)
        chosen = Experiment(whole.name, whole.title, whole.select(patterns), whole.figure)
        jobs = make_jobs(chosen.recipes, chosen_data(chosen.tasks, data, schedule), schedule, seeds)
        records = {job: finished(job, out) for job in jobs}
        done = {job: record for job, record in records.items() if record is not None}
        return cls(chosen, [job for job in jobs if job not in done], done, processes)

    def add(self, outcome: Outcome) -> str:
        """Count an outcome; what to say of it in a line."""
        if outcome.record is None:
            self.faults.append(outcome)
            return f"{outcome.job.label}: failed: {outcome.fault}"
        self.done[outcome.job] = outcome.record
        recipe, seed = outcome.job.recipe, outcome.job.seed
        figure = cell(recipe, {seed: outcome.record}, recipe.metrics[0])
        return f"{outcome.job.label}: {figure} in {in_words(outcome.record.seconds)}; {self.words()}"

    @property
    def runs(self) -> Mapping[Recipe, Mapping[int, RunRecord]]:
        found: dict[Recipe, dict[int, RunRecord]] = {recipe: {} for recipe in self.experiment.recipes}
        for job, record in self.done.items():
            found[job.recipe][job.seed] = record
        return found

    def sheet(self) -> Sheet:
        """With the second figures of a task, where there is room for them."""
        return sheet(self.experiment, self.runs, ranks=2 if len(self.experiment.tasks) == 1 else 1)

    def words(self) -> str:
        """``12 of 42 done, about 40 min left``; before anything was timed, how many there are."""
        failed = {outcome.job for outcome in self.faults}
        waiting = [job for job in self.pending if job not in self.done and job not in failed]
        told = f"{len(self.done)} of {len(self.done) + len(waiting) + len(failed)} done"
        told += f", {len(failed)} failed" if failed else ""
        if not waiting:
            return told
        left = remaining_seconds(waiting, list(self.done.items()), self.processes)
        return f"{told}, {len(waiting)} to go" if left is None else f"{told}, about {in_words(left)} left"
