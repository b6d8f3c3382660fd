"""A finished run on its test items, as ``evaluation.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.records.files import write_with_checksum
from geoskip.training.run import EVALUATION, Run
from geoskip.training.tasks import Evaluation, Task, make_task
from geoskip.training.trained import Trained

FORMAT = 1


@dataclass(frozen=True, eq=False)
class RunEvaluation:
    """A run's evaluation, with what its pictures are made of.

    evaluation: figures, curves and arrays.
    samples: some test items as the model sees them, a record of :mod:`geoskip.records.samples`.
    task: the task, with its data.
    """

    evaluation: Evaluation
    samples: Any
    task: Task


def evaluate_run(
    run: Run,
    *,
    data: Any = None,
    device: str | torch.device = "cpu",
    samples: int = 4,
    folder: str | Path | None = None,
) -> RunEvaluation:
    """Evaluate the latest weights of a run and write ``evaluation.json`` into ``folder``, by default that of the run.
    The items are those of the test, or the validation items if the configuration excludes the test.

    The data are those of the configuration, or ``data``, a data set in memory. Raises ValueError unless they are the
    data that the run was trained on: normalized with other statistics, they would silently give wrong results.
    """
    task = task_of(run, data)
    model, task = run.model(device), task.to(device)
    evaluation = task.evaluate(model, task.final_split)
    _write(run.folder if folder is None else Path(folder), run, evaluation, task)
    if (latest := Run.open(run.folder).weights[1]) != run.weights[1]:
        if folder is None:
            run.discard_evaluation()
        raise ValueError(
            f"{run.folder}: training reached step {latest:,} while step {run.weights[1]:,} was evaluated; "
            "evaluate it again"
        )
    count = min(samples, len(task.split_items(task.final_split)))
    return RunEvaluation(evaluation, task.samples(model, count, task.final_split) if count else None, task)


def task_of(run: Run | Trained, data: Any = None) -> Task:
    """The task of a run, with its data; ValueError if they are not those that the run was trained on."""
    task = make_task(run.config, data)
    check_same_data(run, task)
    if run.config.init_from is not None:
        task.start_from(run.weights[0] if isinstance(run, Run) else run.model.state_dict())
    return task


def check_same_data(run: Run | Trained, task: Task) -> None:
    """ValueError, naming what differs, unless the task's data are those that the run was begun with."""
    trained, now = run.context, task.context()
    facts = json.loads(json.dumps(now.facts))
    # The content of data sets made in code is not known.
    compared = facts.keys() if trained.content and now.content else facts.keys() - {"content"}
    differ = {name for name in compared if json.loads(json.dumps(trained.facts[name])) != facts[name]}
    differ |= {name for name, tensor in now.constants.items() if not _alike(trained.constants[name], tensor)}
    if differ:
        raise ValueError(
            f"{run.folder}: the data of {task.config.data} are not those that the run was trained on: "
            f"{', '.join(sorted(differ))} differ; pass the right data with --data"
        )


def _alike(one: Tensor, other: Tensor) -> bool:
    """Equal, up to the rounding of another machine."""
    return one.shape == other.shape and torch.allclose(one.cpu().double(), other.cpu().double(), rtol=1e-4, atol=1e-6)


def _write(folder: Path, run: Run, evaluation: Evaluation, task: Task) -> None:
    items = task.split_items(task.final_split).tolist()
    names = getattr(task.data, "names", ())
    entries: dict[str, Any] = {
        "format": FORMAT,
        "task": run.config.task,
        "data": run.config.data,
        "step": run.weights[1],
        "weights_sha256": run.weights_sha256,
        "items": [names[item] for item in items] if names else items,
        "metrics": dict(evaluation.metrics),
        "curves": {name: [list(point) for point in points] for name, points in evaluation.curves.items()},
        "arrays": {name: _listed(array) for name, array in evaluation.arrays.items()},
    }
    write_with_checksum(folder / EVALUATION, (json.dumps(entries, allow_nan=False) + "\n").encode())


def _listed(array: np.ndarray) -> Any:
    """An array as nested lists, with the seven digits that float32 has. NaN, which JSON lacks, becomes null."""
    if array.dtype.kind != "f":
        return array.tolist()
    numbers = [None if np.isnan(value) else float(f"{value:.7g}") for value in array.ravel()]
    return np.array(numbers, dtype=object).reshape(array.shape).tolist()
