"""What :func:`~geoskip.blocks.add_skips` did, as a record that prints as a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrapped:
    """A convolution that was given a skip.

    Attributes:
        name: where it is in the model; several names, with commas, if the model shares it.
        convolution: its class.
        in_channels: channels that the skip maps from; ``None`` if only the first call will tell.
        out_channels: channels that it maps to, likewise.
        num_parameters: parameters that the skip adds, likewise.
    """

    name: str
    convolution: str
    in_channels: int | None
    out_channels: int | None
    num_parameters: int | None


@dataclass(frozen=True)
class Left:
    """A convolution that was left as it is, and why."""

    name: str
    convolution: str
    reason: str


@dataclass(frozen=True)
class SkipSummary:
    """What was wrapped, and what was left, in the model's order."""

    kind: str
    init: str
    wrapped: tuple[Wrapped, ...]
    left: tuple[Left, ...]

    @property
    def num_parameters(self) -> int:
        """Parameters added, as far as they are known."""
        return sum(row.num_parameters or 0 for row in self.wrapped)

    def __str__(self) -> str:
        late = any(row.num_parameters is None for row in self.wrapped)
        more = ", and more at the first call" if late else ""
        skips = "skip" if len(self.wrapped) == 1 else "skips"
        title = f"{len(self.wrapped)} {self.kind} {skips} added: {self.num_parameters:,} parameters{more}"
        rows = [(row.name, row.convolution, *_sizes(row)) for row in self.wrapped]
        rows += [(row.name, row.convolution, f"left: {row.reason}", "") for row in self.left]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
        lines = [f"  {name:<{widths[0]}}  {conv:<{widths[1]}}  {size}{added}" for name, conv, size, added in rows]
        return "\n".join([title, *lines])


def _sizes(row: Wrapped) -> tuple[str, str]:
    if row.num_parameters is None:
        return "channels at the first call", ""
    return f"{row.in_channels} → {row.out_channels}", f", +{row.num_parameters:,}"
