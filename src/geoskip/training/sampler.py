"""The order in which training items are taken: a function of the seed and the epoch, and a place in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.shapes import Int


class Sampler:
    """Every item once an epoch, in an order of its own each time, ``batch`` items at a time.

    The last batch of an epoch has what is left. The order of an epoch lies on ``device``, so that taking a batch of
    it moves nothing.

    Attributes:
        epoch: epochs done.
        position: items taken of the current one.
    """

    def __init__(self, num_items: int, batch: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.num_items, self.batch, self.seed = num_items, min(batch, num_items), seed
        self.device = torch.device(device)
        self.epoch = self.position = 0
        self._order = self._ordered()

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.num_items // self.batch)

    @property
    def at_end(self) -> bool:
        """Whether all items of the epoch have been taken."""
        return self.position >= self.num_items

    def order(self, epoch: int) -> Int[Tensor, " items"]:
        """All items in the order of an epoch, on the CPU."""
        mixed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0])
        return torch.randperm(self.num_items, generator=torch.Generator().manual_seed(mixed))

    def next(self) -> Int[Tensor, " items"]:
        """The next batch of the epoch; there must be one."""
        items = self._order[self.position : self.position + self.batch]
        self.position += len(items)
        return items

    def next_epoch(self) -> None:
        self.epoch, self.position = self.epoch + 1, 0
        self._order = self._ordered()

    def batch_at(self, step: int) -> Int[Tensor, " items"]:
        """The items of a step of the whole run, counted from 0, on the CPU."""
        epoch, place = divmod(step, self.num_batches)
        return self.order(epoch)[place * self.batch : (place + 1) * self.batch]

    def state(self) -> dict[str, Any]:
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, "num_items": self.num_items}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken; ValueError if that was over another set."""
        if (state["num_items"], state["seed"]) != (self.num_items, self.seed):
            raise ValueError(
                f"the checkpoint is of a run over {state['num_items']} items with seed {state['seed']}; here are "
                f"{self.num_items} with seed {self.seed}, so it cannot go on"
            )
        self.epoch, self.position = state["epoch"], state["position"]
        self._order = self._ordered()

    def _ordered(self) -> Tensor:
        order = self.order(self.epoch)
        if self.device.type == "cuda":
            return order.pin_memory().to(self.device, non_blocking=True)
        return order
