"""Arguments out of configurations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from geoskip.arguments import check_arguments
from geoskip.training.config import override, resolve
from geoskip.training.tasks import find_task

# Bad input reaches the code, not the shape checker.
pytestmark = pytest.mark.usefixtures("unchecked")


def load(
    place: str,
    count: int = 1,
    scale: float = 1.0,
    names: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    sizes: tuple[int, ...] = (),
    fast: bool = False,
) -> None: ...


def test_what_fits() -> None:
    given = {"place": "a", "count": np.int64(2), "scale": 1, "names": ["x"], "size": [1, 2], "sizes": [1, 2, 3]}
    check_arguments(load, {**given, "fast": True, "odd": 3})
    check_arguments(load, {"scale": np.float32(2), "names": (), "size": None, "sizes": ()})


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"place": 3}, "x.place: expected text, got 3"),
        ({"count": 1.5}, "count: expected a whole number, got 1.5"),
        ({"count": True}, "count: expected a whole number, got True"),
        ({"scale": "1"}, "scale: expected a number, got '1'"),
        ({"names": "abc"}, "names: expected a list of texts or none, got 'abc'"),
        ({"names": [1]}, "names: expected"),
        ({"size": [1, 2, 3]}, "size: expected a list of whole numbers or none"),
        ({"size": {}}, "size: expected"),
        ({"sizes": 3}, "sizes: expected"),
        ({"fast": 0}, "fast: expected true or false, got 0"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_arguments(load, given, "x.")


@pytest.mark.parametrize("setting", ['recipe={"slic": 3}', "recipe=3", "size=5", "color=7", "odd=1"])
def test_settings_of_the_data(tmp_path: Path, setting: str) -> None:
    config = override(resolve("classification", data=str(tmp_path)), [f"data_options.{setting}"])
    with pytest.raises(ValueError, match=f"data_options.*{setting.partition('=')[0]}"):
        find_task("classification").load_data(config)


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("optim.lr=Infinity", "optim.lr: expected a number, got 'Infinity'"),
        ("optim.lr=1e999", "optim.lr: expected a number"),
        ("seed=" + "9" * 5000, "seed: expected a whole number"),
        ("model.channels=" + "[" * 9000, "model.channels: expected a list of whole numbers"),
        ("options.bias=3", "options.bias: expected true or false, got 3"),
        ("options.bias={}", "options.bias: expected true or false"),
        (f"kernel_size={2**62}", "kernel_size: .* too large"),
        (f"kernel_size={2**63}", "kernel_size: .* 64 bits"),
    ],
)
def test_settings_of_the_network(setting: str, fault: str) -> None:
    with pytest.raises((ValueError, TypeError), match=fault) as raised:
        find_task("reconstruction").check_config(override(resolve("reconstruction"), [setting]))
    assert len(str(raised.value)) < 1000
