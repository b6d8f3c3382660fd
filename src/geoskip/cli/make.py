"""``geoskip data make``: data sets made or read once, and kept in the cache."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.data_options import given_options, offering, train_command
from geoskip.cli.errors import Choices
from geoskip.cli.showing import showing_log
from geoskip.data.catalog import DATA_SETS, FOLDERS

make = typer.Typer(cls=Choices, no_args_is_help=True, help="Make or read a data set once and keep it in the cache.")
Distances = Annotated[bool, typer.Option("--geodesics", help="Also all geodesic distances on the target (190 MB).")]
Place = Annotated[Path | None, typer.Argument(help="The owners' archive, or the folder it unpacks to.")]
IMAGES = ("mnist", "fashion-mnist")


def _command(name: str) -> None:
    """``geoskip data make NAME``, with the options of the data set."""
    data_set = DATA_SETS[name]
    options = [option for option in data_set.options if option.name != "place"]
    matched, stored = data_set.task == "correspondence", len(options) < len(data_set.options)

    def run(place: Path | None, geodesics: bool, values: dict[str, Any]) -> None:
        given = given_options(options, values) | ({} if place is None else {"place": str(place)})
        made = _meshes(lambda: data_set.read(name, given), train_command(data_set.task, name, given))
        _geodesics(made, geodesics)

    def generated(**values: Any) -> None:
        run(None, False, values)

    def generated_pairs(geodesics: Distances = False, **values: Any) -> None:
        run(None, geodesics, values)

    def read(place: Place = None, **values: Any) -> None:
        run(place, False, values)

    def read_pairs(place: Place = None, geodesics: Distances = False, **values: Any) -> None:
        run(place, geodesics, values)

    chosen = (read_pairs if matched else read) if stored else (generated_pairs if matched else generated)
    chosen.__doc__ = data_set.about
    make.command(name)(offering(options, chosen))


for _name, _data_set in DATA_SETS.items():
    if _data_set.task != "classification":
        _command(_name)


def superpixels(
    images: Annotated[str, typer.Argument(help="mnist, fashion-mnist, or a folder of images.")] = "mnist",
    **values: Any,
) -> None:
    """Images as graphs of superpixels (needs the extra: images)."""
    given = given_options(SUPERPIXELS.values(), values)
    named = images in IMAGES

    def build() -> Any:
        if named:
            return DATA_SETS[images].read(images, given)
        return FOLDERS["classification"].read(images, given, Path(images))

    made, seconds = _timed(build)
    level = made.levels[0]
    edges, nodes = level.edges.shape[1] / len(made), int(level.offsets.diff().max())
    what = f"{len(made):,} graphs of {nodes} vertices and {edges:,.0f} directed edges on the average"
    _tell(what, made, seconds, train_command("classification", images, given))


SUPERPIXELS = {option.name: option for option in (*DATA_SETS["mnist"].options, *FOLDERS["classification"].options)}
make.command("superpixels")(offering(SUPERPIXELS.values(), superpixels))


def _meshes(build: Callable[[], Any], train: str) -> Any:
    made, seconds = _timed(build)
    template = made.target if hasattr(made, "target") else made.template
    size = f"{len(made):,} meshes of {template.num_vertices:,} vertices, one unit is {made.unit_mm:g} mm"
    _tell(size, made, seconds, train)
    return made


def _geodesics(made: Any, wanted: bool) -> None:
    if not wanted:
        return
    from geoskip.data.geodesics import geodesics

    distances, seconds = _timed(lambda: geodesics(made.target))
    typer.echo(f"geodesics: a largest distance of {distances.max() * made.unit_mm:.0f} mm ({seconds:.1f} s)")


def _timed(build: Callable[[], Any]) -> tuple[Any, float]:
    """What ``build`` makes, and the seconds it took."""
    start = time.perf_counter()
    with showing_log():
        return build(), time.perf_counter() - start


def _tell(what: str, made: Any, seconds: float, train: str) -> None:
    from geoskip.data.cache import cache_root

    parts = f"{len(made.split.train):,} for training, {len(made.split.test):,} for the test"
    typer.echo(f"{what}; {parts}; kept in {cache_root()} ({seconds:.1f} s)")
    typer.echo(f"train on it with: {train}")
