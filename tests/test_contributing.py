"""CONTRIBUTING.md, followed literally: its files are written to an empty folder, its commands are run.

Sections train in one process, and evaluate, apply and report in another, which knows nothing but the runs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
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
# Runs several commands in one process.
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
    return write_files(tmp_path)


def write_files(folder: Path) -> Path:
    """All files of the page, and the mesh that models are applied to."""
    for name, text in files(PAGE).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "mypackage" / "__init__.py").touch()
    write_mesh(icosphere(3), folder / "sphere.ply")
    return folder


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


def follow(folder: Path, sections: Mapping[str, str]) -> None:
    """Run the commands of sections, those of the introduction for each run, and an export, which does as the run."""
    assert [words[0] for words in AFTERWARDS] == ["evaluate", "apply", "report"]
    trainings, others = [], []
    for section, run in sections.items():
        lines = geoskip_commands(SECTIONS[section])
        trainings += [words for words in lines if words[0] == "train"]
        assert trainings[-1][-1] == f"runs/{run}"
        others += [words for words in lines if words[0] != "train"]
        others += [[word.replace("NAME", run).replace("page", f"page/{run}") for word in words] for words in AFTERWARDS]
        others += [["export", f"runs/{run}", "-o", f"exported/{run}"]]
        others += [["apply", f"exported/{run}", "sphere.ply", "-o", f"again/{run}"]]
    assert len(trainings) == len(sections)
    for commands_of_process in (trainings, others):
        python(folder, "-c", DRIVER, json.dumps(commands_of_process))
    for run in sections.values():
        applied, again = (
            {path.name: path.read_bytes() for path in (folder / name / run).iterdir()} for name in ("applied", "again")
        )
        assert applied == again != {}


def config_of(folder: Path, run: str) -> dict[str, object]:
    return json.loads((folder / "runs" / run / "config.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_files(tmp_path_factory.mktemp("followed"))
    follow(folder, KINDS)
    return folder


@pytest.mark.parametrize(
    ("run", "key", "name", "printed"),
    [
        ("data", "data", "mypackage.data:spheres", "mypackage.data:spheres"),
        ("operator", "operator", "mypackage.conv:MeanConv", "Aff-MeanNet"),
        ("skip", "skip", "mypackage.skips:LowRankSkip", "Low-GCN"),
        ("task", "task", "mypackage.task:Octants", "accuracy"),
        ("kernel", "operator", "mypackage.kernel:FastMeanConv", "Aff-FastMeanNet"),
    ],
)
def test_a_section_works(followed: Path, run: str, key: str, name: str, printed: str) -> None:
    config = config_of(followed, run)
    assert config[key] == name
    assert config["data_options"] == ({"count": 30} if run == "data" else {})
    assert printed in (followed / "page" / run / "index.html").read_text(encoding="utf-8")


def test_short_names_work(folder: Path) -> None:
    """Everything at once, by the entry points of an installed package."""
    section = "Give it a short name"
    (text,) = [block.text for block in blocks(SECTIONS[section]) if block.language == "toml"]
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert {len(group) for group in groups.values()} == {1}, "one line each"
    install(folder, "mypackage", groups)
    follow(folder, {section: "names"})
    config = config_of(folder, "names")
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
