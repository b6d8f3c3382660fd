"""Where the data of others lies, and what to do when it is not there."""

import os
from dataclasses import dataclass
from pathlib import Path

from geoskip.records.files import expand_user


class MissingData(FileNotFoundError):
    """Data that has to be fetched first; the message says what, from where, and where to put it."""


@dataclass(frozen=True)
class Source:
    """A dataset of others.

    name: also the name of its folder in the data folder.
    title: what it is.
    places: what may lie in that folder, best first: an archive as its owners ship it, or what it unpacks to.
    how: how to get it, in a sentence or two.
    """

    name: str
    title: str
    places: tuple[str, ...]
    how: str

    @property
    def folder(self) -> Path:
        return data_root() / self.name

    def find(self, place: str | Path | None = None) -> Path:
        """Where it is: ``place`` if given, otherwise the first of ``places`` that exists; MissingData if nowhere."""
        candidates = [Path(place)] if place is not None else [self.folder / name for name in self.places]
        for candidate in candidates:
            if candidate.exists():
                return candidate
        raise MissingData(
            f"{self.title}: not found at {' or '.join(map(str, candidates))}. {self.how} "
            f"Put it at {self.folder / self.places[0]}, or say where it is."
        )


COMA = Source(
    "coma",
    "CoMA faces",
    ("COMA_data.zip", "COMA_data"),
    "Free for research after registration at https://coma.is.tue.mpg.de: fetch the registered meshes, COMA_data.zip.",
)
FAUST = Source(
    "faust",
    "MPI-FAUST bodies",
    ("MPI-FAUST.zip", "MPI-FAUST"),
    "Free for research after registration at https://faust-leaderboard.is.tuebingen.mpg.de: fetch MPI-FAUST.zip.",
)
PUBLISHED_SUPERPIXELS = Source(
    "published-superpixels",
    "MNIST superpixels of Monti et al.",
    ("MNISTSuperpixels.zip", "MNISTSuperpixels.pt"),
    "Fetch https://data.pyg.org/datasets/MNISTSuperpixels.zip.",
)


def data_root() -> Path:
    """``$GEOSKIP_DATA``, or ``geoskip`` in the user's data folder (``$XDG_DATA_HOME`` or ``~/.local/share``)."""
    if chosen := os.environ.get("GEOSKIP_DATA"):
        return expand_user(chosen)
    xdg = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".local" / "share") / "geoskip"
