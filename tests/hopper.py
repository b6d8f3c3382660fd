"""Compiles the kernels of blocks and of training steps for a Hopper GPU, on a machine without one.

    python -m tests.hopper [--threads 2] [--only EXPRESSION]

Blocks are every operator with every skip, in several sizes and precisions; steps are those of every task with every
operator. They run without their kernels, whose launches are recorded and then compiled. The output lists the kernels
that cannot be compiled, and those that need more registers than there are.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from geoskip import Graph
from geoskip.blocks import make_block, skip_names
from geoskip.kernels import use_path
from geoskip.kernels.paths import recorded_launches
from geoskip.kernels.triton import ahead
from geoskip.meshes import icosphere
from geoskip.meshes.spiral_order import spirals
from geoskip.operators import OPERATORS, make_operator, operator_info
from geoskip.training.compiling import traced_launches
from geoskip.training.config import resolve
from geoskip.training.devices import arithmetic
from geoskip.training.learner import Learner
from geoskip.training.tasks import make_task
from tests.training import sets, test_ahead

# Items, channels of x and y, and subdivisions of a sphere: one item, a few and many, on small graphs and large ones.
SIZES = [
    ((), 3, 16, 1),
    ((), 16, 32, 5),
    ((), 64, 128, 5),
    ((2,), 33, 5, 1),
    ((16,), 1, 32, 1),
    ((32,), 32, 32, 1),
    ((32,), 32, 64, 1),
    ((32,), 128, 64, 1),
]
PRECISIONS = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SPIRAL = 9
KERNEL_SIZES: dict[str, Any] = {"cheb": 6, "spiral": SPIRAL, "spline": (3, 3, 3)}
# A launch as `recorded_launches` appends it.
Launch = tuple[Any, ...]


class Hopper:
    """Stands in for Triton's driver of a GPU: kernels can be compiled, and not launched."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> None:
        return None


def cases() -> Iterator[tuple[str, Callable[[], list[Launch]]]]:
    """The names of blocks and steps, and functions that record their launches."""
    for operator, skip, sizes in product(OPERATORS.names(), skip_names(), SIZES):
        yield f"block {operator} {skip} {sizes} float32", partial(block_launches, operator, skip, sizes, "float32")
    for operator, sizes, precision in product(OPERATORS.names(), (SIZES[2], SIZES[5]), [*PRECISIONS][1:]):
        yield f"block {operator} {sizes} {precision}", partial(block_launches, operator, "affine", sizes, precision)
    for task, operator in product(sets.TASKS, OPERATORS.names()):
        # Superpixels have no spirals.
        if (task, operator) != ("classification", "spiral"):
            yield f"step {task} {operator}", partial(step_launches, task, operator)


@cache
def sphere(subdivisions: int) -> Graph:
    mesh = icosphere(subdivisions)
    graph = Graph.from_faces(mesh.faces, mesh.num_vertices)
    return graph.with_pseudo(torch.rand(graph.num_edges, 3)).with_spirals(spirals(mesh, SPIRAL))


def block_launches(operator: str, skip: str, sizes: tuple[Any, ...], precision: str) -> list[Launch]:
    """Of a block forward, with and without gradients, and backward."""
    items, channels, out, subdivisions = sizes
    info = operator_info(operator)
    kernel_size, dim = KERNEL_SIZES.get(operator, 10) if info.has_kernel_size else None, 3 if info.uses_pseudo else None
    block = make_block(make_operator(operator, channels, out, kernel_size=kernel_size, dim=dim), skip)
    graph, dtype = sphere(subdivisions), PRECISIONS[precision]
    x = torch.zeros(*items, graph.num_vertices, channels, dtype=dtype, requires_grad=True)
    config = resolve("correspondence", tf32=precision == "tf32")
    with arithmetic(config), recorded_launches() as launches:
        with torch.no_grad():
            block.to(dtype)(x, graph)
        block(x, graph).sum().backward()
    return launches


def step_launches(task: str, operator: str) -> list[Launch]:
    """Of a step on a tiny data set, with the paper's model and batch size."""
    config = resolve(task, data="tiny", operator=operator, skip="affine", device="cpu", checkpoint_every=0)
    data: dict[str, Callable[[], Any]] = {
        "reconstruction": partial(sets.meshes, 40, 3),
        "correspondence": partial(sets.correspondences, mixed=True),
        "classification": partial(sets.graphs, 80),
    }
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepared = test_ahead.padded(make_task(config, data[task]()), monkeypatch)
        prepared.begin_epoch(0)
    learner = Learner(prepared, prepared.make_model(), config)
    for group in learner.optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    return traced_launches(learner, min(config.optim.batch_size, prepared.num_items))


def compile_all(launches: dict[Launch, str], threads: int) -> tuple[list[Any], list[str]]:
    """The compiled kernels, and the names and errors of those that cannot be compiled."""
    kernels: dict[str, Any] = {}
    errors = []
    with ThreadPoolExecutor(threads) as pool:
        started = {launch: pool.submit(ahead._start, *launch) for launch in launches}
        for launch, future in started.items():
            try:
                kernel = future.result()
                kernels[kernel.hash] = kernel
            except Exception as error:
                errors.append(f"{launch[0].fn.__module__}.{launch[0].fn.__name__} of {launches[launch]}: {error}")
    return [*kernels.values()], errors


def resources(kernel: Any) -> tuple[int, int]:
    """The registers of a thread, and the bytes that are spilled from them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.findall(rf"{name}:(\d+)", text)[-1]) for name in ("REG", "STACK"))
    return registers, stack


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the kernels for a Hopper GPU, without one.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="a regular expression that names of blocks and steps must match")
    arguments = parser.parse_args()
    driver.set_active(Hopper())
    start, count = time.monotonic(), 0
    launches: dict[Launch, str] = {}
    with use_path("interpreter"):
        for name, record in cases():
            if re.search(arguments.only, name):
                count += 1
                for launch in record():
                    launches.setdefault(launch, name)
    print(f"{len(launches)} distinct launches of {count} blocks and steps", flush=True)
    kernels, errors = compile_all(launches, arguments.threads)
    for kernel in kernels:
        registers, spilled = resources(kernel)
        if spilled:
            print(f"{kernel.name}, {kernel.metadata.num_warps} warps: {registers} registers, {spilled} bytes of stack")
    for error in errors:
        print("FAILED", error)
    print(f"{len(kernels)} kernels compiled, {len(errors)} failed: {time.monotonic() - start:.0f} s")
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
