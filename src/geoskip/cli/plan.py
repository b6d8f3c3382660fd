"""What a run would do and need, told before it begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder

if TYPE_CHECKING:
    from geoskip.training.tasks import Task


def plan(task: Task) -> dict[str, Any]:
    """Sizes of the model by its parts, steps, and memory in bytes on the device that trains."""
    model, optim = task.make_model(), task.config.optim
    parts = {name: _count(module.parameters()) for name, module in model.named_children()}
    parameters = _count(model.parameters())
    per_epoch = -(-task.num_items // min(optim.batch, task.num_items))
    # First, since packed graphs are made for it, and held beside the data that they are made of.
    step = step_memory(task, model)
    # Weights and two moments last; gradients are part of the step.
    held = {"weights": 12 * parameters + _bytes(model.buffers()), "data": _bytes(_tensors(vars(task)))}
    return {
        "items": {"train": task.num_items, "test": task.num_test},
        "parameters": {"all": parameters, **{name: count for name, count in parts.items() if count}},
        "steps": {"per_epoch": per_epoch, "all": per_epoch * optim.epochs},
        "memory": {**held, "step": step, "all": sum(held.values()) + step},
    }


def step_memory(task: Task, model: nn.Module) -> int:
    """Bytes of a step at its peak on CUDA: for the autoencoder as its layers come and go, for the others an upper
    bound, as if all layers were at their peak at once."""
    from geoskip.bench.memory import estimate_step_memory
    from geoskip.bench.model_memory import estimate_autoencoder_memory

    config = task.config
    skip = config.skip == "affine"
    if isinstance(model, MeshAutoencoder):
        hierarchy = model.hierarchy()
        vertices, edges = hierarchy.sizes, [graph.num_edges for graph in hierarchy.levels]
        channels = tuple(config.model.get("channels", (32, 32, 32, 64)))
        slots = _slots(config, hierarchy.levels[0].pseudo)
        batch = min(config.optim.batch, task.num_items)
        return estimate_autoencoder_memory(
            config.operator, batch, vertices, edges, slots, channels=channels, latent=model.latent, skip=skip
        )
    assert isinstance(model, CorrespondenceNet | GraphClassifier)
    packed: Any = task
    batch = min(config.optim.batch, task.num_items)
    rooms = [level.room(batch) for level in packed.store.levels]
    rooms = rooms if isinstance(model, GraphClassifier) else rooms * len(model.convs)
    first = packed.store.x.shape[1] if isinstance(model, GraphClassifier) else model.lift.out_features
    widths: list[Any] = [first, *(conv.out_channels for conv in model.convs)]
    slots = _slots(config, packed.store.pos[0])
    layers = sum(
        estimate_step_memory(config.operator, 1, room.verts, room.edges, i, o, slots, skip=skip)
        for room, (i, o) in zip(rooms, pairwise(widths), strict=True)
    )
    rows = batch if isinstance(model, GraphClassifier) else rooms[0].verts
    # Scores, their logarithmic softmax, and the gradients of both.
    return layers + 4 * rows * (4 * model.output.out_features + 4 * model.head.out_features)


def _slots(config: Any, coordinates: Tensor | None) -> int:
    if config.operator == "spline" and coordinates is not None:
        return (config.kernel_size or 1) ** (coordinates.shape[1] if config.pseudo == "position" else 1)
    return config.kernel_size or 1


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Each tensor once, however often it is met."""
    seen = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in tensors}
    return sum(seen.values())


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for inner in value.values() for tensor in _tensors(inner)]
    if isinstance(value, list | tuple):
        return [tensor for inner in value for tensor in _tensors(inner)]
    if is_dataclass(value) and not isinstance(value, type):
        return [tensor for entry in fields(value) for tensor in _tensors(getattr(value, entry.name))]
    return []
