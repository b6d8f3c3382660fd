"""Measurements of trained runs: decoding by parts, shares of the skips, roughness of the filters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from copy import copy, deepcopy
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.models import MeshAutoencoder
from geoskip.paper.decoding import ALL, MEAN, PARTS, block_shares, compare_parts, decode_layers, decode_parts
from geoskip.paper.smoothness import edge_pseudo, model_smoothness, overall
from geoskip.records.samples import MeshSamples
from geoskip.training.checkpoint import checkpoint_step, load_checkpoint
from geoskip.training.evaluation import check_same_data
from geoskip.training.run import Run, row_name
from geoskip.training.tasks import Task, make_task
from geoskip.training.tasks.base import in_parts, spread_evenly
from geoskip.training.tasks.reconstruction import Reconstruction
from geoskip.training.trained import Trained

# Test items that are decoded by parts, if there are so many.
DEFAULT_SAMPLES = 8
# A run, or a model that was exported from one, which has no checkpoints.
Source = Run | Trained


class PairedReconstruction(Reconstruction):
    """The task of the study in docs/run_study.py: convolutions start with the values that they have without skips.

    Otherwise the random numbers that the skips draw would change those of all later layers.
    """

    def make_model(self) -> nn.Module:
        model, bare = super().make_model(), copy(self)
        bare.config = replace(self.config, skip="none")
        model.load_state_dict(Reconstruction.make_model(bare).state_dict())
        return model


def task_of(run: Source) -> Task:
    """The task of a run; ValueError if the data are not those that the run was trained on."""
    task = make_task(run.config)
    check_same_data(run, task)
    return task


def run_parts(
    run: Source, count: int | None = None, task: Task | None = None
) -> tuple[list[dict[str, Any]], MeshSamples]:
    """Decode test items by parts, all blocks at once and block by block; the results, and the shapes for pictures.

    The first row is the mean of the training shapes, which a decoder gives whose output is zero.

    count: the number of test items; by default 8, or all if there are fewer.
    """
    model = model_of(run)
    if not isinstance(model, MeshAutoencoder):
        raise ValueError(f"{run.folder}: a run of {run.config.task}; only reconstruction has a decoder to analyze")
    task = task or task_of(run)
    assert isinstance(task, Reconstruction)
    model.to(task.device)
    count = min(DEFAULT_SAMPLES, task.num_test) if count is None else count
    if not 2 <= count <= task.num_test:
        raise ValueError(f"samples: expected 2 to {task.num_test}, the number of test items, got {count}")
    # Spread over the test set, where neighbors are frames of one sequence.
    items = task.data.split.test[spread_evenly(task.num_test, count)]
    verts = task.data.verts(items.to(task.device))
    x = task.normalize(verts)
    shapes = {"input": verts} | {part: task.restore(decoded) for part, decoded in decode_parts(model, x).items()}
    # What a part adds to: an output of zero.
    others = {(MEAN, ALL): task.restore(torch.zeros_like(x)), **{(part, ALL): shapes[part] for part in PARTS}}
    for part in PARTS:
        others |= {(part, layer): task.restore(decoded) for layer, decoded in decode_layers(model, x, part).items()}
    rows = compare_parts(shapes["full"], others, model.hierarchy().levels[0], task.data.unit_mm)
    names = tuple(task.data.names[item] for item in items.tolist())
    arrays = {name: part.cpu().numpy() for name, part in shapes.items()}
    return rows, MeshSamples(names, task.data.template.faces, task.data.unit_mm, arrays)


def run_shares(
    run: Source, count: int = 32, task: Task | None = None, steps: Collection[int] | None = None
) -> list[dict[str, Any]]:
    """The share of the skip in every block: at the start, at the checkpoints of ``steps`` or all, at the end."""
    task = task or task_of(run)
    batch = task.batch(torch.arange(min(count, task.num_items), device=task.device))
    return [
        {"step": step, **asdict(row)}
        for step, model in trained_models(run, task, steps)
        for row in block_shares(deepcopy(model).to(task.device).eval(), lambda model: task.loss(model, batch))
    ]


def run_progress(run: Source, task: Task, steps: Collection[int] | None = None) -> list[dict[str, Any]]:
    """Loss over all training items, error of the test items, and roughness (geometric means over the layers): at the
    start, at the checkpoints of ``steps`` or all, at the end.

    Losses and errors are computed where the task's data are.
    """
    rows = []
    for step, model in trained_models(run, task, steps):
        moved = deepcopy(model).to(task.device).eval()
        metrics = task.evaluate(moved).metrics
        rows.append({"step": step, "loss": training_loss(task, moved), **metrics, **_smoothness(model)["overall"]})
    return rows


def training_loss(task: Task, model: nn.Module) -> float:
    """The mean loss of all training items."""

    def total(items: Tensor) -> Tensor:
        return task.loss(model, task.batch(items.to(task.device))) * len(items)

    return float(torch.stack(in_parts(task.num_items, 64, total)).sum()) / task.num_items


def model_of(run: Source) -> nn.Module:
    """The trained model, on the CPU."""
    return run.model() if isinstance(run, Run) else run.model


def trained_models(run: Source, task: Task, steps: Collection[int] | None = None) -> Iterator[tuple[int, nn.Module]]:
    """The model on the CPU: with its initial values, the weights of the checkpoints of ``steps`` (by default all that
    are stored), and the final ones."""
    model = task.make_model()
    yield 0, model
    if isinstance(run, Trained):
        optim = run.config.optim
        yield optim.epochs * optim.steps_per_epoch(task.num_items), run.model
        return
    step = 0
    for path in sorted(run.checkpoints.glob("step-????????")):
        if steps is None or checkpoint_step(path) in steps:
            state = load_checkpoint(path)
            model.load_state_dict(dict(state.model))
            step = state.step
            yield step, model
    weights, last = run.weights
    if last != step:
        model.load_state_dict(weights)
        yield last, model


def run_smoothness(run: Source, task: Task | None = None) -> dict[str, Any]:
    """Roughness of the filters after training and, if ``task`` is given, before it."""
    config = run.config
    models = {"start": task.make_model()} if task is not None else {}
    return {
        "method": row_name(config),
        "operator": config.operator,
        "skip": config.skip,
        "kernel_size": config.kernel_size,
        "seed": config.seed,
        **{when: _smoothness(model) for when, model in {**models, "end": model_of(run)}.items()},
    }


def _smoothness(model: nn.Module) -> dict[str, Any]:
    edges = None
    if isinstance(model, MeshAutoencoder):  # other models do not hold their graphs
        rest = torch.zeros(model.hierarchy().sizes[0], 3)
        edges = edge_pseudo(model, lambda model: model(rest))
    rows = model_smoothness(model, edges)
    return {"overall": overall(rows), "layers": [asdict(row) for row in rows]}
