"""What a step holds in memory as it goes on, kept by name."""

from __future__ import annotations

# CUDA's allocator of torch hands out multiples of this.
GRAIN = 512


class Ledger:
    """Bytes held now, by name, and the most that there ever were; chapters count what their book counts."""

    def __init__(self, book: Ledger | None = None) -> None:
        self.held: dict[str, int] = {}
        self.book = book
        self.total = 0
        self.peak = 0

    def hold(self, **num_bytes: int) -> None:
        """Allocate, one after the other."""
        for name, size in num_bytes.items():
            self.held[name] = -(-size // GRAIN) * GRAIN
            self._count(self.held[name])

    def drop(self, *names: str) -> None:
        for name in names:
            self._count(-self.held.pop(name))

    def keep(self, *names: str) -> None:
        """Drop all else."""
        self.drop(*(name for name in tuple(self.held) if name not in names))

    def chapter(self) -> Ledger:
        """For a part of the step, with names of its own."""
        return Ledger(self)

    def _count(self, change: int) -> None:
        self.total += change
        self.peak = max(self.peak, self.total)
        if self.book is not None:
            self.book._count(change)
