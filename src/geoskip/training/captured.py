"""Training steps of the user's own as CUDA graphs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from geoskip.training.cuda_graphs import WARMUPS, Replay, capture_stream, record_once

# Calls are counted for this many combinations of arguments: every call may have another.
MOST_COUNTED = 1000
P = ParamSpec("P")
R = TypeVar("R")


def capture(step: Callable[P, R], *watched: nn.Module | torch.optim.Optimizer) -> Captured[P, R]:
    """A training step that runs as a CUDA graph: one launch instead of hundreds.

    .. code-block:: python

        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True)

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
    tuples, lists and dictionaries, may change from call to call; all are on one GPU. All other arguments, and
    everything else that the step uses, are fixed. Results are copies.

    A :class:`~geoskip.graphs.Graph` among the arguments may change, too: graphs with equally many vertices and edges,
    such as closed meshes of one size, share a recording. What the operators compute from the edges alone, such as the
    normalization of GCN, is then part of the recording. As long as all calls have the same graph, it is not.

    The step must not wait for the GPU: no ``.item()``, no ``print`` of a tensor, no ``if`` on a value. Return the loss
    and read it outside. Without CUDA tensors among the inputs the step runs as usual.

    Args:
        step: a function that runs on the GPU: forward, backward and the optimizer, or any part of it.
        watched: the models and optimizers that the step uses. The step is recorded again if a model changes its mode,
            its parameters or buffers are replaced, or parameters are frozen, and if an optimizer changes its
            hyper-parameters or loads a state. A learning rate in a tensor on the GPU, as above, may change without. The
            gradients of their parameters may be used and set to zero outside of the step, too.
    """
    for each in watched:
        if not isinstance(each, nn.Module | torch.optim.Optimizer):
            raise TypeError(f"watched: expected modules and optimizers, got {type(each).__name__}")
    return Captured(step, watched)


class CapturedCall(NamedTuple):
    """A recorded step of the user's own.

    Attributes:
        buffers: what it reads the tensors among its arguments from.
        replay: runs it.
        is_changed: whether it changes each of the buffers.
        gradients: parameters, the gradient of each after the step, and whether the step reads or changes that tensor:
            otherwise it is the step's own.
        sets_gradients: whether they do not depend on those before the step.
        kept: the arguments whose ids are in the key.
    """

    buffers: list[Tensor]
    replay: Replay
    is_changed: list[bool]
    gradients: list[tuple[Any, Any, bool]]
    sets_gradients: bool
    kept: list[Any]


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
        # Calls so far, and references to the arguments whose ids are in the key.
        self._calls: dict[Hashable, tuple[int, list[Callable[[], Any]]]] = {}
        # The first graphs of each shape, with the versions of their tensors; empty once there have been others.
        self._graphs: dict[Hashable, list[tuple[Callable[[], Any], list[int]]]] = {}
        # By the key, and by which parameters have gradients; None if that does not matter.
        self._recordings: dict[Hashable, dict[Hashable, CapturedCall]] = {}
        # What all recordings were made with, and the objects whose ids are in it.
        self._watched_state: tuple[list[Hashable], list[Any]] = [], []

    @property
    def num_recordings(self) -> int:
        return sum(map(len, self._recordings.values()))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # A Graph stays whole: what it remembers belongs to its own tensors, not to copies of them.
        leaves, structure = pytree.tree_flatten((args, kwargs), is_leaf=is_dataclass)
        devices = {leaf.device: None for leaf in leaves if isinstance(leaf, Tensor)}
        device = next((device for device in devices if device.type == "cuda"), None)
        if self._record is None and device is None:
            return self.step(*args, **kwargs)
        if device is not None and len(devices) > 1:
            raise ValueError(
                f"step: has arguments on {' and '.join(map(str, devices))}, but a recording works on one GPU; move all "
                "of them there, or pass numbers as numbers"
            )
        # A captured step that is part of another one is recorded with it.
        if self._record is None and torch.cuda.is_current_stream_capturing():
            return self.step(*args, **kwargs)
        # Streams and graphs are those of the current device.
        with nullcontext() if device is None else torch.cuda.device(device):
            return self._call(args, kwargs, leaves, structure)

    def _call(self, args: Any, kwargs: Any, leaves: list[Any], structure: Any) -> Any:
        modes = self._modes()
        key = self._key(leaves, structure, modes)
        if key not in self._recordings and (graphs := [leaf for leaf in leaves if _is_record(leaf)]):
            parts, whole = pytree.tree_flatten((args, kwargs))
            of_shapes = self._key(parts, whole, modes)
            if self._have_changed(of_shapes, graphs):
                # Made of its tensors, a graph remembers nothing.
                leaves, structure, key = parts, whole, of_shapes
                args, kwargs = pytree.tree_unflatten(parts, whole)
        if key not in self._recordings and self._is_warmup(key, leaves):
            return self._run_aside(args, kwargs)
        buffers, replay, is_changed, gradients, *_ = self._recording(key, leaves, structure)
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        with torch.no_grad():
            for buffer, tensor in zip(buffers, inputs, strict=True):
                buffer.copy_(tensor)
            for parameter, gradient, is_read in gradients:
                if is_read and parameter.grad is not gradient:
                    gradient.copy_(parameter.grad)
        result = replay()
        for parameter, gradient, _ in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
        with torch.no_grad():
            for buffer, tensor, changed in zip(buffers, inputs, is_changed, strict=True):
                if changed:
                    tensor.copy_(buffer)
        for buffer in buffers:
            if buffer.requires_grad and buffer.grad is not None:
                raise ValueError(
                    f"step: backward() reaches an argument of shape {tuple(buffer.shape)}, whose .grad a recording "
                    "cannot fill. Detach the argument, or return its gradient from torch.autograd.grad"
                )
        return pytree.tree_map_only(Tensor, lambda part: part.detach().clone(), result)

    def _have_changed(self, of_shapes: Hashable, graphs: Sequence[Any]) -> bool:
        """Whether there have been other graphs of the same shapes."""
        versions = [_versions(graph) for graph in graphs]
        first = self._graphs.setdefault(of_shapes, [*zip(map(_reference, graphs), versions, strict=True)])
        # By their ids: records of the user's own may not be comparable.
        now = [*zip(map(id, graphs), versions, strict=True)]
        if [(id(reference()), before) for reference, before in first] == now:
            return False
        self._graphs[of_shapes] = []
        return True

    def _is_warmup(self, key: Hashable, leaves: list[Any]) -> bool:
        """Whether a call is one of the first, which are not recorded."""
        calls, references = self._calls.pop(key, (0, []))
        if any(reference() is None for reference in references):
            # Ids of objects that are gone are used again.
            calls = 0
        self._calls[key] = calls + 1, [_reference(leaf) for leaf in leaves if _is_object(leaf)]
        if len(self._calls) > MOST_COUNTED:
            del self._calls[next(iter(self._calls))]
        return calls < WARMUPS

    def _modes(self) -> tuple[Hashable, ...]:
        """The modes of all modules, and which parameters are frozen. If tensors, states or hyper-parameters have been
        replaced, which seldom come back, all recordings are freed."""
        modes: list[Hashable] = []
        state: list[Hashable] = []
        kept: list[Any] = []
        for each in self.watched:
            if isinstance(each, nn.Module):
                # `parameters()` and `buffers()` take longer.
                for part in each.modules():
                    modes.append(part.training)
                    for tensor in (*part._parameters.values(), *part._buffers.values()):
                        if tensor is not None:
                            modes.append(tensor.requires_grad)
                            state.append(None if is_lazy(tensor) else tensor.data_ptr())
            else:
                kept.append(each.state)
                state.append(id(each.state))
                for group in each.param_groups:
                    device = next((parameter.device for parameter in group["params"]), None)
                    for value in (value for name, value in group.items() if name != "params"):
                        if isinstance(value, Tensor) and value.device == device:
                            kept.append(value)
                            state.append(id(value))
                        else:
                            # Values on the CPU are constants of a recording.
                            state.append(value.item() if isinstance(value, Tensor) else repr(value))
        if state != self._watched_state[0]:
            self._watched_state = state, kept
            self._calls.clear()
            self._recordings.clear()
        return tuple(modes)

    def _recording(self, key: Hashable, leaves: list[Any], structure: Any) -> CapturedCall:
        """The recording for a call, made now if there is none."""
        recordings = self._recordings.get(key, {})
        if None in recordings:
            return recordings[None]
        parameters: dict[int, Tensor] = {}
        for each in self.watched:
            groups = [{"params": each.parameters()}] if isinstance(each, nn.Module) else each.param_groups
            parameters |= {id(parameter): parameter for group in groups for parameter in group["params"]}
        # A step that does not set gradients to zero itself adds to those that there are.
        have_gradients = tuple([parameter.grad is not None for parameter in parameters.values()])
        if have_gradients not in recordings:
            recording = self._recorded(leaves, structure, [*parameters.values()])
            self._recordings[key] = {**recordings, None if recording.sets_gradients else have_gradients: recording}
            return recording
        return recordings[have_gradients]

    def _key(self, leaves: list[Any], structure: Any, modes: Hashable) -> Hashable:
        """Everything that a recording depends on."""
        arguments = [
            (leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad)
            if isinstance(leaf, Tensor)
            else (id(leaf), *_versions(leaf))
            if _is_object(leaf)
            else (type(leaf), leaf)
            for leaf in leaves
        ]
        autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        gradients = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return str(structure), tuple(arguments), modes, autocast, gradients

    def _run_aside(self, args: Any, kwargs: Any) -> R:
        """As usual, but on the stream that the recording will use."""
        if self._record is not None:
            return self.step(*args, **kwargs)
        with capture_stream():
            return self.step(*args, **kwargs)

    def _recorded(self, leaves: list[Any], structure: Any, parameters: list[Tensor]) -> CapturedCall:
        copies = [
            leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(copies, structure)
        buffers = [copy for copy in copies if isinstance(copy, Tensor)]
        versions, before = _versions(buffers), [parameter.grad for parameter in parameters]
        # Weights that autocast has cast before would not be cast in a replay, and those of the recording belong to it.
        torch.clear_autocast_cache()
        try:
            replay = (self._record or record_once)(lambda: self.step(*args, **kwargs))
        except BaseException:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
            raise
        finally:
            torch.clear_autocast_cache()
        is_changed = [old != new for old, new in zip(versions, _versions(buffers), strict=True)]
        pairs = [*zip(parameters, before, strict=True)]
        pairs = [(p, old) for p, old in pairs if p.grad is not None or old is not None]
        gradients = [(p, p.grad, p.grad is old) for p, old in pairs]
        sets_gradients = all(old is not None and p.grad is not old for p, old in pairs)
        return CapturedCall(buffers, replay, is_changed, gradients, sets_gradients, [*filter(_is_object, leaves)])


def _is_record(leaf: Any) -> bool:
    """Whether it is a graph, or another record of tensors that torch can take apart."""
    return is_dataclass(leaf) and type(leaf) in pytree.SUPPORTED_NODES


def _is_object(leaf: Any) -> bool:
    """Whether an argument is known by its id alone."""
    return not isinstance(leaf, Tensor | int | float | str | bool | None)


def _reference(leaf: Any) -> Callable[[], Any]:
    """A function that returns the object, or None once it is gone."""
    try:
        return weakref.ref(leaf)
    except TypeError:
        return lambda: leaf


def _versions(record: Any) -> list[int]:
    """How often each tensor of a record or list was changed in place; those of inference mode do not count it."""
    tensors = pytree.tree_leaves(record) if isinstance(record, list) or _is_record(record) else []
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors if isinstance(tensor, Tensor)]
