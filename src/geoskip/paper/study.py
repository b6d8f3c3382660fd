"""The effect of skips on trained models: measurements of one run, and a study that trains and measures many.

A study trains methods with and without skips over several seeds on generated faces. Networks of one operator and seed
start with the same convolutions and differ only in their skips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from geoskip.blocks import PolynomialSkip
from geoskip.data import MeshSet
from geoskip.models import MeshAutoencoder
from geoskip.operators import ChebConv
from geoskip.paper.decoding import ALL, PARTS, block_shares, compare_parts, decode_layers, decode_parts
from geoskip.paper.rows import SKIPS
from geoskip.paper.smoothness import edge_pseudo, model_smoothness, overall, spectrum
from geoskip.records.samples import MeshSamples
from geoskip.training.checkpoint import load_checkpoint
from geoskip.training.config import Config, resolve
from geoskip.training.evaluation import check_same_data
from geoskip.training.loop import train
from geoskip.training.run import Run, row_name
from geoskip.training.tasks import Task, make_task
from geoskip.training.tasks.base import spread_evenly
from geoskip.training.tasks.reconstruction import Reconstruction

# The data set of every study; its runs are recognized by it.
COARSE_FACES = "geoskip.paper.small_sets:coarse_faces"
# Operators whose filters are functions, so that their smoothness can be measured.
MEASURABLE = ("monet", "spline", "cheb")
SPECTRUM_POINTS = 41
# Test items that are decoded by parts, if there are so many.
DEFAULT_SAMPLES = 8


def task_of(run: Run) -> Task:
    """The task of a run as it was trained. Runs of a study have initial values of their own.

    Raises ValueError if the data are not those that the run was trained on.
    """
    task = make_task(run.config)
    check_same_data(run, task)
    return start_alike(task) if run.config.data == COARSE_FACES else task


def start_alike(task: Task) -> Task:
    """The task with models whose convolutions start with the values that they have without skips.

    Otherwise the random numbers that the skips draw would change those of all later layers.
    """
    bare, own = make_task(replace(task.config, skip="none"), data=task.data), task.make_model

    def make_model() -> nn.Module:
        model = own()
        model.load_state_dict(bare.make_model().state_dict())
        return model

    # Set on the instance, so that copies on other devices keep it.
    vars(task)["make_model"] = make_model
    return task


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
    shapes = {"input": verts} | {part: task.restore(decoded) for part, decoded in decode_parts(model, x).items()}
    others = {(part, ALL): shapes[part] for part in PARTS}
    for part in PARTS:
        others |= {(part, layer): task.restore(decoded) for layer, decoded in decode_layers(model, x, part).items()}
    rows = []
    for decoded_part in compare_parts(shapes["full"], others, model.hierarchy().levels[0]):
        row = asdict(decoded_part)
        distance_mm = row.pop("distance") * task.data.unit_mm
        rows.append({**row, "distance_mm": distance_mm})
    names = tuple(task.data.names[item] for item in items.tolist())
    arrays = {name: part.numpy() for name, part in shapes.items()}
    return rows, MeshSamples(names, task.data.template.faces, task.data.unit_mm, arrays)


def run_shares(run: Run, count: int = 32, task: Task | None = None) -> list[dict[str, Any]]:
    """The share of the skip in every block: at the start, at every stored checkpoint, at the end."""
    task = task or task_of(run)
    batch = task.batch(torch.arange(min(count, task.num_items)))
    return [
        {"step": step, **asdict(row)}
        for step, model in trained_models(run, task)
        for row in block_shares(model.eval(), lambda model: task.loss(model, batch))
    ]


def trained_models(run: Run, task: Task) -> Iterator[tuple[int, nn.Module]]:
    """The model with its initial values, with the weights of every stored checkpoint, and with the final ones."""
    model = task.make_model()
    yield 0, model
    step = 0
    for path in sorted(run.checkpoints.glob("step-????????")):
        state = load_checkpoint(path)
        model.load_state_dict(dict(state.model))
        step = state.step
        yield step, model
    weights, last = run.weights
    if last != step:
        model.load_state_dict(weights)
        yield last, model


def run_smoothness(run: Run, task: Task | None = None) -> dict[str, Any]:
    """Roughness of the filters after training and, if ``task`` is given, before it."""
    config = run.config
    models = {"start": task.make_model()} if task is not None else {}
    return {
        "method": row_name(config),
        "operator": config.operator,
        "skip": config.skip,
        "kernel_size": config.kernel_size,
        "seed": config.seed,
        **{when: _smoothness(model) for when, model in {**models, "end": run.model()}.items()},
    }


def _smoothness(model: nn.Module) -> dict[str, Any]:
    edges = None
    if isinstance(model, MeshAutoencoder):  # other models do not hold their graphs
        rest = torch.zeros(model.hierarchy().sizes[0], 3)
        edges = edge_pseudo(model, lambda model: model(rest))
    rows = model_smoothness(model, edges)
    return {"overall": overall(rows), "layers": [asdict(row) for row in rows], **_spectra(model)}


def _spectra(model: nn.Module) -> dict[str, Any]:
    """The spectra of ChebNet's layers: of the filter alone, and with the skip if that is linear."""
    blocks = {
        name: module
        for name, module in model.named_modules()
        if not name.endswith(".conv") and isinstance(getattr(module, "conv", module), ChebConv)
    }
    if not blocks:
        return {}
    eigenvalues = torch.linspace(0, 2, SPECTRUM_POINTS, dtype=torch.float64)
    curves = {}
    for name, block in blocks.items():
        curves[name] = {"filter": spectrum(block, eigenvalues, skip=False).tolist()}
        if not isinstance(block, PolynomialSkip):
            curves[name]["block"] = spectrum(block, eigenvalues).tolist()
    return {"eigenvalues": eigenvalues.tolist(), "spectra": curves}


@dataclass(frozen=True)
class Study:
    """Every operator is trained with every skip and seed, on the same items.

    Attributes:
        operators: names and kernel sizes.
        seeds: the number of seeds.
        epochs: passes over the training items.
        train_items: the number of training items, spread over the set; None for all.
        test_items: the number of test items; None for all.
        batch_size: items per step.
        device: where to train.
        checkpoints: how many checkpoints are kept, at equal distances, for the shares over training.
        model: further arguments of the autoencoder.
        coarse: the factors by which the faces are coarsened; see :func:`~geoskip.paper.small_sets.coarse_faces`.
    """

    operators: tuple[tuple[str, int], ...] = (("monet", 9), ("spline", 3), ("cheb", 6))
    seeds: int = 3
    epochs: int = 300
    train_items: int | None = None
    test_items: int | None = None
    batch_size: int = 32
    device: str = "auto"
    checkpoints: int = 10
    model: Mapping[str, Any] = field(default_factory=dict)
    coarse: tuple[int, ...] = ()

    def with_operators(self, given: Sequence[str]) -> Study:
        """With operators written as ``monet=9``."""
        pairs = [text.partition("=") for text in given]
        if wrong := [name for name, _, size in pairs if not size.isdigit()]:
            raise ValueError(f"operator: {wrong[0]} needs a kernel size, such as {wrong[0]}=9")
        names = [name for name, _, _ in pairs]
        if other := [name for name in names if name not in MEASURABLE]:
            raise ValueError(f"operator: {other[0]} has no filter to measure; choose from {', '.join(MEASURABLE)}")
        if len(set(names)) < len(names):
            raise ValueError("operator: give each operator once; for another M, run a study in another folder")
        return replace(self, operators=tuple((name, int(size)) for name, _, size in pairs))

    def settings(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "operators": [f"{name}={size}" for name, size in self.operators]}

    def configs(self, num_items: int) -> dict[str, Config]:
        """A configuration for each run, by the name of its folder."""
        used = min(self.train_items or num_items, num_items)
        steps = self.epochs * -(-used // self.batch_size)
        return {
            f"{operator}-{skip}-{seed}": resolve(
                "reconstruction",
                data=COARSE_FACES,
                data_options={"factors": list(self.coarse)},
                operator=operator,
                kernel_size=size,
                skip=skip,
                seed=seed,
                optim={"epochs": self.epochs, "batch_size": self.batch_size},
                train_items=self.train_items,
                test_items=self.test_items,
                device=self.device,
                model=self.model,
                checkpoint_every=max(1, steps // self.checkpoints),
                keep=self.checkpoints + 1,
            )
            for operator, size in self.operators
            for skip in SKIPS
            for seed in range(self.seeds)
        }


@dataclass(frozen=True)
class RunMeasurements:
    """The measurements of one run: where it was trained, and its rows. Runs without skips have no shares and parts."""

    name: str
    device: str
    smoothness: dict[str, Any]
    shares: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    shapes: MeshSamples | None = None


def run_study(study: Study, data: MeshSet, folder: Path, samples: int = DEFAULT_SAMPLES) -> Iterator[RunMeasurements]:
    """Train what is not trained yet, one run after the other, and measure each. ``folder`` keeps the runs.

    ``data`` are already coarsened by ``study.coarse``.
    """
    for name, config in study.configs(len(data.split.train)).items():
        task = start_alike(make_task(config, data=data))
        run = train(config, folder / name, task=task)
        smoothness = run_smoothness(run, task) | {"metrics": dict(run.record.metrics)}
        measured = RunMeasurements(name, run.record.device, smoothness)
        if config.skip != "none":
            parts, shapes = run_parts(run, min(samples, task.num_test), task)
            measured = replace(measured, shares=run_shares(run, task=task), parts=parts, shapes=shapes)
        yield measured
