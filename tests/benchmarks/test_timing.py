"""The clock: which steps run, how often, what is made of the times."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from benchmarks.cases import make_case, num_sets, ours
from benchmarks.checking import TOLERANCE, check, reference_results
from benchmarks.timing import _summary, captured, peak_bytes, time_steps
from benchmarks.workloads import BODIES, FACES, Problem

from tests.benchmarks.tiny import CPU, MESHES, case


def test_sets_of_inputs_take_turns() -> None:
    seen: list[int] = []

    def step(k: int) -> tuple[torch.Tensor, ...]:
        seen.append(k)
        return ()

    timing = time_steps([partial(step, k) for k in range(3)], CPU, seconds=0.0, least=4)
    assert seen == [0, 1, 2, 0, 1]
    assert timing.samples == 4


def test_summary_is_median_and_quartiles() -> None:
    timing = _summary([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (timing.low, timing.milliseconds, timing.high, timing.samples) == (2.0, 3.0, 4.0, 5)
    assert _summary([7.0]).low == _summary([7.0]).high == 7.0


def test_no_peak_on_the_cpu() -> None:
    ready = case("gcn", skip=False)
    assert peak_bytes(ours(ready).steps[0], CPU) is None


def test_sets_outgrow_the_cache() -> None:
    faces, bodies = (Problem(workload, "gcn", 1, skip=False) for workload in (FACES, BODIES))
    assert num_sets(faces, 5023, CPU) == 2
    bytes_of_bodies = 4 * 6890 * (64 + 128)
    assert num_sets(bodies, 6890, CPU) * bytes_of_bodies >= 2 * (32 << 20)
    assert num_sets(Problem(MESHES, "gcn", 1, skip=False), 40, CPU) == 32


def test_inputs_differ_and_come_again() -> None:
    first, again = case("gcn", skip=False), case("gcn", skip=False)
    assert not torch.equal(first.inputs[0][0], first.inputs[1][0])
    assert torch.equal(first.inputs[1][1], again.inputs[1][1])


@pytest.mark.gpu
@pytest.mark.parametrize("operator", ["monet", "feast", "cheb", "gcn", "gin", "spiral", "spline"])
def test_captured_steps_replay(operator: str) -> None:
    ready = case(operator, skip=True)
    device = torch.device("cuda")
    ready = make_case(ready.problem, ready.graph.to(device), device)
    replayed = captured(ours(ready))
    assert check(replayed, reference_results(ready)).passes(TOLERANCE)
    assert replayed.peak_bytes is not None
    assert replayed.peak_bytes > 0
    assert time_steps(replayed.steps, device, 0.01).milliseconds > 0
