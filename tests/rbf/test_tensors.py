"""Batches, gradients, blocks, dtypes and devices."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from geoskip.rbf import KERNEL_NAMES, bending_energy, fit_rbf, interpolant, thin_plate_spline
from geoskip.rbf.interpolant import squared_distances
from tests.rbf.scattered import normal, scattered, uniform, widths


def leaf(given: Tensor) -> Tensor:
    return given.clone().requires_grad_()


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_gradients(name: str) -> None:
    """Of centers, values and points."""
    centers, values, points = scattered(7, 2), normal(7, 2), uniform(3, 2, seed=4)

    def evaluate(centers: Tensor, values: Tensor, points: Tensor) -> Tensor:
        return fit_rbf(centers, values, name, degree=1, epsilon=widths(name, 2), smoothing=0.05)(points)

    assert gradcheck(evaluate, (leaf(centers), leaf(values), leaf(points)), fast_mode=name != "thin_plate")


def test_gradients_at_the_centers_themselves() -> None:
    """r² log r is differentiable there, though log r is not."""
    centers, values = scattered(7, 2), normal(7, 1)
    fitted = thin_plate_spline(centers, values)
    assert gradcheck(fitted, (leaf(centers),), atol=1e-4)


def test_second_derivatives() -> None:
    fitted = thin_plate_spline(scattered(7, 2), normal(7, 1))
    assert gradgradcheck(fitted, (leaf(uniform(3, 2, seed=4)),))


def test_gradients_of_the_energy_and_the_affine_part() -> None:
    centers, values = leaf(scattered(7, 2)), leaf(normal(7, 2))
    assert gradcheck(lambda c, v: bending_energy(thin_plate_spline(c, v)), (centers, values))
    assert gradcheck(lambda c, v: thin_plate_spline(c, v).affine(), (centers, values))


def test_the_energy_gradient_is_the_weights() -> None:
    """∂ wᵀΦw / ∂values = 2 w: the force that holds the plate at each center."""
    centers, values = scattered(20, 2), leaf(normal(20, 1))
    fitted = thin_plate_spline(centers, values)
    (force,) = torch.autograd.grad(bending_energy(fitted).sum(), values)
    assert_close(force, 2 * 8 * torch.pi * fitted.weights.detach())


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_batch_equals_loop(batch: tuple[int, ...]) -> None:
    count = int(torch.Size(batch).numel())
    centers = torch.stack([scattered(15, 2, seed=k) for k in range(count)]).reshape(*batch, 15, 2)
    values, points = normal(*batch, 15, 3), uniform(*batch, 9, 2)
    fitted = fit_rbf(centers, values, degree=1)
    singles = [
        fit_rbf(c, v, degree=1) for c, v in zip(centers.reshape(-1, 15, 2), values.reshape(-1, 15, 3), strict=True)
    ]
    looped = [single(p) for single, p in zip(singles, points.reshape(-1, 9, 2), strict=True)]
    assert_close(fitted(points), torch.stack(looped).reshape(*batch, 9, 3))
    assert_close(bending_energy(fitted), torch.stack([bending_energy(single) for single in singles]).reshape(*batch, 3))
    slopes, offset = fitted.affine()
    assert_close(points @ slopes + offset.unsqueeze(-2), fitted.polynomial(points))
    # Points that all items share.
    assert_close(fitted(points.reshape(-1, 9, 2)[0])[(0,) * len(batch)], looped[0])


def test_one_interpolant_at_many_sets_of_points() -> None:
    fitted, points = fit_rbf(scattered(15, 2), normal(15, 3)), uniform(2, 4, 9, 2)
    assert_close(fitted(points), fitted(points.reshape(-1, 2)).reshape(2, 4, 9, 3))


@pytest.mark.parametrize("at_once", [1, 40, 1000])
def test_blocks_change_nothing(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Including gradients, for which each block is recomputed."""
    fitted, points = fit_rbf(leaf(scattered(15, 3)), leaf(normal(15, 2))), leaf(uniform(23, 3))
    whole = fitted(points)
    expected = torch.autograd.grad(whole.square().sum(), [points, fitted.centers], retain_graph=True)
    monkeypatch.setitem(interpolant._BLOCK_SIZES, "cpu", at_once)
    parts = fitted(points)
    assert_close(parts, whole)
    found = torch.autograd.grad(parts.square().sum(), [points, fitted.centers])
    assert_close(found, expected)
    with torch.no_grad():
        assert_close(fitted(points), whole)


def test_blocks_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 centers and room for 40 distances: 2 points at a time."""
    monkeypatch.setitem(interpolant._BLOCK_SIZES, "cpu", 40)
    sizes = interpolant.in_blocks(lambda block: torch.full_like(block, len(block)), uniform(5, 3), 15)
    assert sizes[:, 0].tolist() == [2, 2, 2, 2, 1]


def test_no_points_give_no_values() -> None:
    assert fit_rbf(scattered(40, 2), normal(40, 3))(uniform(0, 2)).shape == (0, 3)


def test_float32_is_computed_in_float64() -> None:
    centers, values, points = (given.float() for given in (scattered(50, 2), normal(50, 2), uniform(20, 2)))
    fitted = fit_rbf(centers, values, "quintic")
    assert fitted.weights.dtype == torch.float64
    assert fitted(points).dtype == torch.float32
    exact = fit_rbf(centers.double(), values.double(), "quintic")(points.double())
    assert_close(fitted(points), exact.float())


def test_distances_keep_their_digits_far_from_the_origin() -> None:
    """1e-9 apart at 1: the expanded square would have nothing left of it."""
    points = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2**-30]], dtype=torch.float64)
    assert squared_distances(points, points)[0, 1] == 2.0**-60
    assert torch.cdist(points, points, compute_mode="use_mm_for_euclid_dist")[0, 1] != 2.0**-30


def test_another_device_is_rejected_by_name() -> None:
    fitted = fit_rbf(scattered(15, 2), normal(15, 2))
    assert_close(fitted.to("cpu")(uniform(3, 2)), fitted(uniform(3, 2)))
    away = fitted.to("meta")
    assert {away.centers.device.type, away.scale.device.type, away.weights.device.type} == {"meta"}
    with pytest.raises(ValueError, match=r"points: are on cpu, the interpolant on meta; use \.to\(\)"):
        away(uniform(3, 2))
    with pytest.raises(ValueError, match="values: are on meta, centers on cpu"):
        fit_rbf(scattered(15, 2), normal(15, 2).to("meta"))


@pytest.mark.gpu
def test_cpu_and_gpu_agree() -> None:
    centers, values, points = scattered(300, 3), normal(300, 2), uniform(1000, 3)
    here = fit_rbf(centers, values)(points)
    assert_close(fit_rbf(centers.cuda(), values.cuda())(points.cuda()).cpu(), here)
