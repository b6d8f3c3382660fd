"""Kernels that are compiled before the first step, all at once: those of a user's own model, or of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from geoskip.kernels.paths import recorded_launches
from geoskip.training.cuda_graphs import capture_stream, preserved
from geoskip.training.learner import Learner

Launches = list[tuple[Any, ...]]


def compile_ahead(model: nn.Module, *args: Any, **kwargs: Any) -> int:
    """Compile the kernels of a call of the model and of its gradients, in parallel. Returns how many there are.

    .. code-block:: python

        geoskip.compile_ahead(model, x, graph)
        for x, target in loader:
            loss = (model(x, graph) - target).abs().mean()
            ...

    Without it, each kernel is compiled when it is first launched, one after the other. Both ways, compiled kernels stay
    in Triton's cache on the disk, so that later processes start fast.

    A copy of the model is called without its kernels; the model, its gradients, the arguments and the random numbers
    stay as they are. Call it as in training: with arguments of the same shapes and types, the model in the same mode,
    and under the same autocast; under ``torch.no_grad()``, the kernels of the gradients are left out. Gradients are
    those of the tensors that the model returns, also in tuples, lists and dictionaries. Without CUDA tensors there is
    nothing to compile.

    Args:
        model: what is called, not compiled by ``torch.compile``. ``copy.deepcopy`` must be able to copy it.
        args: the arguments of the call, which it must be able to copy, too.
        kwargs: its keyword arguments.
    """
    tensors = [*_tensors((args, kwargs)), *model.parameters(), *model.buffers()]
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), torch.device("cpu"))
    # Kernels are compiled for the current device.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return len(compile_traced(device, lambda: model_launches(model, args, kwargs, device)))


def model_launches(model: nn.Module, args: Any, kwargs: Any, device: torch.device) -> Launches:
    """The launches of a call of the model and of its gradients."""
    (copied, args, kwargs), shared = _copied((model, args, kwargs), model)
    tensors = [*shared, *model.parameters()]
    with _unchanged(tensors), preserved((), device), recorded_launches() as launches:
        outputs = [output for output in _tensors(copied(*args, **kwargs)) if output.requires_grad]
        inputs = [tensor for tensor in tensors if tensor.requires_grad]
        if outputs and inputs:
            torch.autograd.grad(outputs, inputs, [torch.zeros_like(output) for output in outputs], allow_unused=True)
    return launches


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


@contextmanager
def _unchanged(tensors: list[Tensor]) -> Iterator[None]:
    """Tensors that the block changes in place are set back. The others are not touched, because a graph of autograd may
    have saved them."""
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors if not tensor.is_inference()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, copy in before:
                # Batch normalization changes its running statistics without a new version.
                same = tensor.layout is not torch.strided or torch.equal(tensor, copy)
                if tensor._version != version or not same:
                    tensor.copy_(copy)


def compile_step(learner: Learner, num_items: int) -> list[Any]:
    """Compile the kernels of a step on ``num_items`` items, in parallel, and return them. If that fails, each kernel is
    compiled when it is launched."""
    # A task of the user's own may do anything at all.
    with suppress(Exception):
        return compile_traced(learner.device, lambda: traced_launches(learner, num_items))
    return []


def traced_launches(learner: Learner, num_items: int) -> Launches:
    """The launches of a step on ``num_items`` items. The step is taken without them; then everything is as before.

    torch's fake tensors would need no memory, but import all of ``torch._dynamo``, which takes seconds.
    """
    learner.task.prepare(num_items)
    with preserved(learner.tensors().values(), learner.device, learner.scaler):
        with capture_stream(learner.device), recorded_launches() as launches:
            copied, _ = _copied(learner, learner.model)
            copied.update(torch.zeros(num_items, dtype=torch.int64, device=learner.device))
        learner.optimizer.zero_grad()
    return launches


def _copied(objects: Any, model: nn.Module) -> tuple[Any, list[Tensor]]:
    """Copies with the same tensors, and these, without the model's parameters: objects may remember results, which are
    not those of kernels here."""
    with _SharedTensors() as shared:
        copies = deepcopy(objects, {id(parameter): parameter for parameter in model.parameters()})
    return copies, shared.tensors


class _SharedTensors(TorchFunctionMode):
    """Deep copies of objects have the same tensors, except those that are part of a graph of autograd, which a backward
    pass would free."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor = args[0] if args[0].is_leaf else args[0].detach().requires_grad_().clone()
        self.tensors.append(tensor)
        return tensor


def compile_traced(device: torch.device, trace: Callable[[], Launches]) -> list[Any]:
    """The compiled kernels of all launches."""
    starting = start_device(device)
    if starting is None:
        return []
    try:
        launches = trace()
    finally:
        starting.join()
    # It uses parts of Triton that other versions may not have.
    with suppress(Exception):
        from geoskip.kernels.triton.ahead import compile_launches

        return compile_launches(launches)
    return []


def start_device(device: torch.device) -> Thread | None:
    """Start CUDA and Triton's compiler, which takes about a second, in a thread: most of it runs while this one reads
    data. None if there is nothing to start."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    return _start_device(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _start_device(index: int) -> Thread:
    def start() -> None:
        # What fails here fails again, with a message, when it is needed.
        with suppress(Exception):
            torch.cuda.set_device(index)
            from geoskip.kernels.triton.ahead import start_compiler

            start_compiler(index)

    thread = Thread(target=start, name="geoskip-start")
    thread.start()
    return thread
