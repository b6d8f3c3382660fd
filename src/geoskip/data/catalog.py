"""The data sets that commands and configurations know by name or by path, each with its options.

``geoskip data make`` and ``geoskip train`` offer these options as flags, and a configuration keeps those that were
given as ``data_options``: they are declared here once. Nothing heavy is imported before a set is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What values are called in messages.
KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    list[int]: "whole numbers, such as [28,28]",
    list[str]: 'words, such as ["a","b"]',
}
# Arguments of the loaders in Python that no configuration can hold.
ONLY_IN_PYTHON = ("recipe", "idx_set", "cache")


@dataclass(frozen=True)
class Option:
    """An option of a data set.

    name: also that of the flag, and of the loader's argument.
    kind: one of ``KINDS``.
    help: a phrase.
    default: what holds where it is not given, for the help text.
    least: the smallest number that is accepted.
    is_recipe: whether the data depend on it. A run that is continued may change the others: where files are, and how
        the work is done.
    """

    name: str
    kind: Any
    help: str
    default: Any = None
    least: int | None = None
    is_recipe: bool = True

    def checked(self, value: Any) -> Any:
        """The value as the loader takes it; ValueError unless it is of the kind."""
        if not self._fits(value):
            raise ValueError(f"data_options.{self.name}: expected {KINDS[self.kind]}, got {value!r}")
        if self.least is not None and value < self.least:
            raise ValueError(f"data_options.{self.name}: expected {self.least} or more, got {value}")
        return _user_path(value) if self.kind is Path else value

    def _fits(self, value: Any) -> bool:
        if self.kind in (list[int], list[str]):
            inner = self.kind.__args__[0]
            return isinstance(value, list | tuple) and all(type(entry) is inner for entry in value)
        accepted = {float: (float, int), Path: (str, Path)}.get(self.kind, (self.kind,))
        return isinstance(value, accepted) and (self.kind is bool or not isinstance(value, bool))

    def parsed(self, text: str) -> Any:
        """A list from the text of a flag, such as ``28,28``."""
        if self.kind not in (list[int], list[str]):
            return text
        try:
            return [self.kind.__args__[0](word.strip()) for word in text.split(",")]
        except ValueError:
            raise ValueError(f"--{self.name.replace('_', '-')}: expected {KINDS[self.kind]}, got {text!r}") from None


@dataclass(frozen=True)
class DataSet:
    """A data set, or a kind of folder: the task that trains on it, what it is, how it is loaded, and its options."""

    task: str
    about: str
    load: Callable[..., Any]
    options: tuple[Option, ...] = ()

    def read(self, name: str, given: Mapping[str, Any], *folder: Path) -> Any:
        """Load it with the options that were given; ValueError names one that it does not have or that does not fit."""
        known = {option.name: option for option in self.options}
        for option in given:
            if option in ONLY_IN_PYTHON or (option in OPTIONS and option not in known):
                raise ValueError(f"data_options.{option}: {name} has no such option; it has {', '.join(known)}")
        values = {key: known[key].checked(value) if key in known else value for key, value in given.items()}
        try:
            return self.load(*folder, **values)
        except TypeError as error:
            # Python's own words name the argument.
            if "keyword argument" not in str(error):
                raise
            raise ValueError(f"data_options: {name}: {error}") from error


def _faces(**given: Any) -> Any:
    from geoskip.data.faces import faces

    return faces(**given)


def _mixed_faces(**given: Any) -> Any:
    from geoskip.data.mixed_faces import mixed_faces

    return mixed_faces(**given)


def _moving_bodies(**given: Any) -> Any:
    from geoskip.data.moving_bodies import moving_bodies

    return moving_bodies(**given)


def _coma(place: Path | None = None, **given: Any) -> Any:
    from geoskip.data.coma import coma

    return coma(place, **given)


def _bodies(**given: Any) -> Any:
    from geoskip.data.bodies import bodies

    return bodies(**given)


def _remeshed_bodies(**given: Any) -> Any:
    from geoskip.data.remeshed_bodies import remeshed_bodies

    return remeshed_bodies(**given)


def _faust(place: Path | None = None, **given: Any) -> Any:
    from geoskip.data.faust import faust

    return faust(place, **given)


def _mnist(**given: Any) -> Any:
    from geoskip.data.mnist import mnist

    return mnist(**_with_recipe(given))


def _fashion(**given: Any) -> Any:
    from geoskip.data.mnist import FASHION, mnist

    return mnist(idx_set=FASHION, **_with_recipe(given))


def _published(**given: Any) -> Any:
    from geoskip.data.published import published_superpixels

    return published_superpixels(**given)


def _mesh_folder(folder: Path, **given: Any) -> Any:
    from geoskip.data.folder import mesh_folder

    return mesh_folder(folder, **_with_unit(folder, given))


def _correspondence_folder(folder: Path, **given: Any) -> Any:
    from geoskip.data.folder import correspondence_folder

    return correspondence_folder(folder, **_with_unit(folder, given))


def _image_folder(folder: Path, **given: Any) -> Any:
    from geoskip.data.images import image_folder
    from geoskip.data.superpixels import read_superpixels

    if (folder / "manifest.json").is_file():  # an entry of the cache, which may come from another machine
        if given:
            raise ValueError(
                f"data_options.{min(given)}: {folder} holds graphs that are already made; give the folder of images, "
                "or leave the option out"
            )
        return read_superpixels(folder)
    return image_folder(folder, **_with_recipe(given))


def _with_recipe(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a loader of superpixels, whose recipe the options nodes, degree and compactness make up."""
    from geoskip.data.slic import Slic
    from geoskip.data.superpixels import Recipe

    slic = {"num_segments": "nodes", "compactness": "compactness"}
    parts = {argument: given[option] for argument, option in slic.items() if option in given}
    degree = {"mean_degree": given["degree"]} if "degree" in given else {}
    names = {"download": "allow_download"}
    other = {names.get(k, k): v for k, v in given.items() if k not in ("nodes", "compactness", "degree")}
    return {**other, "recipe": Recipe(Slic(**parts), **degree)} if parts or degree else other


def _with_unit(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    if "unit_mm" not in given:
        raise ValueError(
            f"data_options.unit_mm: say how many millimetres a unit of the meshes in {folder} is, so that errors can "
            "be told: --unit-mm 1000 for metres"
        )
    return given


_SEED = Option("seed", int, "Seed of what is generated", 0, least=0)
_SPLIT_HELP = "What is left for the test: interpolation (mixed-faces: takes, or people), or an expression"
_SPLIT = Option("split", str, _SPLIT_HELP, "interpolation")
_PEOPLE = "Different people"
_FRAMES_PER_TAKE = "Meshes of each take"
_PLACE = Option("place", Path, "The owners' archive, or the folder it unpacks to", is_recipe=False)
_UNIT = Option("unit_mm", float, "Millimetres per unit of the meshes: 1000 for metres")
_TEST = Option("test", list[str], "Names of the files for the test", "the first of every ten")
_SUPERPIXELS = (
    Option("nodes", int, "Superpixels of each image, exactly", 75, least=1),
    Option("degree", float, "Mean number of neighbours", "18.57, as in the published set"),
    Option("compactness", float, "Weight of distance against intensity in SLIC", 0.25),
    Option("workers", int, "Processes", "one per core", least=1, is_recipe=False),
)
_IDX = (
    *_SUPERPIXELS,
    Option("folder", Path, "Folder with the four IDX files", is_recipe=False),
    Option("download", bool, "Fetch the images where they are missing", True, is_recipe=False),
)

DATA_SETS: dict[str, DataSet] = {
    "faces": DataSet(
        "reconstruction",
        "Generated faces in the manner of CoMA (needs the extra: people).",
        _faces,
        (
            Option("subjects", int, "Different people", 12, least=1),
            Option("expressions", list[str], "Expressions of each subject", "all 12"),
            Option("frames", int, "Meshes in all", 20_466, least=1),
            _SEED,
            _SPLIT,
        ),
    ),
    "mixed-faces": DataSet(
        "reconstruction",
        "Generated faces with mixed expressions, as hard as CoMA (needs the extra: people).",
        _mixed_faces,
        (
            Option("people", int, _PEOPLE, 40, least=1),
            Option("takes", int, "Takes of each person", 25, least=1),
            Option("frames_per_take", int, _FRAMES_PER_TAKE, 10, least=1),
            _SEED,
            Option("split", str, _SPLIT_HELP, "takes"),
        ),
    ),
    "moving-bodies": DataSet(
        "reconstruction",
        "Generated bodies in motion (needs the extra: people).",
        _moving_bodies,
        (
            Option("people", int, _PEOPLE, 8, least=1),
            Option("frames_per_take", int, _FRAMES_PER_TAKE, 90, least=1),
            Option("verts", int, "Vertices of each mesh", 2500, least=4),
            _SEED,
        ),
    ),
    "coma": DataSet("reconstruction", "CoMA, read from COMA_data.zip.", _coma, (_PLACE, _SPLIT)),
    "bodies": DataSet(
        "correspondence",
        "Generated bodies in the manner of FAUST (needs the extra: people).",
        _bodies,
        (
            Option("identities", int, "Different people", 10, least=1),
            Option("poses", int, "Poses of each", 10, least=1),
            Option("verts", int, "Vertices of each mesh", 6890, least=4),
            _SEED,
        ),
    ),
    "remeshed-bodies": DataSet(
        "correspondence",
        "Generated bodies with a connectivity each (needs the extra: people).",
        _remeshed_bodies,
        (
            Option("people", int, _PEOPLE, 32, least=1),
            Option("poses", int, "Poses of each", 5, least=1),
            Option("verts", int, "Vertices of each mesh", 6890, least=4),
            _SEED,
        ),
    ),
    "faust": DataSet("correspondence", "FAUST, read from MPI-FAUST.zip.", _faust, (_PLACE,)),
    "superpixels": DataSet("classification", "MNIST as graphs of superpixels.", _mnist, _IDX),
    "mnist": DataSet("classification", "MNIST as graphs of superpixels.", _mnist, _IDX),
    "fashion-mnist": DataSet("classification", "Fashion-MNIST as graphs of superpixels.", _fashion, _IDX),
    "published-superpixels": DataSet(
        "classification",
        "The MNIST superpixels of Monti et al.",
        _published,
        (_PLACE, Option("num_coarsenings", int, "Coarser levels", 2, least=0), _SEED),
    ),
}
FOLDERS: dict[str, DataSet] = {
    "reconstruction": DataSet(
        "reconstruction",
        "Meshes of one connectivity.",
        _mesh_folder,
        (_UNIT, _TEST, Option("template", Path, "A mesh of the same connectivity at rest")),
    ),
    "correspondence": DataSet(
        "correspondence", "Meshes, each with the file of its correspondences.", _correspondence_folder, (_UNIT, _TEST)
    ),
    "classification": DataSet(
        "classification",
        "Images, one subfolder per class.",
        _image_folder,
        (
            *_SUPERPIXELS,
            Option("size", list[int], "HEIGHT,WIDTH that images are scaled to"),
            Option("colour", bool, "Three features, the mean of each channel", False),
            Option("test_every", int, "Every so many-th image of each class is for the test", 5, least=2),
        ),
    ),
}
# All options by name: one name means the same in every set.
OPTIONS: dict[str, Option] = {
    option.name: option for found in (*DATA_SETS.values(), *FOLDERS.values()) for option in found.options
}


def names_for(task: str) -> list[str]:
    """The data sets that a task trains on."""
    return [name for name, found in DATA_SETS.items() if found.task == task]


def absolute(data: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Data and options with every path that exists made absolute, so that they can be found from another folder."""

    def resolved(value: str) -> str:
        path = _user_path(value)
        return str(path.resolve()) if path.exists() else value

    paths = {name for name, option in OPTIONS.items() if option.kind is Path}
    found = {
        name: resolved(value) if name in paths and isinstance(value, str) else value for name, value in options.items()
    }
    return (data if data in DATA_SETS else resolved(data)), found


def _user_path(value: str | Path) -> Path:
    """Imported late: the command line reads this catalog before it needs anything else."""
    from geoskip.records.files import expand_user

    return expand_user(value)
