"""Which items of a set are for training, validation and the test: declared, over a sorted listing, disjoint."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from geoskip.shapes import Bool, Int


@dataclass(frozen=True, eq=False)
class Split:
    """Item numbers for training, for the test and for validation, ascending. Other items are not used."""

    train: Int[Tensor, " train"]
    test: Int[Tensor, " test"]
    validation: Int[Tensor, " validation"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

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

    def with_validation(self, share: float, subjects: Sequence[Hashable] | None = None) -> "Split":
        """With about a ``share`` of the training items set aside for validation, the same ones at every call.

        ``subjects`` names the subject of every item of the set. The items of a subject stay together, so that no
        subject is in both parts; without it every item is its own subject.
        """
        if not 0 < share < 1:
            raise ValueError(f"validation: expected a share of the training items above 0 and below 1, got {share}")
        items = self.train.tolist()
        groups = items if subjects is None else [subjects[item] for item in items]
        names = list(dict.fromkeys(groups))
        if len(names) < 2:
            what = "items" if subjects is None else "subjects"
            raise ValueError(f"validation: needs at least 2 training {what} to set some aside, got {len(names)}")
        sizes = Counter(groups)
        chosen: set[Hashable] = set()
        wanted, count = max(1, round(share * len(items))), 0
        for number in np.random.default_rng(0).permutation(len(names))[: len(names) - 1]:
            if count >= wanted:
                break
            chosen.add(names[number])
            count += sizes[names[number]]
        aside = torch.tensor([name in chosen for name in groups], dtype=torch.bool)
        return Split(self.train[~aside], self.test, self.train[aside])

    def checked(self, num_items: int) -> "Split":
        """Itself, if every item number exists and none is used twice; ValueError if not."""
        named = torch.cat([self.train, self.test, self.validation])
        if named.numel() and not (named.min() >= 0 and named.max() < num_items):
            raise ValueError(f"a split of {num_items} items names item {int(named.max())} or a negative one")
        if named.unique().numel() != named.numel():
            raise ValueError("a split names an item twice: training, validation and test must not share any")
        return self
