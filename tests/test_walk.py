"""The walk from ``geoskip train`` to the first step, as docs/architecture.md lists it.

To follow a run, a reader opens the modules on the call stack at five moments: the configuration is resolved, the data
are read, the model is built, the model runs, and the optimizer takes its first step. There are at most 15.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from geoskip.cli import main
from geoskip.data import MeshSet
from geoskip.meshes import write_mesh
from geoskip.models import MeshAutoencoder
from geoskip.training import Config
from geoskip.training.learner import FusedAdam
from tests.training import sets

LIMIT = 15
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


class FirstStep(BaseException):
    """Ends the run at the first step; not an Exception, so that nobody handles it."""


def modules_on_stack() -> list[str]:
    """The modules of geoskip on the call stack, outermost first."""
    names, frame = [], sys._getframe()
    while frame is not None:
        names.append(frame.f_globals.get("__name__", ""))
        frame = frame.f_back  # type: ignore[assignment]
    return [name for name in dict.fromkeys(reversed(names)) if name.split(".")[0] == "geoskip"]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The modules in the order in which they are first on the stack at one of the moments."""
    folder = tmp_path_factory.mktemp("walk")
    spheres = sets.meshes(count=12)
    (folder / "meshes").mkdir()
    for item in range(len(spheres)):
        write_mesh(spheres.mesh(item), folder / "meshes" / f"{item:02d}.ply")
    seen: dict[str, None] = {}
    moments: set[Callable[..., Any]] = set()

    def observed(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if function not in moments:
                moments.add(function)
                seen.update(dict.fromkeys([*modules_on_stack(), function.__module__]))
            return function(*args, **kwargs)

        return call

    def stop(*args: Any, **kwargs: Any) -> None:
        raise FirstStep

    reached = [(Config, "__post_init__"), (MeshSet, "__post_init__")]
    reached += [(MeshAutoencoder, "__init__"), (MeshAutoencoder, "forward")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOSKIP_CACHE", str(folder / "cache"))
        for owner, name in reached:
            patch.setattr(owner, name, observed(getattr(owner, name)))
        patch.setattr(FusedAdam, "step", observed(stop))
        command = ["train", "reconstruction", "--data", str(folder / "meshes"), "-o", str(folder / "run")]
        small = ["--kernel-size", "2", "--set", "model.channels=[4,6]", "--set", "data_options.unit_mm=100"]
        patch.setattr(sys, "argv", ["geoskip", *command, *small, "--device", "cpu", "--skip", "affine"])
        with pytest.raises(FirstStep):
            main()
    assert len(moments) == len(reached) + 1
    return [name.removeprefix("geoskip.") for name in seen if name.startswith("geoskip.")]


def test_the_first_step_is_at_most_15_modules_away(walk: list[str]) -> None:
    assert {"cli", "training.loop", "models", "training.learner"} <= set(walk)
    assert len(walk) <= LIMIT, walk


def test_the_page_lists_the_walk(walk: list[str]) -> None:
    section = PAGE.read_text().split("## From `geoskip train` to the first step")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([\w.]+)`", section, flags=re.MULTILINE)) == set(walk)


def test_the_modules_on_the_way_to_the_report_exist() -> None:
    section = PAGE.read_text().split("## From the last step to the report")[1]
    modules = re.findall(r"^\| `([\w.]+)`", section, flags=re.MULTILINE)
    assert len(modules) > 10
    assert [module for module in modules if find_spec(f"geoskip.{module}") is None] == []
