"""The estimate beside what the CUDA path allocates, counted without running its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import l1_loss
from torch.profiler import ProfilerActivity, profile
from triton.runtime.jit import KernelInterface

from geoskip.bench.cases import Step, make_case, ours
from geoskip.bench.ledger import Ledger
from geoskip.bench.memory import estimate_problem, estimate_step_memory
from geoskip.bench.model_memory import estimate_autoencoder_memory
from geoskip.bench.surfaces import sphere_graph, superpixel_graphs
from geoskip.bench.workloads import ONE_MATRIX, SUPERPIXELS, Problem, Workload
from geoskip.graphs import Hierarchy
from geoskip.kernels import use_path
from geoskip.meshes import icosphere, mesh_hierarchy
from geoskip.models import MeshAutoencoder
from tests.bench.tiny import ALL_OPERATORS, CPU

MANY = Workload("many", "", 32, 32, 32, (9,), 3, lambda: sphere_graph(300, 9))
FEW = Workload("few", "", 3, 8, 24, (5,), 3, lambda: sphere_graph(1000, 9))
ONE = Workload("one", "", 1, 64, 128, (10,), 3, lambda: sphere_graph(1500, 10))
PACKED = replace(SUPERPIXELS, make_graph=lambda: superpixel_graphs(16, 75, 696))


@pytest.fixture
def _no_launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CUDA path on the CPU: it allocates as ever, and its kernels do nothing."""
    monkeypatch.setattr(KernelInterface, "__getitem__", lambda self, grid: lambda *args, **kwargs: None)
    with use_path("interpreter"):
        yield


def allocated(step: Step) -> int:
    """Most bytes that a step holds at once, above what was there before."""
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    results = profiler.profiler
    assert results is not None
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    held = torch.tensor([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]).cumsum(0)
    assert int(held[-1]) == 0
    return int(held.max())


@pytest.mark.usefixtures("_no_launches")
@pytest.mark.parametrize("workload", [MANY, FEW, ONE, PACKED], ids=lambda workload: workload.name)
@pytest.mark.parametrize("operator", ALL_OPERATORS)
def test_estimate_is_what_a_step_allocates(operator: str, workload: Workload) -> None:
    if operator == "spiral" and not workload.has_spirals:
        operator = "gcn"
    graph = workload.make_graph()
    slots = 1 if operator in ONE_MATRIX else workload.kernel_sizes[0]
    for skip in (False, True):
        problem = Problem(workload, operator, slots, skip)
        found = allocated(ours(make_case(problem, graph, CPU)).steps[0])
        assert estimate_problem(problem, graph) == pytest.approx(found, rel=0.08)


@pytest.mark.usefixtures("_no_launches")
@pytest.mark.parametrize("operator", ALL_OPERATORS)
def test_forward_alone(operator: str) -> None:
    slots = 1 if operator in ONE_MATRIX else 5
    ready = make_case(Problem(FEW, operator, slots, skip=True), FEW.make_graph(), CPU)

    def forward() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return (ready.block(ready.inputs[0][0], ready.graph),)

    sizes = 3, 1000, ready.graph.num_edges, 8, 24, slots
    estimate = estimate_step_memory(operator, *sizes, skip=True, backward=False)
    assert estimate == pytest.approx(allocated(forward), rel=0.08)


@pytest.fixture(scope="module")
def hierarchy() -> Hierarchy:
    return Hierarchy.from_meshes(mesh_hierarchy(icosphere(3), factors=(4, 4)), spiral_length=9)


@pytest.mark.usefixtures("_no_launches")
@pytest.mark.parametrize("operator", ALL_OPERATORS)
def test_autoencoder(operator: str, hierarchy: Hierarchy) -> None:
    slots = 1 if operator in ONE_MATRIX else 9
    kernel_size = {"gcn": None, "gin": None, "spline": (3, 3, 1)}.get(operator, 9)
    model = MeshAutoencoder(
        hierarchy, operator=operator, skip="affine", kernel_size=kernel_size, channels=(32, 64), latent=16
    )
    x = torch.randn(16, 642, 3)

    def step() -> tuple[torch.Tensor, ...]:
        l1_loss(model(x), x).backward()
        model.zero_grad()
        return ()

    edges = [level.num_edges for level in hierarchy.levels]
    estimate = estimate_autoencoder_memory(operator, 16, hierarchy.sizes, edges, slots, skip=True, channels=(32, 64))
    assert estimate == pytest.approx(allocated(step), rel=0.08)


def test_levels_are_counted() -> None:
    with pytest.raises(ValueError, match="vertices, edges: 4 channels have 5 levels, got 2 and 5"):
        estimate_autoencoder_memory("gcn", 1, [10, 5], [1, 2, 3, 4, 5])


def test_lower_precision_takes_less() -> None:
    sizes = "gcn", 1, 100_000, 600_000, 64, 64
    full, half = (estimate_step_memory(*sizes, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    # The sums for Θ stay in float32.
    assert full / 2 < half < 0.7 * full


def test_ledger_remembers_the_most() -> None:
    ledger = Ledger()
    ledger.hold(a=512, b=1)
    assert ledger.peak == 1024
    ledger.drop("a")
    ledger.hold(c=512)
    assert ledger.peak == 1024
    ledger.hold(d=513)
    assert ledger.peak == 2048


def test_chapters_count_in_the_book() -> None:
    book = Ledger()
    first, second = book.chapter(), book.chapter()
    first.hold(a=512, b=512)
    second.hold(a=512)
    assert (book.total, book.peak, first.peak, second.peak) == (1536, 1536, 1024, 512)
    first.keep("b")
    assert (book.total, book.peak, first.total) == (1024, 1536, 512)


def test_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="operator: unknown name 'gat'; choose from cheb, feast"):
        estimate_step_memory("gat", 1, 10, 20, 3, 3)
