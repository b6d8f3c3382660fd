"""Arguments that make no generated set are refused, by name, before anything is generated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoskip.data import bodies, faces, mixed_faces, moving_bodies, remeshed_bodies

WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (faces, {"expressions": ("wink",)}, "expressions: unknown wink; choose from bareteeth"),
    (faces, {"split": "wink"}, "one of several expressions .*, got 'wink'"),
    (faces, {"expressions": ("lips_up",), "split": "lips_up"}, "one of several"),
    (faces, {"people": 0}, "people: expected 1 or more, got 0"),
    (faces, {"expressions": ()}, "expressions: expected 1 or more, got 0"),
    (faces, {"frames": 143}, "frames: expected 144 or more, for 12 people × 12 expressions, got 143"),
    (mixed_faces, {"people": 0}, "people: expected 1 or more, got 0"),
    (mixed_faces, {"frames_per_take": 0}, "frames_per_take: expected 1 or more"),
    (mixed_faces, {"split": "wink"}, "split: expected takes, people or one of bareteeth, .*, got 'wink'"),
    (bodies, {"people": 0}, "people: expected 1 or more, got 0"),
    (bodies, {"poses": 0}, "poses: expected 1 or more, got 0"),
    (bodies, {"num_vertices": 3}, "num_vertices: expected 4 to 13348, got 3"),
    (bodies, {"num_vertices": 20_000}, "num_vertices: expected 4 to 13348"),
    (moving_bodies, {"people": 0}, "people: expected 1 or more, got 0"),
    (moving_bodies, {"num_vertices": 20_000}, "num_vertices: expected 4 to 13348, got 20000"),
    (remeshed_bodies, {"people": 0}, "people: expected 1 or more, got 0"),
    (remeshed_bodies, {"num_vertices": 3}, "num_vertices: expected 4 to 13348, got 3"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), WRONG)
def test_arguments_that_make_no_set_are_refused(
    make: Callable[..., Any], arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments, cache=tmp_path)
