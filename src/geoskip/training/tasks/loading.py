"""From the name of a data set, or a path, to the set that a task trains on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoskip.training.checks import unknown_name
from geoskip.training.config import Config


def _faces(**options: Any) -> Any:
    from geoskip.data.faces import faces

    return faces(**options)


def _coma(**options: Any) -> Any:
    from geoskip.data.coma import coma

    return coma(**options)


def _bodies(**options: Any) -> Any:
    from geoskip.data.bodies import bodies

    return bodies(**options)


def _faust(**options: Any) -> Any:
    from geoskip.data.faust import faust

    return faust(**options)


def _superpixels(**options: Any) -> Any:
    from geoskip.data.mnist import mnist

    return mnist(**options)


def _fashion(**options: Any) -> Any:
    from geoskip.data.mnist import FASHION, mnist

    return mnist(idx_set=FASHION, **options)


def _published(**options: Any) -> Any:
    from geoskip.data.published import published_superpixels

    return published_superpixels(**options)


def _mesh_folder(place: Path, **options: Any) -> Any:
    from geoskip.data.folder import mesh_folder

    return mesh_folder(place, **_with_unit(place, options))


def _correspondence_folder(place: Path, **options: Any) -> Any:
    from geoskip.data.folder import correspondence_folder

    return correspondence_folder(place, **_with_unit(place, options))


def _image_folder(place: Path, **options: Any) -> Any:
    from geoskip.data.images import image_folder
    from geoskip.data.superpixels import read_superpixels

    # An entry of the cache, which may come from another machine.
    return read_superpixels(place) if (place / "manifest.json").is_file() else image_folder(place, **options)


def _with_unit(place: Path, options: dict[str, Any]) -> dict[str, Any]:
    if "unit_mm" not in options:
        raise ValueError(
            f"data_options.unit_mm: say how many millimetres a unit of the meshes in {place} is, so that errors can be "
            "told: --set data_options.unit_mm=1000 for metres"
        )
    return options


Loader = Callable[..., Any]
NAMED: dict[str, dict[str, Loader]] = {
    "reconstruction": {"faces": _faces, "coma": _coma},
    "correspondence": {"bodies": _bodies, "faust": _faust},
    "classification": {
        "superpixels": _superpixels,
        "mnist": _superpixels,
        "fashion-mnist": _fashion,
        "published-superpixels": _published,
    },
}
FOLDERS: dict[str, Loader] = {
    "reconstruction": _mesh_folder,
    "correspondence": _correspondence_folder,
    "classification": _image_folder,
}


def load_data(config: Config) -> Any:
    """The set that ``config.data`` names; ValueError if it is neither a set for the task nor a path."""
    named, path = NAMED[config.task], Path(config.data).expanduser()
    if config.data in named:
        return _call(named[config.data], config)
    for task, others in NAMED.items():
        if config.data in others:
            raise ValueError(f"data: {config.data} is for {task}; {config.task} trains on {_choices(named)}")
    if not path.exists():
        raise ValueError(f"data: there is no such path, and as a set it is an {unknown_name(config.data, list(named))}")
    return _call(FOLDERS[config.task], config, path)


def _call(loader: Loader, config: Config, *place: Path) -> Any:
    try:
        return loader(*place, **config.data_options)
    except TypeError as error:
        # Python's own words name the argument.
        if "keyword argument" not in str(error):
            raise
        raise ValueError(f"data_options: {config.data}: {error}") from error


def _choices(named: dict[str, Loader]) -> str:
    return f"{', '.join(named)}, or a path"
