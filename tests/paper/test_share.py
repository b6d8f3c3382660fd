"""Shares of skip and convolution: they add up, they see what is planted, they follow training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from geoskip.blocks import AffineSkip, ResidualSkip
from geoskip.operators import GCNConv
from geoskip.paper.measures import affine_share, block_shares, run_shares, trained_models
from tests.models.small import autoencoder
from tests.paper.small_run import small_run
from tests.specimens import features, specimen


@given(st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_the_two_shares_add_up(seed: int) -> None:
    a, c = features(2, 6, 3, seed=seed), features(2, 6, 3, seed=seed + 100)
    first, second = affine_share(a, a + c), affine_share(c, a + c)
    assert first[0] + second[0] == pytest.approx(1)
    assert first[1] + second[1] == pytest.approx(1)
    assert first[2] == pytest.approx(second[2])
    assert 0 <= first[1] <= 1 >= abs(first[2])


def test_known_shares() -> None:
    """Parts at right angles share by their squares; one that undoes half of the other has a share of -1."""
    a = torch.tensor([[1.0, 0], [-1, 0]])
    c = torch.tensor([[0.0, 2], [0, -2]])
    assert affine_share(a, a + c) == pytest.approx((0.2, 0.2, 0))
    assert affine_share(-a, a) == pytest.approx((-1, 0.2, -1))
    assert affine_share(a, a) == pytest.approx((1, 1, 0))


def test_a_constant_counts_for_nothing() -> None:
    a, c = features(6, 3), features(6, 3, seed=2)
    assert affine_share(a + 7, a + c + 7) == pytest.approx(affine_share(a, a + c))
    assert affine_share(torch.ones(6, 3), torch.ones(6, 3)) == (0, 0, 0)


class TwoBlocks(nn.Module):
    """Called in another order than they are named, one of them by keyword."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.second = AffineSkip(GCNConv(4, 2))
        self.first = ResidualSkip(GCNConv(3, 4))

    def forward(self, x: Any, graph: Any) -> Any:
        return self.second(x=self.first(x, graph), graph=graph)


def test_blocks_are_met_in_the_order_of_calls() -> None:
    model, x, graph = TwoBlocks().double(), features(7, 3), specimen().graph()
    rows = block_shares(model, lambda model: model(x, graph))
    assert [row.layer for row in rows] == ["first", "second"]
    hidden = model.first(x, graph).detach()
    expected = affine_share(model.second.affine(hidden).detach(), model.second(hidden, graph).detach())
    assert (rows[1].share, rows[1].size, rows[1].cosine) == pytest.approx(expected)
    assert not model.first._forward_hooks


def test_hooks_are_gone_after_an_error() -> None:
    model = TwoBlocks().double()
    with pytest.raises(ValueError, match="maps 3 channels, got 5"):
        block_shares(model, lambda model: model(features(7, 5), specimen().graph()))
    assert not model.first._forward_hooks


@pytest.mark.parametrize(("silent", "share"), [("conv.theta", 1), ("weight", 0)])
def test_a_part_that_is_zero_has_no_share(silent: str, share: float) -> None:
    model = autoencoder(operator="monet", kernel_size=3, skip="affine")
    with torch.no_grad():
        for block in [*model.encoder, *model.decoder, model.output]:
            block.get_parameter(silent).zero_()
    x = features(2, 42, 3, dtype=torch.float32)
    rows = block_shares(model, lambda model: model(x))
    assert len(rows) == 5
    # Behind a block that puts out nothing there is nothing to share.
    assert [row.share for row in rows[:1]] == pytest.approx([share], abs=1e-6)


def test_shares_follow_the_checkpoints(tmp_path: Path) -> None:
    """The steps double the skips' matrices, so the first block's skip, whose input stays, counts for more."""
    run, task = small_run(tmp_path, steps=(10, 20))
    rows = run_shares(run, 8, task)
    assert list(dict.fromkeys(row["step"] for row in rows)) == [0, 10, 20]
    sizes = [row["size"] for row in rows if row["layer"] == "encoder.0"]
    odds = [size / (1 - size) for size in sizes]
    assert odds[1] == pytest.approx(4 * odds[0], rel=1e-4)
    assert odds[2] == pytest.approx(16 * odds[0], rel=1e-4)


def test_weights_of_the_end_count_where_no_checkpoint_has_them(tmp_path: Path) -> None:
    run, task = small_run(tmp_path, steps=(10,))
    run.write_model(task.make_model(), 30)
    assert [step for step, _ in trained_models(run, task)] == [0, 10, 30]


def test_a_model_without_skips_is_refused() -> None:
    with pytest.raises(ValueError, match="model: MeshAutoencoder has no blocks with skips"):
        block_shares(autoencoder(operator="gcn"), lambda model: None)
