"""Captures a training step as a CUDA graph, once per shape of its inputs, and replays it on changing inputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import is_dataclass
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from geoskip.kernels.branches import stream_to_capture

# Runs before the capture: kernels compile, and libraries allocate their workspaces.
WARMUPS = 3
Replay = Callable[[], Any]
P = ParamSpec("P")
R = TypeVar("R")


def record_graph(step: Callable[[], Any]) -> Replay:
    """Capture a step as a CUDA graph. Each replay advances torch's generator, so dropout draws new numbers."""
    with capture_stream():
        for _ in range(WARMUPS):
            step()
    return record_once(step)


@contextmanager
def capture_stream(device: torch.device | str = "cuda") -> Iterator[None]:
    """Work on the stream that captures, so that libraries allocate their workspaces and memory is reused there; no
    change on a device other than CUDA."""
    if torch.device(device).type != "cuda":
        yield
        return
    current, side = torch.cuda.current_stream(), stream_to_capture()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


def record_once(step: Callable[[], Any]) -> Replay:
    """Capture a step that has run before on the stream of captures. A failure leaves no trace outside of the step."""
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        # torch.cuda.graph does not return to the current stream if the capture fails.
        back, capturing = torch.cuda.stream(torch.cuda.current_stream()), stream_to_capture()
        with back, torch.cuda.graph(graph, pool=pool, stream=capturing):
            result = step()
    except Exception as error:
        _undo_failed_capture(pool)
        if not isinstance(error, RuntimeError) or "captur" not in str(error):
            raise
        raise RuntimeError(
            "step: cannot be captured, because it waits for the GPU or uses an optimizer without capturable=True. "
            "Return tensors instead of reading them with .item(), and see the error above"
        ) from error

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def _undo_failed_capture(pool: tuple[int, int]) -> None:
    """After a capture that CUDA invalidated, PyTorch keeps allocating for it, and its generator cannot draw numbers."""
    device = torch.cuda.current_device()
    # The first call raises if the capture has ended as it should, because the step failed for a reason of its own.
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
        # The end of a capture that succeeds sets the generator back.
        scratch = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream_to_capture()):
            scratch.zero_()


class Recording(NamedTuple):
    """A recorded step: the layout it was recorded for, the buffers that it reads its inputs from, and its replay."""

    layout: Hashable
    buffers: list[Tensor]
    replay: Replay


class CapturedStep:
    """A function of tensors that is recorded once for each shape of its inputs, and then replayed.

    A call copies the inputs into buffers and replays the recording. The result is overwritten by the next call.
    Recording runs the function a few times; afterwards the state, the random generators and the gradient scaler are
    put back in place.

    Args:
        step: the function. It must not wait for the device. A recording keeps using the memory it was recorded with, so
            everything the function reads or changes must stay in place.
        state: returns all tensors that the function changes, such as weights, moments and running sums.
        scaler: the gradient scaler, if the function uses one.
        layout: a function of the inputs; when its value changes, the step is recorded again for this shape.
        prepare: a function of the inputs that is called before a recording.
        record: how to record, :func:`record_graph` except in tests on a CPU.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        state: Callable[[], Iterable[Tensor]],
        *,
        scaler: torch.amp.GradScaler | None = None,
        layout: Callable[..., Hashable] | None = None,
        prepare: Callable[..., Any] | None = None,
        record: Callable[[Callable[[], Any]], Replay] = record_graph,
    ) -> None:
        self.step, self.state, self.scaler, self.layout, self.record = step, state, scaler, layout, record
        self.prepare = prepare
        self.recordings: dict[Hashable, Recording] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        layout = None if self.layout is None else self.layout(*inputs)
        recording = self.recordings.get(shapes)
        if recording is None or recording.layout != layout:
            recording = self.recordings[shapes] = self._recorded(inputs, layout)
        for buffer, tensor in zip(recording.buffers, inputs, strict=True):
            buffer.copy_(tensor)
        return recording.replay()

    def _recorded(self, inputs: Sequence[Tensor], layout: Hashable) -> Recording:
        buffers = [tensor.clone() for tensor in inputs]
        with preserved(self.state(), inputs[0].device, self.scaler):
            if self.prepare is not None:
                self.prepare(*inputs)
            replay = self.record(lambda: self.step(*buffers))
        return Recording(layout, buffers, replay)


@contextmanager
def preserved(
    tensors: Iterable[Tensor], device: torch.device, scaler: torch.amp.GradScaler | None = None
) -> Iterator[None]:
    """After the block, also if it raises, tensors, the random states of a device and a gradient scaler are as they were
    before it."""
    copies = [(tensor, tensor.detach().clone()) for tensor in tensors]
    random, scale = random_states(device), {} if scaler is None else scaler.state_dict()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, copy in copies:
                tensor.copy_(copy)
        set_random_states(random, device)
        if scaler is not None and scale:
            scaler.load_state_dict(scale)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a step draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


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
