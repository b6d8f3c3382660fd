"""All data sets: the built-in ones with their facts, and how a set is found by name or by path.

A data set of another package is found by ``module:Name``, or by the entry points ``geoskip.data`` of the package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from inspect import getsourcefile
from pathlib import Path
from typing import Any

from geoskip.data.declaration import DataSet, IdxDataSet, MissingData, Option, expand_path
from geoskip.registry import Registry, unknown_name

_SEED = Option("seed", int, "Seed of the generator", 0, least=0)
_SPLIT_HELP = "What is held out for the test: interpolation, takes, people, or the name of an expression"
_SPLIT = Option("split", str, _SPLIT_HELP, "interpolation")
_PEOPLE = partial(Option, "people", int, "Number of people", least=1)
_POSES = partial(Option, "poses", int, "Poses per person", least=1)
_FRAMES = partial(Option, "frames_per_take", int, "Meshes per take", least=1)
_VERTICES = partial(Option, "num_vertices", int, "Vertices per mesh", least=4)
_PATH = Option("path", Path, "The original archive, or its unpacked folder", is_recipe=False)
_UNIT = Option("unit_mm", float, "Millimeters per unit of the meshes: 1000 for meters", required=True)
_TEST = Option(
    "test",
    list[str],
    "Test files or subfolders, or patterns such as *_s03_*, separated by commas",
    "the first of every ten",
)
_SUPERPIXELS = (
    Option("nodes", int, "Superpixels per image, exactly", 75, least=1),
    Option("degree", float, "Mean number of neighbors", "18.57, as in the published set"),
    Option("compactness", float, "Weight of distance against intensity in SLIC", 0.25),
    Option("workers", int, "Number of processes", "one per core", least=1, is_recipe=False),
)
_IDX = (
    *_SUPERPIXELS,
    Option("folder", Path, "Folder with the four IDX files", is_recipe=False),
    Option("download", bool, "Download the images if they are missing", True, is_recipe=False),
)

FACES = DataSet(
    name="faces",
    task="reconstruction",
    title="Generated faces like those of CoMA",
    function="geoskip.data.generated_faces:faces",
    options=(
        _PEOPLE(default=12),
        Option("expressions", list[str], "Names of expressions, separated by commas", "all 12"),
        Option("frames", int, "Total number of meshes", 20_466, least=1),
        _SEED,
        _SPLIT,
    ),
    extra="people",
)
MIXED_FACES = DataSet(
    name="mixed-faces",
    task="reconstruction",
    title="Generated faces with mixed expressions, harder than faces",
    function="geoskip.data.generated_faces:mixed_faces",
    options=(
        _PEOPLE(default=40),
        Option("takes", int, "Takes per person", 25, least=1),
        _FRAMES(default=10),
        _SEED,
        replace(_SPLIT, default="takes"),
    ),
    extra="people",
)
MOVING_BODIES = DataSet(
    name="moving-bodies",
    task="reconstruction",
    title="Generated bodies in motion",
    function="geoskip.data.generated_bodies:moving_bodies",
    options=(_PEOPLE(default=8), _FRAMES(default=90), _VERTICES(default=2500), _SEED),
    extra="people",
    comparable=False,
)
COMA = DataSet(
    name="coma",
    task="reconstruction",
    title="CoMA faces",
    function="geoskip.data.mesh_files:coma",
    options=(_PATH, _SPLIT),
    files=("COMA_data.zip", "COMA_data"),
    how="Free for research after registration at https://coma.is.tue.mpg.de: download the registered meshes, "
    "COMA_data.zip.",
)
BODIES = DataSet(
    name="bodies",
    task="correspondence",
    title="Generated bodies like those of FAUST",
    function="geoskip.data.generated_bodies:bodies",
    options=(_PEOPLE(default=10), _POSES(default=10), _VERTICES(default=6890), _SEED),
    extra="people",
)
REMESHED_BODIES = DataSet(
    name="remeshed-bodies",
    task="correspondence",
    title="Generated bodies, each with its own connectivity",
    function="geoskip.data.generated_bodies:remeshed_bodies",
    options=(_PEOPLE(default=32), _POSES(default=5), _VERTICES(default=6890), _SEED),
    extra="people",
)
FAUST = DataSet(
    name="faust",
    task="correspondence",
    title="MPI-FAUST bodies",
    function="geoskip.data.mesh_files:faust",
    options=(_PATH,),
    files=("MPI-FAUST.zip", "MPI-FAUST"),
    how="Free for research after registration at https://faust-leaderboard.is.tuebingen.mpg.de: download "
    "MPI-FAUST.zip.",
)
MNIST = IdxDataSet(
    name="mnist",
    task="classification",
    title="MNIST superpixels",
    function="geoskip.data.idx:mnist",
    options=_IDX,
    extra="images",
    url="https://ossci-datasets.s3.amazonaws.com/mnist",
)
FASHION_MNIST = IdxDataSet(
    name="fashion-mnist",
    task="classification",
    title="Fashion-MNIST superpixels",
    function="geoskip.data.idx:fashion_mnist",
    options=_IDX,
    extra="images",
    url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
)
PUBLISHED_SUPERPIXELS = DataSet(
    name="published-superpixels",
    task="classification",
    title="MNIST superpixels of Monti et al.",
    function="geoskip.data.pyg_graphs:published_superpixels",
    options=(_PATH, Option("num_coarsenings", int, "Number of coarser levels", 2, least=0), _SEED),
    files=("MNISTSuperpixels.zip", "MNISTSuperpixels.pt"),
    how="Download https://data.pyg.org/datasets/MNISTSuperpixels.zip.",
)
_MESHES = (FACES, MIXED_FACES, MOVING_BODIES, COMA, BODIES, REMESHED_BODIES, FAUST)
BUILT_IN = {data_set.name: data_set for data_set in (*_MESHES, MNIST, FASHION_MNIST, PUBLISHED_SUPERPIXELS)}
DATA_SETS: Registry[DataSet] = Registry(
    "data",
    {
        **BUILT_IN,
        "superpixels": MNIST,  # as the paper calls it
    },
    entry_points="geoskip.data",
)

# What a path can hold, by task; the function takes the path as its first argument.
FOLDERS: dict[str, DataSet] = {
    folder.task: folder
    for folder in (
        DataSet(
            name="meshes",
            task="reconstruction",
            title="Meshes with one connectivity",
            function="geoskip.data.mesh_files:mesh_folder",
            options=(_UNIT, _TEST, Option("template", Path, "A mesh of the same connectivity at rest")),
        ),
        DataSet(
            name="correspondences",
            task="correspondence",
            title="Meshes, each with a file of its correspondences",
            function="geoskip.data.mesh_files:correspondence_folder",
            options=(_UNIT, _TEST),
        ),
        DataSet(
            name="images",
            task="classification",
            title="Images, one subfolder per class",
            function="geoskip.data.image_sets:image_folder",
            options=(
                *_SUPERPIXELS,
                Option("size", list[int], "HEIGHT,WIDTH that images are scaled to"),
                Option(
                    "color",
                    bool,
                    "Three features per superpixel, the mean of each channel, instead of the mean intensity",
                    False,
                ),
                Option("test_every", int, "One of every so many images of a class is for the test", 5, least=2),
            ),
        ),
    )
}


def _all_options() -> dict[str, Option]:
    """The options of all built-in sets by name; a name means the same everywhere. The help lists the sets with it."""
    sets = BUILT_IN | {f"a folder of {folder.name}": folder for folder in FOLDERS.values()}
    by_name: dict[str, dict[str, Option]] = {}
    for name, data_set in sets.items():
        for option in data_set.options:
            by_name.setdefault(option.name, {})[name] = option
    merged = {}
    for key, by_set in by_name.items():
        first = next(iter(by_set.values()))
        defaults = {name: option.default for name, option in by_set.items()}
        same = len(set(defaults.values())) == 1
        listed = ", ".join(by_set if same else (f"{name} {default}" for name, default in defaults.items()))
        text = f"{first.help} ({listed})"
        merged[key] = replace(first, help=text, default=first.default if same else None)
    return merged


OPTIONS = _all_options()


def find_data_set(name: str) -> DataSet:
    """A data set by its name, the entry point of an installed package, or ``module:Name``."""
    data_set = DATA_SETS.get(name)
    if not isinstance(data_set, DataSet):
        raise ValueError(f"data: {name} is not a data set; declare it with the decorator geoskip.data.data_set")
    return data_set


def load_data(data: str, options: Mapping[str, Any], task: str) -> Any:
    """Load the data set or the path that a configuration names; ``task`` is the task that its data must be for."""
    path, names = expand_path(data), [name for name, data_set in BUILT_IN.items() if data_set.task == task]
    if data in DATA_SETS or (":" in data and not path.exists()):
        data_set = find_data_set(data)
        if data_set.task != task:
            raise ValueError(
                f"data: {data} is for {data_set.task}; {task} trains on {', '.join([*names, 'or a path'])}"
            )
        return data_set.read(options)
    if path.exists() and task in FOLDERS:
        return FOLDERS[task].read(options, path)
    if os.sep in data or "/" in data:
        raise ValueError(f"data: there is no such path: {data}; pass the current location of the data")
    raise ValueError(f"data: there is no such path or data set: {unknown_name(data, names)}")


def absolute(data: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Data and options with every path that exists made absolute, so that they can be found from another folder."""

    def resolved(value: Any) -> Any:
        return str(path.resolve()) if isinstance(value, str) and (path := expand_path(value)).exists() else value

    known = OPTIONS if data in BUILT_IN or ":" not in data else {o.name: o for o in find_data_set(data).options}
    paths = {name for name, option in known.items() if option.kind is Path}
    values = {name: resolved(value) if name in paths else value for name, value in options.items()}
    return (data if data in DATA_SETS else resolved(data)), values


@dataclass(frozen=True)
class Status:
    """Where a data set is; or, if ``path`` is None, how to get it."""

    name: str
    path: Path | None
    message: str


def check_data(names: Sequence[str] | None = None, cache: Path | None = None) -> list[Status]:
    """The status of the named sets; by default of the built-in sets and those of installed packages."""
    chosen = names or [*BUILT_IN, *(name for name in DATA_SETS.names() if name not in (*BUILT_IN, "superpixels"))]
    return [_status(find_data_set(name), cache) for name in chosen]


def _status(data_set: DataSet, cache: Path | None) -> Status:
    from geoskip.data.cache import cache_root, entries

    package = {"people": "anny", "images": "skimage"}.get(data_set.extra)
    first = f" (first: pip install 'geoskip[{data_set.extra}]')" if package and not find_spec(package) else ""
    if data_set.how:
        try:
            return Status(data_set.name, data_set.find(), f"{data_set.title}{first}")
        except MissingData as missing:
            return Status(data_set.name, None, f"{missing}{first}")
    cached = [entry for entry in entries(cache) if entry.kind == data_set.name and not entry.fault]
    if cached:
        recipes = "; ".join(describe_recipe(entry.recipe) for entry in cached)
        return Status(data_set.name, (cache or cache_root()) / cached[0].name, f"{data_set.title}: {recipes}")
    if isinstance(data_set.function, str):
        return Status(data_set.name, None, f"Not made yet: geoskip data make {data_set.name}{first}")
    return Status(data_set.name, Path(getsourcefile(data_set.function) or ""), f"{data_set.title}{first}")


def describe_recipe(recipe: Mapping[str, Any]) -> str:
    """The recipe of a cache entry in a few words: ``subjects=12 expressions=12 frames=20466 seed=0``."""
    return " ".join(_words("", {key: value for key, value in recipe.items() if key != "version"}))


def _words(prefix: str, value: Any) -> list[str]:
    """Numbers as they are, lists by their length, checksums by their beginning; patterns of names are left out."""
    if isinstance(value, Mapping):
        return [word for key, inner in value.items() for word in _words(key, inner)]
    if isinstance(value, list | tuple):
        return [f"{prefix}={len(value)}"]
    return [f"{prefix}={str(value)[:12]}"] if re.fullmatch(r"[\w .+-]*", str(value)) else []
