"""``geoskip data make``: data sets made or read once, and kept in the cache."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.data_options import given_options, offering, train_command
from geoskip.cli.errors import Choices
from geoskip.cli.showing import showing_log
from geoskip.data.catalog import BUILT_IN, DATA_SETS, FOLDERS, find_data_set
from geoskip.data.declaration import DataSet


class DataSetCommands(Choices):
    """A command for each data set; those of other packages are given as ``module:Name``, or by their entry point."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = super().get_command(ctx, cmd_name)
        if known is not None or not (":" in cmd_name or cmd_name in DATA_SETS):
            return known
        single = typer.Typer()
        _add_command(single, cmd_name, find_data_set(cmd_name))
        return typer.main.get_command(single)


make = typer.Typer(
    cls=DataSetCommands, no_args_is_help=True, help="Make or read a data set once and keep it in the cache."
)
Distances = Annotated[bool, typer.Option("--geodesics", help="Also all geodesic distances on the target (190 MB).")]
Place = Annotated[Path | None, typer.Argument(help="The owners' archive, or the folder it unpacks to.")]
IMAGES = ("mnist", "fashion-mnist")


def _add_command(commands: typer.Typer, name: str, data_set: DataSet) -> None:
    """``geoskip data make NAME``, with the options of the data set."""
    options = [option for option in data_set.options if option.name != "place"]
    matched, stored = data_set.task == "correspondence", len(options) < len(data_set.options)

    def run(place: Path | None, geodesics: bool, values: dict[str, Any]) -> None:
        given = given_options(options, values) | ({} if place is None else {"place": str(place)})
        made = _make(lambda: data_set.read(given), train_command(data_set.task, name, given))
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
    commands.command(name)(offering(options, chosen))


for _name, _data_set in BUILT_IN.items():
    if _data_set.task != "classification":
        _add_command(make, _name, _data_set)


def superpixels(
    images: Annotated[str, typer.Argument(help="mnist, fashion-mnist, or a folder of images.")] = "mnist",
    **values: Any,
) -> None:
    """Images as graphs of superpixels (needs the extra: images)."""
    given = given_options(SUPERPIXELS.values(), values)
    named = images in IMAGES

    def build() -> Any:
        if named:
            return BUILT_IN[images].read(given)
        return FOLDERS["classification"].read(given, Path(images))

    _make(build, train_command("classification", images, given))


SUPERPIXELS = {option.name: option for option in (*BUILT_IN["mnist"].options, *FOLDERS["classification"].options)}
make.command("superpixels")(offering(SUPERPIXELS.values(), superpixels))


def _make(build: Callable[[], Any], train: str) -> Any:
    from geoskip.data.cache import cache_root

    made, seconds = _timed(build)
    parts = f"{len(made.split.train):,} for training, {len(made.split.test):,} for the test"
    typer.echo(f"{_summary(made)}; {parts}; kept in {cache_root()} ({seconds:.1f} s)")
    typer.echo(f"train on it with: {train}")
    return made


def _summary(made: Any) -> str:
    if hasattr(made, "levels"):
        level = made.levels[0]
        edges, nodes = level.edges.shape[1] / len(made), int(level.offsets.diff().max())
        return f"{len(made):,} graphs of {nodes} vertices and {edges:,.0f} directed edges on the average"
    template = made.target if hasattr(made, "target") else made.template
    return f"{len(made):,} meshes of {template.num_vertices:,} vertices, one unit is {made.unit_mm:g} mm"


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
