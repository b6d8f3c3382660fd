"""Which items of a set are for training and which for the test: declared, over a sorted listing, disjoint."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geoskip.shapes import Bool, Int


@dataclass(frozen=True, eq=False)
class Split:
    """Item numbers for training and for the test, ascending. Other items are used for neither."""

    train: Int[Tensor, " train"]
    test: Int[Tensor, " test"]

    @classmethod
    def by_mask(cls, test: Bool[Tensor, " items"]) -> "Split":
        """Items where ``test`` holds against all others."""
        return cls(torch.nonzero(~test).flatten(), torch.nonzero(test).flatten())

    @classmethod
    def blocks(cls, num_items: int, block: int = 100, num_test: int = 10) -> "Split":
        """The first ``num_test`` of every ``block`` items in a row are the test: CoMA's interpolation."""
        return cls.by_mask(torch.arange(num_items) % block < num_test)

    @classmethod
    def leading(cls, num_items: int, num_train: int) -> "Split":
        """The first ``num_train`` items for training, all others for the test, as for FAUST (80 and 20)."""
        return cls.by_mask(torch.arange(num_items) >= num_train)

    @classmethod
    def of_names(cls, names: Sequence[str], test: Sequence[str]) -> "Split":
        """The named items are the test; a name that is not in the set is refused."""
        if unknown := sorted(set(test) - set(names)):
            raise ValueError(f"test items {', '.join(unknown[:5])} are not in the set")
        chosen = set(test)
        return cls.by_mask(torch.tensor([name in chosen for name in names], dtype=torch.bool))

    def checked(self, num_items: int) -> "Split":
        """Itself, if every item number exists and none is used twice; ValueError if not."""
        both = torch.cat([self.train, self.test])
        if both.numel() and not (both.min() >= 0 and both.max() < num_items):
            raise ValueError(f"a split of {num_items} items names item {int(both.max())} or a negative one")
        if both.unique().numel() != both.numel():
            raise ValueError("a split names an item twice: training and test must not share any")
        return self
