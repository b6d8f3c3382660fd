"""CONTRIBUTING.md, followed literally: its files are written to an empty folder, its commands are run.

Each section trains in one process and evaluates, applies and reports in another, which knows nothing but the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import geoskip
from geoskip.meshes import icosphere, write_mesh
from tests.docs.pages import DOCS, blocks, commands
from tests.packages import install

PAGE = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
KINDS = {
    "Add a data set": "data",
    "Add an operator": "operator",
    "Add a skip": "skip",
    "Add a task": "task",
    "Add a kernel": "kernel",
}
# Runs several commands in one process that has not trained.
DRIVER = """
import json, sys
from geoskip.cli import app
for words in json.loads(sys.argv[1]):
    try:
        app(words)
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


def files(section: str) -> dict[str, str]:
    """The blocks of Python that begin with the name of their file."""
    texts = [block.text for block in blocks(section) if block.language == "python"]
    return {text.splitlines()[0].removeprefix("# "): text for text in texts}


def geoskip_commands(section: str) -> list[list[str]]:
    lines = [words for block in blocks(section) if block.language == "bash" for words in commands(block)]
    return [words[1:] for words in lines if words[0] == "geoskip"]


INTRODUCTION = PAGE.partition("\n## ")[0]
# What works with every run.
AFTERWARDS = geoskip_commands(INTRODUCTION)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files of the page, and the mesh that models are applied to."""
    for name, text in files(PAGE).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "mypackage" / "__init__.py").touch()
    write_mesh(icosphere(3), tmp_path / "sphere.ply")
    return tmp_path


def python(folder: Path, *arguments: str, package: Path | None = None) -> str:
    """What another process prints; ``package`` replaces geoskip's own folder."""
    paths = [str(folder), str(package or Path(geoskip.__file__).parents[1])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "GEOSKIP_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def follow(folder: Path, section: str, run: str) -> dict[str, object]:
    """Run the commands of a section, those of the introduction, and an export, which does as the run; the configuration
    of the run."""
    lines = geoskip_commands(section)
    (train,) = [words for words in lines if words[0] == "train"]
    assert train[-1] == f"runs/{run}"
    others = [words for words in lines if words[0] != "train"]
    assert [words[0] for words in AFTERWARDS] == ["evaluate", "apply", "report"]
    afterwards = [[word.replace("NAME", run) for word in words] for words in AFTERWARDS]
    afterwards += [["export", f"runs/{run}", "-o", "exported"], ["apply", "exported", "sphere.ply", "-o", "again"]]
    python(folder, "-m", "geoskip", *train)
    python(folder, "-c", DRIVER, json.dumps(others + afterwards))
    applied, again = (
        {path.name: path.read_bytes() for path in (folder / name).iterdir()} for name in (f"applied/{run}", "again")
    )
    assert applied == again != {}
    assert (folder / "page" / "index.html").is_file()
    return json.loads((folder / "runs" / run / "config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("section", "run"), KINDS.items(), ids=KINDS.values())
def test_a_section_works(folder: Path, section: str, run: str) -> None:
    config = follow(folder, SECTIONS[section], run)
    expected = {
        "data": ("data", "mypackage.data:spheres"),
        "operator": ("operator", "mypackage.conv:MeanConv"),
        "skip": ("skip", "mypackage.skips:LowRankSkip"),
        "task": ("task", "mypackage.task:Octants"),
        "kernel": ("operator", "mypackage.kernel:FastMeanConv"),
    }
    key, name = expected[run]
    assert config[key] == name
    assert config["data_options"] == ({"count": 30} if run == "data" else {})
    page = (folder / "page" / "index.html").read_text(encoding="utf-8")
    printed = {
        "data": "mypackage.data:spheres",
        "operator": "Aff-MeanNet",
        "skip": "Low-GCN",
        "kernel": "Aff-FastMeanNet",
    }
    assert printed.get(run, "accuracy") in page


def test_short_names_work(folder: Path) -> None:
    """Everything at once, by the entry points of an installed package."""
    section = SECTIONS["Give it a short name"]
    (text,) = [block.text for block in blocks(section) if block.language == "toml"]
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert {len(group) for group in groups.values()} == {1}, "one line each"
    install(folder, "mypackage", groups)
    config = follow(folder, section, "names")
    assert [config[key] for key in ("task", "data", "operator", "skip")] == ["octants", "spheres", "mean", "low-rank"]


def test_its_tests_pass(folder: Path) -> None:
    printed = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert "3 passed" in printed


def test_a_kind_takes_one_file_and_one_line_in_geoskip(folder: Path) -> None:
    """Add each of them to a copy of geoskip as the table says, and count what was touched."""
    package = folder / "src" / "geoskip"
    shutil.copytree(Path(geoskip.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    row = re.compile(r"^\| (?:a|an) ([a-z ]+) \| `(.*?)` \| `(.*?)` in `(.*?)` \|$", re.MULTILINE)
    rows = row.findall(INTRODUCTION)
    sources = {"data set": "data", "operator": "conv", "skip": "skips", "task": "task"}
    assert [kind for kind, *_ in rows] == list(sources)
    for kind, new, line, registry in rows:
        (package / new).write_text(files(PAGE)[f"mypackage/{sources[kind]}.py"], encoding="utf-8")
        text = (package / registry).read_text(encoding="utf-8")
        anchor = "\n__all__" if line.startswith("from ") else "\n    },\n    entry_points="
        assert text.count(anchor) == 1
        (package / registry).write_text(text.replace(anchor, f"\n{line}{anchor}"), encoding="utf-8")
    after = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert len(after.keys() - before.keys()) == len(rows), "one new file each"
    changed = [path for path in before if after[path] != before[path]]
    assert len(changed) == len(rows)
    assert [len(after[p].splitlines()) - len(before[p].splitlines()) for p in changed] == [1] * len(rows), "one line"
    listed = python(
        folder,
        "-c",
        "from geoskip.blocks import find_skip; from geoskip.data import find_data_set\n"
        "from geoskip.operators import make_operator; from geoskip.training.tasks import find_task\n"
        "print(make_operator('mean', 3, 4), find_skip('low-rank'), find_data_set('spheres'), find_task('octants'))",
        package=folder / "src",
    )
    for module in ("blocks.low_rank.LowRankSkip", "tasks.octants.Octants", "Spheres stretched", "MeanConv(3, 4"):
        assert module in listed
