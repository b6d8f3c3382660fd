"""The order of the items."""

from __future__ import annotations

import torch

from geoskip.training.session import Sampler


def epoch_of(sampler: Sampler, epoch: int) -> list[int]:
    steps = range(epoch * sampler.num_batches, (epoch + 1) * sampler.num_batches)
    return torch.cat([sampler.batch(step) for step in steps]).tolist()


def test_every_item_once_an_epoch_in_another_order_each_time() -> None:
    sampler = Sampler(10, 4, seed=0)
    first, second = epoch_of(sampler, 0), epoch_of(sampler, 1)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert epoch_of(Sampler(10, 4, seed=0), 0) == first
    assert epoch_of(Sampler(10, 4, seed=1), 0) != first


def test_the_last_batch_has_what_is_left() -> None:
    sampler = Sampler(10, 4, seed=0)
    assert [len(sampler.batch(step)) for step in range(4)] == [4, 4, 2, 4]
    assert Sampler(3, 8, seed=0).num_batches == 1


def test_a_batch_depends_on_the_step_alone() -> None:
    sampler = Sampler(10, 4, seed=3)
    batches = [sampler.batch(step) for step in range(7)]
    for step in (5, 0, 6, 2):
        assert torch.equal(Sampler(10, 4, seed=3).batch(step), batches[step])
        assert torch.equal(sampler.batch(step), batches[step])
