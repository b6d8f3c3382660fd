"""What is wrong is found: values, gradients, NaN, runs that differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from benchmarks.cases import Contender, names_of, ours
from benchmarks.checking import TOLERANCE, check, compare, reference_results, relative_error
from torch import Tensor
from torch.testing import assert_close

from geoskip.kernels import use_path
from tests.benchmarks.tiny import ALL_OPERATORS, PACKED, case, plant


@pytest.mark.parametrize("skip", [False, True], ids=["bare", "skip"])
@pytest.mark.parametrize("operator", ALL_OPERATORS)
def test_fast_path_passes(operator: str, skip: bool) -> None:
    ready = case(operator, skip)
    verdict = check(ours(ready), reference_results(ready))
    assert 0 < verdict.error <= TOLERANCE
    assert verdict.repeats
    assert verdict.passes(TOLERANCE)


def test_reference_of_items_is_that_of_the_batch() -> None:
    ready = case("feast", skip=True)
    block, graph = ready.block.double(), ready.graph.to(torch.float64)
    x, grad_y = (values.double() for values in ready.inputs[0])
    x.requires_grad_()
    with use_path("reference"):
        y = block(x, graph)
    gradients = torch.autograd.grad(y, [x, *block.parameters()], grad_y)
    expected = dict(zip(names_of(block), [y.detach(), *gradients], strict=True))
    found = reference_results(ready)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found[name], value, rtol=1e-10, atol=1e-12)


def test_reference_of_packed_graphs() -> None:
    ready = case("monet", skip=False, workload=PACKED)
    assert reference_results(ready)["y"].shape == (36, 5)


def changed(contender: Contender, which: int, change: Tensor | float) -> Contender:
    """A contender whose result number ``which`` is off."""

    def wrong() -> tuple[Tensor, ...]:
        results = list(contender.steps[0]())
        results[which] = results[which] + change
        return tuple(results)

    return replace(contender, steps=[wrong])


@pytest.mark.parametrize("which", range(6))
def test_every_result_is_looked_at(which: int) -> None:
    ready = case("monet", skip=False)
    verdict = check(changed(ours(ready), which, 1e-2), reference_results(ready))
    assert not verdict.passes(TOLERANCE)
    assert verdict.worst == names_of(ready.block)[which]


def test_nan_never_passes() -> None:
    ready = case("gcn", skip=False)
    verdict = check(changed(ours(ready), 1, float("nan")), reference_results(ready))
    assert verdict.error != verdict.error
    assert verdict.worst == "x"
    assert not verdict.passes(float("inf"))
    assert not verdict.repeats


def test_error_of_the_worse_run_counts() -> None:
    right, wrong = [torch.ones(3)], [torch.tensor([1.0, 1.0, 2.0])]
    expected = {"y": torch.ones(3).double()}
    for runs in ((right, wrong), (wrong, right)):
        verdict = compare(*runs, expected)
        assert verdict.error == pytest.approx(1 / 3**0.5)
        assert not verdict.repeats
    assert compare(right, right, expected).repeats


def test_relative_error_is_that_of_norms() -> None:
    assert relative_error(torch.tensor([3.0, 4.1]), torch.tensor([3.0, 4.0]).double()) == pytest.approx(0.02, rel=1e-5)
    assert relative_error(torch.zeros(2), torch.zeros(2).double()) == 0
    assert not relative_error(torch.tensor([float("inf")]), torch.ones(1).double()) <= float("inf")
    with pytest.raises(ValueError, match=r"result: has shape \[2\], the reference \[3\]"):
        relative_error(torch.ones(2), torch.ones(3).double())


def test_captured_results_are_poisoned_between_replays() -> None:
    """A replay that leaves its buffers alone is seen."""
    ready = case("gcn", skip=False)
    first = ours(ready).steps[0]()
    frozen = replace(ours(ready), path="captured", steps=[lambda: first])
    assert not check(frozen, reference_results(ready)).passes(TOLERANCE)


def test_planted_fault_in_a_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = case("monet", skip=False)
    reference = reference_results(ready)
    plant(monkeypatch)
    verdict = check(ours(ready), reference)
    assert verdict.worst == "theta"
    assert verdict.error == pytest.approx(1e-4, rel=1e-2)
