"""Landmark files."""

from pathlib import Path

import numpy as np
import pytest

from geoskip.meshes import icosphere
from geoskip.rbf import pair_landmarks, read_landmarks

BALL = icosphere(1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "[0, 11, [1, 2.5, -3]]"),
        ("b.csv", "0\n11\n1,2.5,-3\n"),
        ("c.csv", "x,y,z\n\n0\n11\n 1 , 2.5 , -3e0 \n"),
        ("D.JSON", '{"0": 0, "1": 11, "2": [1, 2.5, -3]}'),
        ("e.csv", "\ufeff0,0\r\n1,11\r\n2,1,2.5,-3\r\n"),
    ],
)
def test_vertex_numbers_and_points(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_landmarks(tmp_path / name, BALL)
    assert list(found) == ["0", "1", "2"]
    np.testing.assert_array_equal(np.stack(list(found.values())), [BALL.verts[0], BALL.verts[11], [1, 2.5, -3]])


def test_names_pair_landmarks_whatever_their_order(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"nose": 3, "chin": 5}')
    (tmp_path / "b.csv").write_text("name,x,y,z\nchin,1,2,3\nnose,4,5,6\n")
    held, wanted = pair_landmarks(read_landmarks(tmp_path / "a.json", BALL), read_landmarks(tmp_path / "b.csv"))
    np.testing.assert_array_equal(held, BALL.verts[[3, 5]])
    np.testing.assert_array_equal(wanted, [[4, 5, 6], [1, 2, 3]])


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.txt", "0", r"a\.txt: landmarks are read from \.json and \.csv files"),
        ("a.json", "[0, ", r"a\.json: not valid JSON"),
        ("a.json", "7", "expected a list of landmarks, or an object"),
        ("a.json", "[]", "no landmarks"),
        ("a.csv", "vertex\n", "no landmarks"),
        ("a.json", '{"nose": 1, "nose": 2}', "a name occurs twice"),
        ("a.csv", "nose,1\nnose,2\n", "a name occurs twice"),
        ("a.json", "[42]", "landmark 0 is vertex 42, but the mesh has vertices 0 to 41"),
        ("a.json", "[-1]", "landmark 0 is vertex -1"),
        ("a.json", "[true]", "landmark 0 is True, not a vertex number or"),
        ("a.json", "[1.5]", "landmark 0 is 1.5, not a vertex number"),
        ("a.csv", "1.5\n", "landmark 0 is 1.5, not a vertex number"),
        ("a.json", "[[1, 2]]", r"landmark 0 is \[1, 2\], not a vertex number"),
        ("a.json", '[[1, 2, "3"]]', "not a vertex number or"),
        ("a.json", "[[1, 2, NaN]]", "which is not finite"),
        ("a.csv", "1,2,inf\n", "which is not finite"),
        ("a.csv", "1,2,3,4,5\n", "landmark 0 is '1,2,3,4,5', not"),
        ("a.csv", "1\nnose,eye\n", "landmark 1 is 'nose,eye', not"),
    ],
)
def test_error_messages(tmp_path: Path, name: str, text: str, named: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=named):
        read_landmarks(tmp_path / name, BALL)


def test_deep_nesting_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"a\.json: "):
        read_landmarks(tmp_path / "a.json", BALL)


def test_vertex_numbers_need_a_mesh(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[3]")
    with pytest.raises(ValueError, match="there is no mesh to look it up in"):
        read_landmarks(tmp_path / "a.json")


def test_landmarks_without_partners_are_named() -> None:
    point = np.zeros(3)
    with pytest.raises(ValueError, match="have 2 and 1; only one of them has chin, eye, nose"):
        pair_landmarks({"nose": point, "chin": point}, {"eye": point})
