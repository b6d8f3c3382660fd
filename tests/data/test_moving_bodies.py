"""Bodies in motion: near anny's own surface, smooth, with motions that the test alone has of a person."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import MeshSet, moving_bodies
from geoskip.data.cache import read_entry
from geoskip.data.generated_bodies import MOTIONS, body_verts, grounded, mirrored, random_motion
from geoskip.data.people import JOINTS, adult, anny_model, bone_rotations, named_pose

TINY: dict[str, Any] = {"people": 2, "frames_per_take": 20, "num_vertices": 13_348}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> MeshSet:
    return moving_bodies(**TINY, cache=folder)


def test_decoded_bodies_are_those_of_anny(tiny: MeshSet, folder: Path) -> None:
    body, kept = anny_model(), read_entry(next(folder.glob("moving-bodies-*"))).arrays["kept"]
    path = random_motion("squat", 20, np.random.default_rng([0, 6, 1, 3]))
    own = grounded(body_verts(body, adult(np.random.default_rng([0, 1, 1]), 1), list(map(bone_rotations, path)), kept))
    frames = torch.arange(100 + 60, 100 + 80)
    assert tiny.names[160] == "001/squat/000"
    apart = 1000 * np.linalg.norm(tiny.verts(frames).numpy() - own, axis=-1)
    assert apart.mean() < 0.1
    assert apart.max() < 6
    moved = 1000 * np.linalg.norm(own - own[0], axis=-1)
    assert moved.max() > 200


def test_every_person_has_one_motion_in_the_test(tiny: MeshSet) -> None:
    shown = {tiny.names[item].rpartition("/")[0] for item in tiny.split.test.tolist()}
    assert shown == {"000/bend", "001/fight"}
    assert (len(tiny.split.train), len(tiny.split.test)) == (160, 40)
    assert list(tiny.names) == sorted(tiny.names)


def test_meters_on_the_floor(tiny: MeshSet) -> None:
    verts = tiny.verts(torch.arange(0, 200, 9)).double()
    assert tiny.unit_mm == 1000.0
    assert verts[..., 1].amin(1).abs().max() < 0.005
    assert verts[..., [0, 2]].mean(1).abs().max() < 0.001
    rest = tiny.shapes.neutral(torch.tensor([0]))[0]  # type: ignore[attr-defined]
    assert 1.4 < float(rest[:, 1].max() - rest[:, 1].min()) < 2.0


@pytest.mark.parametrize("motion", MOTIONS)
def test_motions_are_smooth_and_large(motion: str) -> None:
    path = random_motion(motion, 90, np.random.default_rng(0))
    assert path.shape == (90, len(JOINTS), 3)
    assert np.abs(np.diff(path, axis=0)).max() < 25
    assert np.ptp(path, axis=0).max() > 30
    assert len(np.unique(path.reshape(90, -1), axis=0)) == 90


def test_mirroring_twice_is_nothing_and_once_exchanges_the_sides() -> None:
    pose = named_pose("wave") + 1.0
    assert np.array_equal(mirrored(mirrored(pose)), pose)
    assert np.array_equal(mirrored(pose)[JOINTS.index("arm_right")], pose[JOINTS.index("arm_left")])
    assert np.array_equal(mirrored(pose)[JOINTS.index("neck")], pose[JOINTS.index("neck")] * (1, -1, -1))


def test_cached_bodies_need_no_anny(tiny: MeshSet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiny.content in {entry.name for entry in folder.glob("moving-bodies-*")}
    monkeypatch.setitem(sys.modules, "anny", None)
    found = moving_bodies(**TINY, cache=folder)
    assert torch.equal(found.verts(torch.arange(3)), tiny.verts(torch.arange(3)))
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[people\]"):
        moving_bodies(**TINY, seed=5, cache=folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"people": 0}, "people: expected 1 or more, got 0"),
        ({"num_vertices": 20_000}, "num_vertices: expected 4 to 13348, got 20000"),
    ],
)
def test_arguments_that_make_no_set_are_refused(arguments: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        moving_bodies(**(TINY | arguments), cache=tmp_path)
