"""A row of the paper as something to train: with data, a schedule and a seed it becomes a configuration.

A schedule says how long a row is trained. A shorter one passes through the paper's learning rates faster, or leaves
out the epochs with the lowest rates:

| task | full | short |
|---|---|---|
| reconstruction | 300 epochs, × 0.99 each | 6 epochs, × 0.99⁵⁰ each |
| correspondence | 1000 epochs, × 0.99 each (FeaStNet: × 0.5 every 100) | the first 300 of them |
| classification | 500 epochs, × 0.5 every 30 | 20 epochs, × 0.5 every 5 |

- The short classification leaves out the last 380 epochs of the paper, with rates of 1/16 and below.
- The short correspondence leaves out the last 700, with rates of 1/20 and below (FeaStNet: 1/8), and multiplies
  matrices in TensorFloat-32 on a GPU.
- ``first200`` is the first 200 epochs of the paper's schedule at its own rates; any number will do.

The last epoch counts in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from geoskip.paper.rows import PaperRow
from geoskip.report.runs import SUBJECTS

if TYPE_CHECKING:
    from geoskip.training.config import Config

SCHEDULES = ("full", "short", "smoke", "firstN, such as first200")
FIRST = re.compile(r"first([1-9]\d*)")
TASKS = {"reconstruction": "reconstruction", "correspondence": "correspondence", "superpixels": "classification"}
# The paper's data sets, and the generated ones that replace them where they may not be redistributed. The digits are
# the same; their superpixel graphs are computed again.
ORIGINAL = {"reconstruction": "coma", "correspondence": "faust", "classification": "published-superpixels"}
STAND_IN = {"reconstruction": "faces", "correspondence": "bodies", "classification": "superpixels"}
TINY = "tiny"
NO_TEST = "test=false"


@dataclass(frozen=True)
class Recipe:
    """A row of the paper that can be trained, given data, schedule and seed.

    home: the experiment that its records belong to. Table 3 repeats rows of Tables 1 and 2, which are trained once.
    row: the method and the published figures.
    variant: for an ablation, the difference in a few words.
    settings: the difference as settings of the configuration, such as ``coarsening.matchings=2``.
    """

    home: str
    row: PaperRow
    variant: str = ""
    settings: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.home, self.label))

    @property
    def name(self) -> str:
        return self.row.method

    @property
    def method(self) -> str:
        """The method with its pseudo-coordinates, if several are compared: ``Aff-MoNet (degree)``."""
        return self.name if self.row.pseudo is None else f"{self.name} ({self.row.pseudo})"

    @property
    def line(self) -> str:
        """The name of its line in a table: the method, or the variant of an ablation."""
        return self.variant or self.method

    @property
    def label(self) -> str:
        """Unique in its experiment: ``Aff-MoNet M=9``; for SplineCNN m instead of M = m³."""
        letter = "m" if self.row.operator == "spline" else "M"
        sized = self.method if self.row.column is None else f"{self.method} {letter}={self.row.column}"
        return f"{sized}, {self.variant}" if self.variant else sized

    @property
    def slug(self) -> str:
        """The label as a file name."""
        plain = self.label.replace("++", "pp").replace("+", "-plus").replace("†", "-dagger").lower()
        return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")

    @property
    def task(self) -> str:
        return TASKS[self.row.experiment]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the task, the main one first; of the validation items if the test set is not used."""
        metrics = tuple(metric.key for metric in SUBJECTS[self.task].metrics)
        return tuple(f"validation_{name}" for name in metrics) if NO_TEST in self.settings else metrics

    @property
    def paper(self) -> Mapping[str, float]:
        """The published figures, with the metric names of records."""
        return {name: float(value) for name, value in self.row.figures.items() if name in self.metrics}

    def config(self, data: str, schedule: str, seed: int, device: str = "auto") -> Config:
        from geoskip.training.config import override, resolve

        row = self.row
        full = resolve(
            self.task,
            data=data,
            operator=row.operator,
            skip=row.skip,
            kernel_size=row.kernel_size,
            pseudo=row.pseudo,
            options=dict(row.options),
            # Coarsening the 42 vertices of the tiny template by 4, four times, would leave none.
            model={"factors": [2, 2, 2, 2]} if data == TINY and self.task == "reconstruction" else {},
            seed=seed,
            device=device,
        )
        return shortened(override(full, self.settings), schedule)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    figure: what to draw from the samples of the runs: ``"errors"``, ``"reconstructions"`` or ``"affine"``.
    """

    name: str
    title: str
    recipes: tuple[Recipe, ...]
    figure: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(recipe.task for recipe in self.recipes))

    def select(self, patterns: Sequence[str] = ()) -> tuple[Recipe, ...]:
        """The recipes whose label or method matches one of the patterns, such as ``Aff-*``; all if there are none."""
        for pattern in patterns:
            if not any(_matches(recipe, pattern) for recipe in self.recipes):
                labels = ", ".join(recipe.label for recipe in self.recipes)
                raise ValueError(f"rows: {self.name} has none like {pattern!r}; it has {labels}")
        return tuple(
            recipe for recipe in self.recipes if not patterns or any(_matches(recipe, each) for each in patterns)
        )


def _matches(recipe: Recipe, pattern: str) -> bool:
    wanted = pattern.lower()
    names = (recipe.label, recipe.line, recipe.method, recipe.name)
    return any(fnmatchcase(name.lower(), wanted) for name in names)


def chosen_data(tasks: Sequence[str], named: Sequence[str] = (), schedule: str = "full") -> Mapping[str, str]:
    """The data set of each task: those ``named``, otherwise the generated ones; tiny sets for the smoke schedule.

    Each name belongs to one task; ``tiny`` applies to all of them.
    """
    found = dict.fromkeys(tasks, TINY) if schedule == "smoke" else {task: STAND_IN[task] for task in tasks}
    task_of = {name: task for table in (STAND_IN, ORIGINAL) for task, name in table.items()}
    for name in named:
        if name == TINY:
            found = dict.fromkeys(tasks, TINY)
        elif name not in task_of:
            raise ValueError(f"data: unknown name {name!r}; choose from {', '.join([*task_of, TINY])}")
        elif task_of[name] not in tasks:
            raise ValueError(f"data: {name} is for {task_of[name]}; this experiment is about {', '.join(tasks)}")
        else:
            found[task_of[name]] = name
    return found


@dataclass(frozen=True)
class Short:
    """``epochs`` that pass through ``speed`` times as many epochs of the paper's learning rates."""

    epochs: int
    speed: int
    tf32: bool = False


SHORT = {
    "reconstruction": Short(epochs=6, speed=50),
    "correspondence": Short(epochs=300, speed=1, tf32=True),
    "classification": Short(epochs=20, speed=6),
}


def shortened(config: Config, schedule: str) -> Config:
    """The configuration with another schedule than the paper's."""
    if first := FIRST.fullmatch(schedule):
        epochs = int(first[1])
        if epochs > config.optim.epochs:
            raise ValueError(f"schedule: {schedule} is longer than the paper's {config.optim.epochs} epochs; use full")
        return replace(config, optim=replace(config.optim, epochs=epochs))
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule: unknown name {schedule!r}; choose from {', '.join(SCHEDULES)}")
    if schedule == "full":
        return config
    if schedule == "smoke":
        return replace(config, optim=replace(config.optim, epochs=1), train_items=4, test_items=2)
    optim, short = config.optim, SHORT[config.task]
    if optim.decay_every % short.speed == 0:
        decay, every = optim.lr_decay, optim.decay_every // short.speed
    else:
        decay, every = optim.lr_decay ** (short.speed / optim.decay_every), 1
    faster = replace(optim, epochs=short.epochs, lr_decay=decay, decay_every=every)
    return replace(config, optim=faster, tf32=config.tf32 or short.tf32)
