"""Generated faces: the linear form against anny itself, identities, splits, and life without anny."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import MeshSet, SkinnedShapes, faces
from geoskip.data.cache import read_entry
from geoskip.data.heads import ACTIONS, EXPRESSIONS, action_fields, head_model, head_verts, subject_shape
from geoskip.data.people import skin
from geoskip.meshes import Mesh

TINY: dict[str, Any] = {"people": 2, "expressions": ("mouth_side", "high_smile"), "frames": 250}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def head() -> Any:
    return head_model()


@pytest.fixture(scope="module")
def kept(head: Any) -> np.ndarray:
    return skin(Mesh(head.template_vertices.numpy(), head.faces.numpy()))


@pytest.fixture(scope="module")
def coma_like(folder: Path, head: Any) -> MeshSet:
    return faces(cache=folder)


@pytest.fixture(scope="module")
def tiny(folder: Path, head: Any) -> MeshSet:
    return faces(**TINY, cache=folder)


def linear(of: MeshSet) -> SkinnedShapes:
    assert isinstance(of.shapes, SkinnedShapes)
    return of.shapes


def test_the_linear_form_is_what_anny_computes(coma_like: MeshSet, head: Any, kept: np.ndarray) -> None:
    """x = B + Σ c D with B and D from anny in float64 is anny's own mesh; float32 costs a micrometre."""
    shapes, fields = linear(coma_like), action_fields(head, kept)
    for subject in (0, 7, 11):
        frame = int((shapes.subject == subject).nonzero()[40])
        coefficients = shapes.coefficients[[frame]].double()
        own = head_verts(head, kept, *subject_shape(0, subject), coefficients)
        rest = head_verts(head, kept, *subject_shape(0, subject))
        assert np.abs(rest + np.einsum("ta,avc->tvc", coefficients.numpy(), fields) - own).max() < 1e-8
        decoded = coma_like.verts(torch.tensor([frame]))[0].numpy() + rest[0].mean(axis=0)
        assert np.abs(decoded - own[0]).max() < 1e-3


def test_actions_are_in_the_order_of_anny(head: Any) -> None:
    assert tuple(head.facial_action_labels) == ACTIONS


def test_displacements_do_not_depend_on_the_subject(head: Any, kept: np.ndarray) -> None:
    """What lets all subjects share one field for each action."""
    both = torch.cat([torch.zeros(1, 52), torch.eye(52)]).double()
    moved = head_verts(head, kept, *subject_shape(3, 5), both)
    assert np.abs(moved[1:] - moved[0] - action_fields(head, kept)).max() < 1e-9


def test_the_skin_is_one_surface_open_at_the_neck(coma_like: MeshSet) -> None:
    template = coma_like.template
    assert (template.num_vertices, template.num_faces) == (4200, 8356)
    assert template.components().max() == 0
    assert len(template.nonmanifold_edges()) == 0
    rim = template.verts[np.unique(template.boundary_edges())]
    assert (rim[:, 1] < np.quantile(template.verts[:, 1], 0.2)).all()


def test_the_default_set_has_the_size_and_split_of_coma(coma_like: MeshSet) -> None:
    assert len(coma_like) == 20_466
    sequences = {name.rsplit("/", 1)[0] for name in coma_like.names}
    assert len(sequences) == 12 * 12
    assert (len(coma_like.split.train), len(coma_like.split.test)) == (18_416, 2_050)
    assert list(coma_like.names) == sorted(coma_like.names)


def test_it_is_a_few_megabytes_on_disk(coma_like: MeshSet, folder: Path) -> None:
    sizes = [sum(file.stat().st_size for file in entry.iterdir()) for entry in sorted(folder.glob("faces-*"))]
    assert max(sizes) < 8e6


def test_millimetres_facing_ahead_centred(coma_like: MeshSet) -> None:
    rests = linear(coma_like).rests.double()
    assert coma_like.unit_mm == 1.0
    assert rests.mean(dim=1).abs().max() < 1e-3
    width, height, depth = (rests.amax(1) - rests.amin(1)).T
    assert ((width > 150) & (width < 220)).all()
    assert ((height > 210) & (height < 310)).all()
    assert ((depth > 190) & (depth < 270)).all()
    lid = int(linear(coma_like).displacements[ACTIONS.index("eyeBlinkLeft")].norm(dim=1).argmax())
    x, y, z = coma_like.template.verts[lid]
    assert 15 < x < 60
    assert y > 0
    assert z > 20


def test_subjects_differ_and_frames_never_repeat(coma_like: MeshSet) -> None:
    shapes = linear(coma_like)
    apart = torch.cdist(shapes.rests.flatten(1), shapes.rests.flatten(1)) / 4200**0.5
    assert apart[~torch.eye(12, dtype=torch.bool)].min() > 2
    assert len(shapes.coefficients.unique(dim=0)) == 20_466


def test_all_are_adults() -> None:
    phenotypes = [subject_shape(seed, subject)[0] for seed in range(5) for subject in range(20)]
    assert min(person["age"] for person in phenotypes) > 2 / 3
    assert max(person["age"] for person in phenotypes) < 1
    assert {round(person["gender"]) for person in phenotypes} == {0, 1}


def test_jaws_drop_where_mouths_open(coma_like: MeshSet) -> None:
    """The chin of the widest open mouth is more than 2 cm lower than at rest."""
    shapes = linear(coma_like)
    frame = int(shapes.coefficients[:, ACTIONS.index("jawOpen")].argmax())
    assert coma_like.names[frame].split("/")[1] == "mouth_extreme"
    moved = coma_like.verts(torch.tensor([frame]))[0] - shapes.rests[shapes.subject[frame]]
    assert moved[:, 1].min() < -20
    assert moved.norm(dim=1).max() < 60


def test_extrapolation_tests_one_expression_of_all_subjects(coma_like: MeshSet, folder: Path) -> None:
    held = faces(split="lips_up", cache=folder)
    assert {coma_like.names[item].split("/")[1] for item in held.split.test.tolist()} == {"lips_up"}
    assert {coma_like.names[item].split("/")[1] for item in held.split.train.tolist()} == set(EXPRESSIONS) - {"lips_up"}
    assert len(held.split.train) + len(held.split.test) == 20_466


def test_subjects_do_not_depend_on_their_number(coma_like: MeshSet, tiny: MeshSet) -> None:
    assert torch.equal(linear(tiny).rests, linear(coma_like).rests[:2])


def test_the_same_arguments_give_the_same_bytes(tiny: MeshSet, tmp_path: Path) -> None:
    again, other = faces(**TINY, cache=tmp_path), faces(**TINY, seed=1, cache=tmp_path)
    assert again.names == tiny.names
    assert torch.equal(again.verts(torch.arange(250)), tiny.verts(torch.arange(250)))
    assert (other.verts(torch.arange(9)) - tiny.verts(torch.arange(9))).abs().max() > 1


def test_decoding_follows_the_items_asked_for(tiny: MeshSet) -> None:
    whole = tiny.verts(torch.arange(len(tiny)))
    chosen = torch.tensor([249, 3, 3, 100])
    assert torch.allclose(tiny.verts(chosen), whole[chosen], atol=1e-4)
    assert tiny.verts(torch.zeros(0, dtype=torch.int64)).shape == (0, 4200, 3)
    assert len(tiny.to("cpu").shapes) == 250


def test_cached_faces_need_no_anny(tiny: MeshSet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anny", None)
    found = faces(**TINY, cache=folder)
    assert torch.equal(found.verts(torch.arange(3)), tiny.verts(torch.arange(3)))
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[people\]"):
        faces(**TINY, seed=5, cache=folder)


def test_importing_the_loaders_does_not_import_anny() -> None:
    check = "import sys, geoskip.data.generated_faces, geoskip.data.generated_bodies; sys.exit('anny' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_the_entry_tells_its_actions_and_unit(tiny: MeshSet, folder: Path) -> None:
    for entry in sorted(folder.glob("faces-*")):
        assert read_entry(entry).meta == {"actions": list(ACTIONS), "unit": "mm"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"expressions": ("wink",)}, "expressions: unknown wink; choose from bareteeth"),
        ({"split": "wink"}, "one of several expressions .*, got 'wink'"),
        ({"expressions": ("lips_up",), "split": "lips_up"}, "one of several"),
        ({"people": 0}, "people: expected 1 or more, got 0"),
        ({"expressions": ()}, "expressions: expected 1 or more, got 0"),
        ({"frames": 143}, "frames: expected 144 or more, for 12 people × 12 expressions, got 143"),
    ],
)
def test_arguments_that_make_no_set_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        faces(**arguments, cache=tmp_path)
