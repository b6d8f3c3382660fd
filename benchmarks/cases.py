"""A problem made ready to run: the block with its parameters, the graph, several sets of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.workloads import Problem
from geoskip.blocks import make_block
from geoskip.graphs import Graph
from geoskip.kernels import use_path
from geoskip.operators import make_operator

# Runs over one small buffer would measure the cache: the sets of inputs together outgrow it.
CPU_CACHE, MOST_SETS = 32 << 20, 32

Step = Callable[[], tuple[Tensor, ...]]
Inputs = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """A block on its graph, with (x, gradient of y) several times over."""

    problem: Problem
    block: nn.Module
    graph: Graph
    inputs: list[Inputs]

    @property
    def device(self) -> torch.device:
        return self.graph.device


@dataclass(frozen=True)
class Contender:
    """One way to do the work of a case.

    Attributes:
        path: one of :data:`~benchmarks.measurements.PATHS`.
        call: the call that is timed, in words.
        steps: forward and backward, one for each set of inputs: y and the gradients of x and of every parameter.
        expected: the reference's results, by name, as this contender returns them.
        kernels: the path of our kernels that it runs on.
        peak_bytes: memory of a step, where it is known beforehand.
    """

    path: str
    call: str
    steps: list[Step]
    expected: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    kernels: str | None = None
    peak_bytes: int | None = None

    def on_path(self) -> AbstractContextManager[None]:
        return nullcontext() if self.kernels is None else use_path(self.kernels)


def make_case(problem: Problem, graph: Graph, device: torch.device, seed: int = 0) -> Case:
    """``graph`` already lies on the device, so that problems of one workload share it."""
    with seeded(seed):
        block = make_problem_block(problem)
        count = num_sets(problem, graph.num_vertices, device)
        inputs = [_draw(problem, graph.num_vertices, device) for _ in range(count)]
    return Case(problem, block.to(device), graph, inputs)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a seed, and leave the generators of the caller as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def make_problem_block(problem: Problem) -> nn.Module:
    """The operator with or without its skip, every parameter away from 0."""
    w = problem.workload
    operator = make_operator(
        problem.operator, w.in_channels, w.out_channels, kernel_size=problem.kernel_size, dim=w.dim
    )
    with torch.no_grad():
        for name, parameter in operator.named_parameters():
            if name == "hidden_bias":
                # Far from the kink of GIN's ReLU, where rounding would decide which gradients there are.
                parameter.copy_(24 * (1 - 2 * (torch.arange(len(parameter)) % 2)))
            elif name == "bias":
                parameter.normal_(0, 0.1)
    return make_block(operator, skip="affine" if problem.skip else "none")


def num_sets(problem: Problem, num_vertices: int, device: torch.device) -> int:
    w, cache = problem.workload, CPU_CACHE
    if device.type == "cuda":
        cache = torch.cuda.get_device_properties(device).L2_cache_size
    bytes_per_set = 4 * w.batch * num_vertices * (w.in_channels + w.out_channels)
    return max(2, min(MOST_SETS, -(-2 * cache // bytes_per_set)))


def training_step(module: nn.Module, x: Tensor, grad_y: Tensor, *args: object) -> Step:
    """Forward, and the gradients of x and of every parameter."""
    x = x.detach().requires_grad_()
    inputs = [x, *module.parameters()]

    def step() -> tuple[Tensor, ...]:
        y = module(x, *args)
        return y.detach(), *torch.autograd.grad(y, inputs, grad_y)

    return step


def names_of(block: nn.Module) -> list[str]:
    """What a step of the block returns: y, and gradients by the name of what they belong to."""
    return ["y", "x", *(name for name, _ in block.named_parameters())]


def ours(case: Case, path: str = "geoskip", kernels: str = "fast", mode: str | None = None) -> Contender:
    """The block on one path of our kernels, eager or in a mode of ``torch.compile``."""
    block = case.block
    call = "block(x, graph)" if kernels == "fast" else "block(x, graph) on the reference path"
    if mode is not None:
        block, call = deepcopy(block), f"{call}, torch.compile(mode={mode!r})"
        # Once as it is, so that what the graph caches is not part of the trace.
        block(case.inputs[0][0], case.graph)
        compile_module(block, mode)
    steps = [training_step(block, *inputs, case.graph) for inputs in case.inputs]
    return Contender(path, call, steps, lambda results: results, kernels)


def compile_module(module: nn.Module, mode: str) -> None:
    """Compile a module for the shapes of its first call."""
    torch.compiler.reset()
    module.compile(dynamic=False, mode=mode)


def _draw(problem: Problem, num_vertices: int, device: torch.device) -> Inputs:
    w = problem.workload
    shape = (w.batch, num_vertices) if w.batch > 1 else (num_vertices,)
    x, grad_y = (torch.randn(*shape, channels) for channels in (w.in_channels, w.out_channels))
    return x.to(device), grad_y.to(device)
