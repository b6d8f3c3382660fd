r"""Measurements of trained runs: what skips and convolutions contribute, and how rough the filters are.

The paper shows that decoding through the affine skips alone gives what the samples have in common (Figure 4). Here that
is measured: how much of the difference between samples is left, and how bumpy the surface is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.blocks import Skip, only
from geoskip.blocks.channels import output_features, receiving_features
from geoskip.graphs import Graph
from geoskip.kernels import sparse_product
from geoskip.models import MeshAutoencoder
from geoskip.paper.running import loaded
from geoskip.paper.smoothness import edge_pseudo, model_smoothness, overall
from geoskip.records.samples import MeshSamples
from geoskip.shapes import Float
from geoskip.training.checkpoint import checkpoint_step, load_checkpoint
from geoskip.training.config import Config
from geoskip.training.devices import arithmetic, choose_device
from geoskip.training.evaluation import task_of
from geoskip.training.run import Run, row_name
from geoskip.training.session import Session
from geoskip.training.tasks import Task, make_task
from geoskip.training.tasks.base import in_parts, spread_evenly
from geoskip.training.tasks.reconstruction import Reconstruction
from geoskip.training.trained import Trained

PARTS = ("affine", "convolution")
ALL, MEAN = "all", "mean"
# Test items that are decoded by parts, if there are so many.
DEFAULT_SAMPLES = 8
# A run, or a model that was exported from one, which has no checkpoints.
Source = Run | Trained


def decode_parts(
    model: MeshAutoencoder, x: Float[Tensor, "samples vertices channels"]
) -> dict[str, Float[Tensor, "samples vertices channels"]]:
    """Decode the codes of x with whole blocks (``"full"``), with their affine parts and with their convolutions only.

    The encoder stays whole, and a block's bias belongs to its affine part.
    """
    blocks = nn.ModuleList(_decoder_skips(model).values())
    with torch.no_grad():
        code = model.encode(x)
        decoded = {"full": model.decode(code)}
        for part in PARTS:
            with only(blocks, part):
                decoded[part] = model.decode(code)
    return decoded


def decode_layers(
    model: MeshAutoencoder, x: Float[Tensor, "samples vertices channels"], part: str
) -> dict[str, Float[Tensor, "samples vertices channels"]]:
    """As :func:`decode_parts`, with one block of the decoder at a time reduced to ``part`` and the others whole."""
    decoded = {}
    with torch.no_grad():
        code = model.encode(x)
        for name, block in _decoder_skips(model).items():
            with only(block, part):
                decoded[name] = model.decode(code)
    return decoded


def _decoder_skips(model: MeshAutoencoder) -> dict[str, Skip]:
    blocks = {f"decoder.{k}": block for k, block in enumerate(model.decoder)} | {"output": model.output}
    skips = {name: block for name, block in blocks.items() if isinstance(block, Skip)}
    if not skips:
        raise ValueError(f"model: the decoder of this {type(model).__name__} has no skips, so it has no parts")
    return skips


def compare_parts(
    full: Float[Tensor, "samples vertices 3"],
    others: Mapping[tuple[str, str], Float[Tensor, "samples vertices 3"]],
    graph: Graph,
    unit_mm: float = 1.0,
) -> list[dict[str, Any]]:
    """Compare the positions of decodings, by part and layer, with the full ones; ``graph`` is the mesh's.

    ``distance_mm`` is the mean distance of a vertex from its position with whole blocks. ``variation`` says how much
    the samples differ, and ``bumps`` how rough the surfaces are, both divided by the value of whole blocks.
    """
    if not float(variation(full)) > 0:
        raise ValueError("full: the samples all decode to the same shape; give at least two that differ")
    return [
        {
            "part": part,
            "layer": layer,
            "distance_mm": float((verts - full).norm(dim=-1).mean()) * unit_mm,
            "variation": float(variation(verts) / variation(full)),
            "bumps": float(bumpiness(verts, graph) / bumpiness(full, graph)),
        }
        for (part, layer), verts in others.items()
    ]


def variation(verts: Float[Tensor, "samples vertices 3"]) -> Float[Tensor, ""]:
    """Root mean square distance of the vertices from their means over the samples."""
    return (verts - verts.mean(0)).square().sum(-1).mean().sqrt()


def bumpiness(verts: Float[Tensor, "*batch vertices 3"], graph: Graph) -> Float[Tensor, ""]:
    """Root mean square distance of the vertices from the mean of their neighbors."""
    shares = (1 / graph.degrees.to(verts.dtype))[graph.pattern.receivers]
    return (verts - sparse_product(verts, shares, graph.pattern)).square().sum(-1).mean().sqrt()


@dataclass(frozen=True)
class BlockShare:
    r"""What the skip's part a contributes to a block's output y = a + c, with the mean of each channel subtracted.

    Attributes:
        layer: name of the block in the model.
        share: :math:`\langle a, y \rangle / \|y\|^2`: the skip's and the convolution's add up to 1. Below 0 or above 1
            if one part cancels the other.
        size: :math:`\|a\|^2 / (\|a\|^2 + \|c\|^2)`, between 0 and 1: how large the skip's part is by itself.
        cosine: of the angle between a and c; near -1 if they cancel.
    """

    layer: str
    share: float
    size: float
    cosine: float


def block_shares(model: nn.Module, forward: Callable[[nn.Module], Any]) -> list[BlockShare]:
    """The shares of the blocks of a model, in the order in which ``forward(model)`` calls them.

    A block that is called twice is listed twice. Call ``model.eval()`` first if the model has dropout.
    """
    blocks = [(name, module) for name, module in model.named_modules() if isinstance(module, Skip)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} has no blocks with skips, so there are no shares to measure")
    rows: list[BlockShare] = []

    def hook(name: str) -> Callable[..., None]:
        def measure(block: Skip, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            affine = block.affine(receiving_features(args[0] if args else kwargs["x"], name))
            rows.append(BlockShare(name, *affine_share(affine, output_features(out, name))))

        return measure

    with ExitStack() as hooks, torch.no_grad():
        for name, block in blocks:
            hooks.enter_context(block.register_forward_hook(hook(name), with_kwargs=True))
        forward(model)
    return rows


def affine_share(
    affine: Float[Tensor, "*batch vertices channels"], whole: Float[Tensor, "*batch vertices channels"]
) -> tuple[float, float, float]:
    """Share, size and cosine of :class:`BlockShare`, from the skip's part and the whole; 0 instead of 0 / 0."""
    # A bias is the same for all vertices and items, so the mean is subtracted.
    a, y = (part.double().flatten(0, -2) for part in (affine, whole))
    a, y = a - a.mean(0), y - y.mean(0)
    c = y - a
    of_a, of_c, of_y = (float(part.square().sum()) for part in (a, c, y))
    share = float((a * y).sum()) / (of_y or 1)
    return share, of_a / (of_a + of_c or 1), float((a * c).sum()) / ((of_a * of_c) ** 0.5 or 1)


class PairedReconstruction(Reconstruction):
    """The task of the study in docs/run_study.py: convolutions start with the values that they have without skips.

    Otherwise the random numbers that the skips draw would change those of all later layers.
    """

    def make_model(self) -> nn.Module:
        model, bare = super().make_model(), copy(self)
        bare.config = replace(self.config, skip="none")
        model.load_state_dict(Reconstruction.make_model(bare).state_dict())
        return model


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


def trained_epochs(config: Config, data: Any = None) -> Iterator[tuple[int, Task, nn.Module, Mapping[str, float]]]:
    """Train a configuration: the epoch, the task, the model and the metrics of the epoch; without metrics at the start.

    ``data`` takes the place of the data set of the configuration. The caller may evaluate the model, but must leave its
    weights and torch's random numbers as they are.
    """
    with arithmetic(config):
        task = make_task(config, data=loaded(config) if data is None else data).to(choose_device(config.device))
        session = Session(config, task)
        model = session.learner.model
        yield 0, task, model, {}
        for epoch in range(1, config.optim.epochs + 1):
            model.train()
            while session.epoch < epoch:
                session.advance()
            *_, (_, metrics) = session.epoch_metrics(wait=True)
            task.epoch = epoch
            yield epoch, task, model, metrics


def model_of(run: Source) -> nn.Module:
    """The trained model, on the CPU."""
    return run.model() if isinstance(run, Run) else run.model


def trained_models(run: Source, task: Task, steps: Collection[int] | None = None) -> Iterator[tuple[int, nn.Module]]:
    """The model on the CPU: with its initial values (unless they are another model's weights), the weights of the
    checkpoints of ``steps`` (by default all that are stored), and the final ones."""
    model = task.make_model()
    if run.config.init_from is None:
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
