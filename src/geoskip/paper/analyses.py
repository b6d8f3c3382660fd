"""The analyses of trained runs that ``geoskip analyze …`` prints and stores, and the data that a study's runs need."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.blocks import PolynomialSkip, Skip
from geoskip.data import MeshSet
from geoskip.models import MeshAutoencoder
from geoskip.operators import ChebConv
from geoskip.paper.decoding import ALL, PARTS, block_shares, compare_parts, decode_layers, decode_parts
from geoskip.paper.small_sets import coarsened, stored
from geoskip.paper.smoothness import met_pseudo, model_smoothness, overall, spectrum
from geoskip.records.files import atomic_write
from geoskip.records.reading import read_json
from geoskip.records.samples import MeshSamples
from geoskip.training.checkpoint import load_checkpoint
from geoskip.training.evaluation import check_same_data
from geoskip.training.run import Run, row_name
from geoskip.training.tasks import Task, make_task
from geoskip.training.tasks.base import find_task, spread_evenly
from geoskip.training.tasks.reconstruction import Reconstruction

SPECTRUM_POINTS = 41
# The default number of test items.
DEFAULT_SAMPLES = 8


def method_of(run: Run) -> str:
    """The run's method as tables name it."""
    return row_name(run.config)


def run_parts(run: Run, count: int | None = None, task: Task | None = None) -> tuple[list[dict[str, Any]], MeshSamples]:
    """Decode test items by parts, all blocks at once and block by block; the results, and the shapes for pictures.

    count: the number of test items; by default 8, or all if there are fewer.
    """
    model = run.model()
    if not isinstance(model, MeshAutoencoder):
        raise ValueError(f"{run.folder}: a run of {run.config.task}; only reconstruction has a decoder to analyze")
    task = task or task_of(run)
    assert isinstance(task, Reconstruction)
    count = min(DEFAULT_SAMPLES, task.num_test) if count is None else count
    if not 2 <= count <= task.num_test:
        raise ValueError(f"samples: expected 2 to {task.num_test}, the number of test items, got {count}")
    # Spread over the test set, where neighbors are frames of one sequence.
    items = task.data.split.test[spread_evenly(task.num_test, count)]
    verts = task.data.verts(items)
    x = task.normalize(verts)
    decoded = {part: task.restore(found) for part, found in decode_parts(model, x).items()}
    others = {(part, ALL): decoded[part] for part in PARTS}
    for part in PARTS:
        others |= {(part, layer): task.restore(found) for layer, found in decode_layers(model, x, part).items()}
    rows = compare_parts(decoded["full"], others, model.hierarchy().levels[0])
    names = tuple(task.data.names[item] for item in items.tolist())
    arrays = {name: part.numpy() for name, part in {"input": verts, **decoded}.items()}
    shapes = MeshSamples(names, task.data.template.faces, task.data.unit_mm, arrays)
    return [_in_millimeters(asdict(row), task.data.unit_mm) for row in rows], shapes


def run_shares(run: Run, count: int = 32, task: Task | None = None) -> list[dict[str, Any]]:
    """The share of the skip in every block: at the start, at every stored checkpoint, at the end."""
    task = task or task_of(run)
    batch = task.batch(torch.arange(min(count, task.num_items)))
    return [
        {"step": step, **asdict(row)}
        for step, model in models_of(run, task)
        for row in block_shares(model.eval(), lambda model: task.loss(model, batch))
    ]


def run_smoothness(run: Run, task: Task | None = None) -> dict[str, Any]:
    """Roughness of the filters after training and, if ``task`` is given, before it."""
    found: dict[str, Any] = {
        "method": method_of(run),
        "operator": run.config.operator,
        "skip": run.config.skip,
        "kernel_size": run.config.kernel_size,
        "seed": run.config.seed,
    }
    starts = [("start", task.make_model())] if task is not None else []
    for when, model in [*starts, ("end", run.model())]:
        rows = model_smoothness(model, _edges(model))
        found[when] = {"overall": overall(rows), "layers": [asdict(row) for row in rows], **_spectra(model)}
    return found


def models_of(run: Run, task: Task) -> Iterator[tuple[int, nn.Module]]:
    """The model with its initial values, with the weights of every stored checkpoint, and with the final ones."""
    model = task.make_model()
    yield 0, model
    seen = {0}
    for path in checkpoints(run.checkpoints):
        state = load_checkpoint(path)
        model.load_state_dict(dict(state.model))
        seen.add(state.step)
        yield state.step, model
    weights, step = run.weights
    if step not in seen:
        model.load_state_dict(weights)
        yield step, model


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder in the order of their steps."""
    return sorted(folder.glob("step-????????")) if folder.is_dir() else []


def side_by_side(found: Iterable[dict[str, Any]], quantity: str, when: str = "end") -> dict[str, list[float]]:
    """One overall number of :func:`run_smoothness` by method, one value per seed.

    when: ``"start"``, ``"end"``, or ``"change"``: the end divided by the start, which cancels the effect of the
        initial values.
    """
    columns: dict[str, list[float]] = {}
    for run in found:
        numbers: dict[str, Any] = {time: run[time]["overall"].get(quantity) for time in ("start", "end") if time in run}
        if when == "change":
            numbers["change"] = numbers["end"] / numbers["start"] if numbers.get("start") else None
        if numbers.get(when) is not None:
            columns.setdefault(run["method"], []).append(numbers[when])
    return columns


def _in_millimeters(row: dict[str, Any], unit_mm: float) -> dict[str, Any]:
    return {**{key: value for key, value in row.items() if key != "distance"}, "distance_mm": row["distance"] * unit_mm}


def _edges(model: nn.Module) -> dict[str, Tensor] | None:
    """The pseudo-coordinates of an autoencoder's layers; other models do not hold their graphs."""
    if not isinstance(model, MeshAutoencoder):
        return None
    rest = torch.zeros(model.hierarchy().sizes[0], 3)
    return met_pseudo(model, lambda model: model(rest))


def _spectra(model: nn.Module) -> dict[str, Any]:
    """The spectra of ChebNet's layers: of the filter alone, and with the skip if that is linear."""
    blocks = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, ChebConv) or (isinstance(module, Skip) and isinstance(module.conv, ChebConv))
    }
    outer = {name: module for name, module in blocks.items() if name.removesuffix(".conv") == name}
    if not outer:
        return {}
    places = torch.linspace(0, 2, SPECTRUM_POINTS, dtype=torch.float64)
    curves = {
        name: {"filter": spectrum(block, places, skip=False).tolist()}
        | ({} if isinstance(block, PolynomialSkip) else {"block": spectrum(block, places).tolist()})
        for name, block in outer.items()
    }
    return {"eigenvalues": places.tolist(), "spectra": curves}


STUDY = "study.json"
FORMAT = 1


def task_of(run: Run) -> Task:
    """The task of a run as it was trained. Runs of a study have coarser data and initial values of their own.

    Raises ValueError if the data are not those that the run was trained on.
    """
    coarse = read_study(run.folder / STUDY)
    if coarse is None:
        task = run.make_task()
    else:
        loaded = find_task(run.config.task).load_data(run.config)
        data = stored(coarsened(loaded, coarse)) if coarse else loaded
        task = start_alike(run.make_task(data), data)
    wanted, found = run.context.facts.get("topology"), task.context().facts.get("topology")
    if wanted != found:
        raise ValueError(
            f"{run.folder}: the run was trained on another mesh than {run.config.data} has now. If the data were "
            "passed in Python, run the analysis there."
        )
    check_same_data(run, task)
    return task


def write_study(folder: Path, coarse: Sequence[int]) -> None:
    """Mark a run as part of a study, with the factors by which its meshes were coarsened."""
    atomic_write(folder / STUDY, (json.dumps({"format": FORMAT, "coarse": list(coarse)}) + "\n").encode())


def start_alike(task: Task, data: MeshSet) -> Task:
    """The task with models whose convolutions start with the values that they have without skips.

    Otherwise the random numbers that the skips draw would change those of all later layers.
    """
    bare, own = make_task(replace(task.config, skip="none"), data=data), task.make_model

    def make_model() -> nn.Module:
        model = own()
        model.load_state_dict(bare.make_model().state_dict())
        return model

    # Set on the instance, so that copies on other devices keep it.
    vars(task)["make_model"] = make_model
    return task


def read_study(path: Path) -> list[int] | None:
    """The coarsening factors; None if the run is not part of a study."""
    if not path.is_file():
        return None
    try:
        entries = read_json(path)
        if entries["format"] != FORMAT:
            raise ValueError(f"the format is not {FORMAT}")
        return [int(factor) for factor in entries["coarse"]]
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path}: does not say what the run was trained on ({error!r}); run the study again"
        raise ValueError(message) from error
