"""A user's files, read one by one: those that cannot be used are reported all at once, or left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from geoskip.records.memory import is_out_of_memory
from geoskip.records.refusals import refusal

T = TypeVar("T")


class BadFiles(ValueError):
    """Files that cannot be used.

    Attributes:
        faults: what is wrong with each, beginning with its name.
        summary: how many they are, and what to do.
    """

    def __init__(self, faults: Sequence[str], summary: str) -> None:
        self.faults, self.summary = tuple(faults), summary
        super().__init__("\n".join([*faults, summary]))


class Inputs:
    """Files that are all read before anything is written.

    Attributes:
        paths: the files that are still in use.
        skipped: with ``skip_bad``, what is wrong with the files that were left out.
    """

    def __init__(self, paths: Sequence[Path], skip_bad: bool = False) -> None:
        self.paths, self.skip_bad = list(paths), skip_bad
        self.skipped: list[str] = []
        self._count = len(self.paths)

    def each(self, function: Callable[[Path], T]) -> list[T]:
        """``function`` of every file in use. Those it refuses (ValueError, OSError) raise BadFiles together once all
        were tried, or are left out; BadFiles too if none remains. The fault of a single file is raised as it is."""
        results: list[T] = []
        used: list[Path] = []
        faults: list[str] = []
        for path in self.paths:
            try:
                results.append(function(path))
                used.append(path)
            except (ValueError, OSError) as error:
                if self._count == 1 or is_out_of_memory(error):
                    raise
                faults.append(refusal(error) if isinstance(error, OSError) else str(error))
        if faults and not (self.skip_bad and used):
            raise BadFiles([*self.skipped, *faults], self._summary(len(self.skipped) + len(faults)))
        self.paths, self.skipped = used, [*self.skipped, *faults]
        return results

    def _summary(self, bad: int) -> str:
        if bad == self._count:
            return f"none of the {bad:,} files can be used; nothing was written"
        advice = "mend or leave out these, or continue without them with --skip-bad"
        return f"{bad:,} of {self._count:,} files cannot be used; nothing was written: {advice}"
