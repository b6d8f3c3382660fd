"""``geoskip data make``: data sets made or read once, and kept in the cache."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.errors import Choices
from geoskip.cli.showing import showing_log

make = typer.Typer(cls=Choices, no_args_is_help=True, help="Make or read a data set once and keep it in the cache.")
Seed = Annotated[int, typer.Option(min=0, help="Another seed, other people.")]
Distances = Annotated[bool, typer.Option("--geodesics", help="Also all geodesic distances on the target (190 MB).")]
Place = Annotated[Path | None, typer.Argument(help="The owners' archive, or the folder it unpacks to.")]


@make.command()
def faces(
    subjects: Annotated[int, typer.Option(min=1, help="Different people.")] = 12,
    frames: Annotated[int, typer.Option(min=1, help="Meshes in all, over 12 expressions of each subject.")] = 20_466,
    seed: Seed = 0,
) -> None:
    """Generated faces in the manner of CoMA (needs the extra: people)."""
    from geoskip.data.faces import faces as make_faces

    _meshes(lambda: make_faces(subjects=subjects, frames=frames, seed=seed))


@make.command()
def bodies(
    identities: Annotated[int, typer.Option(min=1, help="Different people.")] = 10,
    poses: Annotated[int, typer.Option(min=1, help="Poses of each.")] = 10,
    verts: Annotated[int, typer.Option(min=4, help="Vertices of each mesh.")] = 6890,
    seed: Seed = 0,
    geodesics: Distances = False,
) -> None:
    """Generated bodies in the manner of FAUST (needs the extra: people)."""
    from geoskip.data.bodies import bodies as make_bodies

    made = _meshes(lambda: make_bodies(identities=identities, poses=poses, verts=verts, seed=seed))
    _geodesics(made, geodesics)


@make.command()
def coma(place: Place = None) -> None:
    """CoMA, read from COMA_data.zip."""
    from geoskip.data.coma import coma as read_coma

    _meshes(lambda: read_coma(place))


@make.command()
def faust(place: Place = None, geodesics: Distances = False) -> None:
    """FAUST, read from MPI-FAUST.zip."""
    from geoskip.data.faust import faust as read_faust

    _geodesics(_meshes(lambda: read_faust(place)), geodesics)


@make.command()
def superpixels(
    images: Annotated[str, typer.Argument(help="mnist, fashion-mnist, or a folder of images.")] = "mnist",
    nodes: Annotated[int, typer.Option(min=1, help="Superpixels of each image, exactly.")] = 75,
    degree: Annotated[
        float | None, typer.Option(help="Mean number of neighbours; else 18.57, as in the published set.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; else one per core.")] = None,
    download: Annotated[bool, typer.Option(help="Fetch MNIST where it is missing.")] = True,
) -> None:
    """Images as graphs of superpixels (needs the extra: images)."""
    from geoskip.data.images import image_folder
    from geoskip.data.mnist import FASHION, MNIST, mnist
    from geoskip.data.slic import Slic
    from geoskip.data.superpixels import MNIST_DEGREE, Recipe

    recipe = Recipe(Slic(num_segments=nodes), MNIST_DEGREE if degree is None else degree)
    known = {"mnist": MNIST, "fashion-mnist": FASHION}

    def build() -> Any:
        if images in known:
            return mnist(None, recipe, idx_set=known[images], allow_download=download, workers=workers)
        return image_folder(Path(images), recipe, workers=workers)

    made, seconds = _timed(build)
    edges = made.levels[0].edges.shape[1] / len(made)
    _tell(f"{len(made):,} graphs of {nodes} vertices and {edges:,.0f} directed edges on the average", made, seconds)


def _meshes(build: Callable[[], Any]) -> Any:
    made, seconds = _timed(build)
    template = made.target if hasattr(made, "target") else made.template
    size = f"{len(made):,} meshes of {template.num_verts:,} vertices, one unit is {made.unit_mm:g} mm"
    _tell(size, made, seconds)
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


def _tell(what: str, made: Any, seconds: float) -> None:
    from geoskip.data.cache import cache_root

    parts = f"{len(made.split.train):,} for training, {len(made.split.test):,} for the test"
    typer.echo(f"{what}; {parts}; kept in {cache_root()} ({seconds:.1f} s)")
