"""Training steps of the user's own as CUDA graphs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from geoskip.training.cuda_graphs import WARMUPS, Replay, capture_stream, record_once

P = ParamSpec("P")
R = TypeVar("R")


def capture(step: Callable[P, R], *watched: nn.Module | torch.optim.Optimizer) -> Captured[P, R]:
    """A training step that runs as a CUDA graph: one launch instead of hundreds.

    .. code-block:: python

        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3), capturable=True)

        def step(x, target):
            optimizer.zero_grad()
            loss = (model(x, graph) - target).abs().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = geoskip.capture(step, model, optimizer)
        for x, target in loader:
            loss = step(x.cuda(), target.cuda())

    The first three calls with inputs of a shape run as usual; the fourth is recorded, and later ones replay it. Inputs
    of other shapes, such as a smaller last batch, get recordings of their own. Tensors among the arguments, also in
    tuples, lists and dictionaries, may change from call to call. All other arguments, and everything else that the
    step uses, are fixed. Results are copies.

    A :class:`~geoskip.graphs.Graph` among the arguments may change, too: graphs with equally many vertices and edges,
    such as closed meshes of one size, share a recording. What the operators compute from the edges alone, such as the
    normalization of GCN, is then part of the recording. As long as all calls have the same graph, it is not.

    The step must not wait for the GPU: no ``.item()``, no ``print`` of a tensor, no ``if`` on a value. Return the loss
    and read it outside. Without CUDA tensors among the inputs the step runs as usual.

    Args:
        step: a function that runs on the GPU: forward, backward and the optimizer, or any part of it.
        watched: the models and optimizers that the step uses. The step is recorded again if a model changes its mode,
            its parameters or buffers are replaced, or parameters are frozen, and if an optimizer changes its
            hyper-parameters or loads a state. A learning rate in a tensor, as above, may change without.
    """
    for each in watched:
        if not isinstance(each, nn.Module | torch.optim.Optimizer):
            raise TypeError(f"watched: expected modules and optimizers, got {type(each).__name__}")
    return Captured(step, watched)


class Captured(Generic[P, R]):
    """What :func:`capture` returns.

    Attributes:
        num_recordings: how many recordings there are.
    """

    def __init__(
        self,
        step: Callable[P, R],
        watched: Sequence[nn.Module | torch.optim.Optimizer] = (),
        record: Callable[[Callable[[], Any]], Replay] | None = None,
    ) -> None:
        # First, because it copies the attributes of the step.
        update_wrapper(self, step)
        self.step, self.watched, self._record = step, tuple(watched), record
        self._calls: dict[Hashable, int] = {}
        # The first graphs of each shape; an empty tuple once there have been others.
        self._graphs: dict[Hashable, tuple[weakref.ref[Any], ...]] = {}
        self._recordings: dict[Hashable, tuple[list[Tensor], Replay, list[Any]]] = {}

    @property
    def num_recordings(self) -> int:
        return len(self._recordings)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # A Graph stays whole: what it remembers belongs to its own tensors, not to copies of them.
        leaves, structure = pytree.tree_flatten((args, kwargs), is_leaf=is_dataclass)
        device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_cuda), None)
        if self._record is None and device is None:
            return self.step(*args, **kwargs)
        # Streams and graphs are those of the current device.
        with nullcontext() if device is None else torch.cuda.device(device):
            return self._call(args, kwargs, leaves, structure)

    def _call(self, args: Any, kwargs: Any, leaves: list[Any], structure: Any) -> Any:
        key = self._key(leaves, structure)
        if key not in self._recordings and (graphs := [leaf for leaf in leaves if _is_record(leaf)]):
            parts, whole = pytree.tree_flatten((args, kwargs))
            of_shapes = self._key(parts, whole)
            if self._have_changed(of_shapes, graphs):
                # Made of its tensors, a graph remembers nothing.
                leaves, structure, key = parts, whole, of_shapes
                args, kwargs = pytree.tree_unflatten(parts, whole)
        if key not in self._recordings:
            calls = self._calls[key] = self._calls.get(key, 0) + 1
            if calls <= WARMUPS:
                return self._run_aside(args, kwargs)
            self._recordings[key] = self._recorded(leaves, structure)
        buffers, replay, _ = self._recordings[key]
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        with torch.no_grad():
            for buffer, tensor in zip(buffers, inputs, strict=True):
                buffer.copy_(tensor)
        result = replay()
        for buffer in buffers:
            if buffer.requires_grad and buffer.grad is not None:
                raise ValueError(
                    f"step: backward() reaches an argument of shape {tuple(buffer.shape)}, whose .grad a recording "
                    "cannot fill. Detach the argument, or return its gradient from torch.autograd.grad"
                )
        return pytree.tree_map_only(Tensor, lambda part: part.detach().clone(), result)

    def _have_changed(self, of_shapes: Hashable, graphs: Sequence[Any]) -> bool:
        """Whether there have been other graphs of the same shapes."""
        first = self._graphs.setdefault(of_shapes, tuple(map(weakref.ref, graphs)))
        if first and all(reference() is graph for reference, graph in zip(first, graphs, strict=True)):
            return False
        self._graphs[of_shapes] = ()
        return True

    def _key(self, leaves: list[Any], structure: Any) -> Hashable:
        """Everything that a recording depends on."""
        arguments = [
            (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
            if isinstance(leaf, Tensor)
            else (type(leaf), leaf)
            if isinstance(leaf, int | float | str | bool | None)
            else id(leaf)
            for leaf in leaves
        ]
        state: list[Hashable] = []
        for each in self.watched:
            if isinstance(each, nn.Module):
                state += [module.training for module in each.modules()]
                state += [(tensor.data_ptr(), tensor.requires_grad) for tensor in each.parameters()]
                state += [tensor.data_ptr() for tensor in each.buffers()]
            else:
                state.append(id(each.state))
                settings = [value for group in each.param_groups for key, value in group.items() if key != "params"]
                state += [id(value) if isinstance(value, Tensor) else repr(value) for value in settings]
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        return str(structure), tuple(arguments), tuple(state), autocast, torch.is_grad_enabled()

    def _run_aside(self, args: Any, kwargs: Any) -> R:
        """As usual, but on the stream that the recording will use."""
        if self._record is not None:
            return self.step(*args, **kwargs)
        with capture_stream():
            return self.step(*args, **kwargs)

    def _recorded(self, leaves: list[Any], structure: Any) -> tuple[list[Tensor], Replay, list[Any]]:
        copies = [
            leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(copies, structure)
        replay = (self._record or record_once)(lambda: self.step(*args, **kwargs))
        # Whatever has its id in the key is kept.
        states = [each.state for each in self.watched if isinstance(each, torch.optim.Optimizer)]
        return [copy for copy in copies if isinstance(copy, Tensor)], replay, leaves + states


def _is_record(leaf: Any) -> bool:
    """Whether it is a graph, or another record of tensors that torch can take apart."""
    return is_dataclass(leaf) and type(leaf) in pytree.SUPPORTED_NODES
