"""The order of the items."""

from __future__ import annotations

import pytest
import torch

from geoskip.training.session import Sampler


def epoch_of(sampler: Sampler) -> list[int]:
    taken: list[int] = []
    while not sampler.at_end:
        taken += sampler.next().tolist()
    sampler.next_epoch()
    return taken


def test_every_item_once_an_epoch_in_another_order_each_time() -> None:
    sampler = Sampler(10, 4, seed=0)
    first, second = epoch_of(sampler), epoch_of(sampler)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert epoch_of(Sampler(10, 4, seed=0)) == first
    assert epoch_of(Sampler(10, 4, seed=1)) != first


def test_the_last_batch_has_what_is_left() -> None:
    sampler = Sampler(10, 4, seed=0)
    assert [len(sampler.next()) for _ in range(sampler.num_batches)] == [4, 4, 2]
    assert Sampler(3, 8, seed=0).num_batches == 1


def test_a_sampler_goes_on_where_another_stood() -> None:
    one, other = Sampler(10, 4, seed=0), Sampler(10, 4, seed=0)
    epoch_of(one)
    one.next()
    other.load_state(one.state())
    assert torch.equal(one.next(), other.next())


def test_batches_can_be_named_by_step() -> None:
    sampler = Sampler(10, 4, seed=3)
    for step in range(7):
        expected = sampler.batch_at(step)
        assert torch.equal(sampler.next(), expected)
        if sampler.at_end:
            sampler.next_epoch()


def test_a_state_of_another_set_is_refused() -> None:
    with pytest.raises(ValueError, match="over 10 items with seed 0; here are 11 with seed 0"):
        Sampler(11, 4, seed=0).load_state(Sampler(10, 4, seed=0).state())
