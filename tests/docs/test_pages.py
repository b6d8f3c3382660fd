"""All pages: commands that exist, snippets that compile, links that lead somewhere, the pictures of the code."""

import re
import runpy
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import typer.main
from PIL import Image

from geoskip.cli import app
from geoskip.data import Split
from geoskip.data.catalog import BUILT_IN
from geoskip.data.generated_bodies import num_training_people
from geoskip.data.mesh_files import FAUST_MESHES, FAUST_TRAIN
from geoskip.data.people import EXPRESSIONS
from tests.docs.pages import DOCS, FENCE, PAGES, blocks, commands, parse_command

IMAGES = sorted((DOCS / "images").resolve().glob("*"))
README, CONTRIBUTING = DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#]+)(#[^)]*)?\)")


def name(path: Path) -> str:
    return path.name


def links(page: Path) -> list[str]:
    prose = FENCE.sub("", page.read_text())
    return [link for link, _ in LINK.findall(prose) if not link.startswith(("https://", "http://"))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist_with_their_options(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language in ("bash", "sh", "console"):
            for words in commands(block):
                if words[0] == "geoskip":
                    parse_command(words)


@pytest.mark.parametrize("words", [["geoskip", "data", "mak"], ["geoskip", "prepare", "x", "--factor", "4"], ["make"]])
def test_a_wrong_command_is_seen(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"no command mak|--factor|not a command"):
        parse_command(words)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_snippets_compile(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language == "python":
            compile(block.text, f"{page.name}:{block.line}", "exec")


@pytest.mark.parametrize("page", [*PAGES, README, CONTRIBUTING], ids=name)
def test_links_lead_to_files(page: Path) -> None:
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, README], ids=name)
def test_what_the_text_names_exists(page: Path) -> None:
    """Modules and objects of geoskip, files of the repository, and commands in the middle of a sentence."""
    assert missing_names(page.read_text()) == []


def missing_names(text: str) -> list[str]:
    objects = set(re.findall(r"(?<![\w/\".])geoskip(?:\.[a-zA-Z_]\w*)+", text))
    paths = set(re.findall(r"`((?:src|tests|benchmarks|docs|results)/[\w./-]+)`", text))
    named = {words.partition(" ")[0] for words in re.findall(r"`geoskip ([a-z][^`]*)`", text)}
    commands_of_app = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [
        *(path for path in sorted(objects) if not is_importable(path)),
        *(path for path in sorted(paths) if not (DOCS.parent / path).exists() and not path.startswith("results/work")),
        *(f"geoskip {command}" for command in sorted(named) if command not in commands_of_app),
    ]


def is_importable(path: str) -> bool:
    """Whether a dotted path is that of a module, or of an object in one."""
    try:
        resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


def test_a_missing_name_is_seen() -> None:
    text = "`geoskip.kernels.absent`, `src/geoskip/absent.py`, `geoskip absent`, `geoskip train …`, `geoskip.add_skips`"
    assert missing_names(text) == ["geoskip.kernels.absent", "src/geoskip/absent.py", "geoskip absent"]


def test_every_picture_is_shown_and_small() -> None:
    shown = {(page.parent / link).resolve() for page in [*PAGES, README] for link in links(page)}
    assert IMAGES
    for image in IMAGES:
        assert image in shown, f"{image.name} is on no page"
        assert image.stat().st_size < 200_000, f"{image.name} is too large"


def test_the_pictures_are_those_of_the_script() -> None:
    """By name; and one that needs no generated people, by its pixels."""
    script = runpy.run_path(str(DOCS / "make_images.py"))
    assert {image.stem for image in IMAGES} >= set(script["PICTURES"])
    with Image.open(DOCS / "images" / "spirals.png") as image:
        kept = np.asarray(image).astype(float)
    made = script["PICTURES"]["spirals"]()
    assert kept.shape == made.shape
    assert np.abs(kept - made).mean() < 0.5


def test_the_splits_on_the_page_are_those_of_the_code() -> None:
    """What the table of docs/data.md says of each set."""
    rows = {line.split("`")[1]: line for line in (DOCS / "data.md").read_text().splitlines() if line.startswith("| `")}
    assert set(BUILT_IN) <= set(rows)
    assert len(EXPRESSIONS) == 12
    interpolation = Split.blocks(20_466)
    counts = f"{len(interpolation.train):,}, {len(interpolation.test):,}"
    for name in ("coma", "faces"):
        assert counts in rows[name]
    for name in ("faust", "bodies"):
        assert f"{FAUST_TRAIN}, {FAUST_MESHES - FAUST_TRAIN}" in rows[name]
    # People, takes or motions, frames or poses: a fifth, a fifth and a quarter of them are the test.
    sizes = {"mixed-faces": (40 * 20 * 10, 40 * 5 * 10), "moving-bodies": (8 * 4 * 90, 8 * 90)}
    sizes["remeshed-bodies"] = num_training_people(32, 0.75) * 5, (32 - num_training_people(32, 0.75)) * 5
    for name, (train, test) in sizes.items():
        assert f"{train:,}, {test:,}" in rows[name]
