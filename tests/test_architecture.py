"""The shape of the program, held by tests; each check is seen to fail on a planted fault."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import geoskip
from tests.architecture import (
    ADAPTERS,
    LAYERS,
    OPTIONAL,
    allowed,
    direct_writes,
    eager,
    imported,
    platform_calls,
    repeated_classes,
    shared_names,
    too_long,
    without_encoding,
    wrong_way,
)

ROOT = Path(geoskip.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
LAYERED = {path: source for path, source in SOURCES.items() if path.split("/")[0].removesuffix(".py") in LAYERS}
PLATFORM_MODULES = {"records/files.py"}
# In these, a file is not called by its final name until it is complete, or is read by lines.
WRITERS = {
    "data/cache.py",
    "data/idx.py",
    "data/locks.py",
    "paper/parallel.py",
    "records/files.py",
    "report/charts.py",
    "training/checkpoint.py",
    "training/progress.py",
}
HEAVY = {"anny", "matplotlib", "plotly", "ray", "skimage", "torch_geometric", "trimesh"}


def module(path: str) -> str:
    return f"geoskip/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_every_module_belongs_to_a_layer() -> None:
    assert SOURCES.keys() - LAYERED.keys() <= {"__init__.py", "__main__.py"}
    assert {"shapes.py", "kernels/reference.py", "graphs/graph.py", "operators/gcn.py"} <= LAYERED.keys()


def test_the_page_has_the_layers_in_their_order() -> None:
    page = (ROOT.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    layers = page.split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", layers, re.MULTILINE) == list(LAYERS)


def test_imports_point_up() -> None:
    found = {path: wrong_way(source, module(path), path.endswith("__init__.py")) for path, source in LAYERED.items()}
    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_optional_packages_are_imported_where_they_are_needed() -> None:
    found = {path: eager(source) - ADAPTERS.get(module(path), set()) for path, source in SOURCES.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_files_are_short() -> None:
    """Where one is too long, a concept is missing."""
    assert [path for path, source in SOURCES.items() if too_long(source, 400)] == []


def test_a_class_name_has_one_meaning() -> None:
    assert repeated_classes(SOURCES) == {}
    assert repeated_classes({"a": "class Row: ...", "b": "class Row: ...", "c": "class C: ..."}) == {"Row": ["a", "b"]}


def test_no_two_modules_share_a_file_name() -> None:
    assert shared_names([*map(Path, SOURCES), *(ROOT.parents[1] / "benchmarks").rglob("*.py")]) == {}


def test_a_shared_file_name_would_be_seen() -> None:
    paths = [Path("graphs/checks.py"), Path("operators/checks.py"), Path("graphs/base.py"), Path("blocks/base.py")]
    assert shared_names(paths) == {"checks": paths[:2]}


@pytest.mark.parametrize("package", ["blocks", "data", "graphs", "kernels", "meshes", "operators", "rbf", "training"])
def test_a_public_name_is_not_also_a_module(package: str) -> None:
    public = import_module(f"geoskip.{package}").__all__
    assert set(public) & {path.stem for path in (ROOT / package).glob("*.py")} == set()


def test_there_are_no_utils() -> None:
    assert [path for path in SOURCES if "util" in path] == []


@pytest.mark.parametrize(
    ("modules", "banned"),
    [
        (["geoskip"], HEAVY | {"torch", "numpy", "scipy"}),
        (
            ["geoskip.models", "geoskip.meshes", "geoskip.data.generated_faces", "geoskip.data.generated_bodies"],
            OPTIONAL,
        ),
    ],
    ids=["geoskip", "models and data"],
)
def test_importing_stays_light(modules: list[str], banned: set[str]) -> None:
    assert loaded_with(modules) & banned == set()


def loaded_with(modules: list[str]) -> set[str]:
    """Packages that are loaded after an import in a fresh interpreter."""
    paths = [str(ROOT.parent), os.environ.get("PYTHONPATH", "")]
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=True,
    )
    return {loaded.partition(".")[0] for loaded in done.stdout.split()}


def test_a_heavy_import_would_be_seen() -> None:
    assert "numpy" in loaded_with(["geoskip", "numpy"])
    assert HEAVY <= OPTIONAL


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("geoskip.kernels.cpu", "from geoskip.graphs import Graph"),
        ("geoskip.kernels.cpu", "import geoskip.graphs.graph"),
        ("geoskip.kernels.cpu", "def f():\n    from geoskip.operators.base import Operator"),
        ("geoskip.graphs.graph", "from geoskip.operators import GCNConv"),
        ("geoskip.graphs.graph", "from ..operators import GCNConv"),
        ("geoskip.graphs.graph", "from .. import blocks"),
        ("geoskip.graphs.graph", "from geoskip import blocks"),
        ("geoskip.graphs.graph", "from importlib import import_module\nimport_module('geoskip.blocks')"),
        ("geoskip.graphs.graph", "from geoskip import Graph"),
        ("geoskip.graphs.graph", "import geoskip"),
        ("geoskip.meshes.spiral_order", "from geoskip.operators import SpiralConv"),
        ("geoskip.models", "from geoskip.data import coma"),
        ("geoskip.report.page", "from geoskip.training.loop import fit"),
        ("geoskip.report.page", "from geoskip.paper import claims"),
        ("geoskip.training.loop", "from geoskip.paper import claims"),
        ("geoskip.training.run", "from geoskip.inference import load"),
        ("geoskip.paper.run", "from geoskip.cli import main"),
    ],
)
def test_a_wrong_import_is_seen(where: str, source: str) -> None:
    assert wrong_way(source, where) != []


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("geoskip.kernels.cpu", "from geoskip.shapes import Float\nfrom geoskip.kernels import reference"),
        ("geoskip.kernels.cpu", "from . import reference\nfrom .ops import product\nimport torch, geoskip_extras"),
        ("geoskip.graphs.graph_hierarchy", "from geoskip.meshes import Mesh"),
        ("geoskip.paper.run", "from geoskip.report import page\nfrom geoskip.paper import depth"),
        ("geoskip.cli.params", "from geoskip import __version__\nfrom geoskip.report import page"),
        ("geoskip.training.records", "from geoskip import __version__"),
        ("geoskip.report.page", "from geoskip.records import RunRecord"),
    ],
)
def test_a_right_import_is_let_through(where: str, source: str) -> None:
    assert wrong_way(source, where) == []


def test_relative_imports_are_resolved() -> None:
    source = "from . import a\nfrom .b import c\nfrom ..d import e"
    assert imported(source, "geoskip.data.coma") == {"geoskip.data", "geoskip.data.b", "geoskip.d"}
    assert imported("from .b import c", "geoskip.data", is_package=True) == {"geoskip.data.b"}


def test_reports_are_made_from_records_alone() -> None:
    assert allowed("report") == {"shapes", "arguments", "registry", "records", "meshes", "report"}


def test_only_the_command_line_sees_the_paper() -> None:
    assert [layer for layer in LAYERS if "paper" in allowed(layer)] == ["paper", "cli"]


def test_an_eager_import_is_seen() -> None:
    assert eager("import matplotlib.pyplot as plt") == {"matplotlib"}
    assert eager("try:\n    from trimesh import load\nexcept ImportError:\n    pass") == {"trimesh"}
    assert eager("class A:\n    import ray") == {"ray"}
    assert eager("def f():\n    import ray\nif TYPE_CHECKING:\n    import anny\nimport torch") == set()


def test_a_long_file_is_seen() -> None:
    assert too_long("x = 1\n" * 151, 150)
    assert not too_long("x = 1\n" * 150, 150)


@pytest.mark.parametrize(
    ("complaints", "exempt"),
    [(platform_calls, PLATFORM_MODULES), (without_encoding, set()), (direct_writes, WRITERS)],
    ids=["calls of one platform", "text without an encoding", "direct writes"],
)
def test_files_are_handled_in_one_way(complaints: Callable[[str], list[str]], exempt: set[str]) -> None:
    """Calls that differ between platforms are in one place, text is UTF-8, and files are written whole."""
    found = {path: complaints(source) for path, source in SOURCES.items() if path not in exempt}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_calls_of_one_platform_are_seen() -> None:
    lines = [
        "import fcntl",
        "from resource import getrusage",
        "os.fsync(1)",
        "os.replace(a, b)",
        "os.rename(a, b)",
        "os.kill(1, 2)",
        "signal.SIGHUP",
        "signal.SIGKILL",
        "if sys.platform == 'win32': pass",
        "os.name == 'nt'",
        "path.symlink_to(other)",
    ]
    for line in lines:
        assert len(platform_calls(line)) == 1, line
    assert platform_calls("os.getpid()\npath.rename\nos.path.join(a)\nsignal.SIGTERM\nos.open(a, 0)") == []


def test_text_without_an_encoding_is_seen() -> None:
    for line in ("path.read_text()", "path.write_text('x')", "open('a')", "path.open()", "path.open('a')"):
        assert len(without_encoding(line)) == 1, line
    lines = ("path.read_text(encoding='utf-8')", "open('a', 'rb')", "path.open('xb')", "Run.open(folder)")
    for line in lines:
        assert without_encoding(line) == [], line


def test_a_direct_write_is_seen() -> None:
    for line in ("path.write_bytes(b'')", "path.write_text('')", "path.open('wb')", "open(path, 'w')", "f.savefig(p)"):
        assert len(direct_writes(line)) == 1, line
    assert direct_writes("path.open('rb')\natomic_write(path, b'')\nfile.write(b'')") == []
