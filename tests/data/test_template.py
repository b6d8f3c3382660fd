"""A prepared template: what is saved is what is loaded, and nothing else is taken for one."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load, save

from geoskip.data import Template, TemplateError, load_template, prepare_template, save_template
from geoskip.data.template import Arrays, template_bytes
from geoskip.graphs import map_tensors
from geoskip.meshes import Mesh, grid, icosphere


def bumpy() -> Mesh:
    mesh = icosphere(2)
    return mesh.with_verts(mesh.verts * (1 + 0.1 * np.sin(5 * mesh.verts[:, :1])))


@pytest.fixture(scope="module")
def template() -> Template:
    return prepare_template(bumpy(), factors=(4, 3), spiral_length=9, unit_mm=100.0)


@pytest.fixture
def path(template: Template, tmp_path: Path) -> Path:
    save_template(tmp_path / "ball.template.safetensors", template)
    return tmp_path / "ball.template.safetensors"


def contents(path: Path) -> tuple[Arrays, dict]:
    with safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["geoskip"])
    return load(path.read_bytes()), about


def tensors(record: object) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(record, note)
    return found


def test_what_is_loaded_is_what_was_saved(template: Template, path: Path) -> None:
    """Bit by bit: levels, matrices in both precisions, pseudo-coordinates, spirals, unit."""
    loaded = load_template(path)
    assert loaded.unit_mm == 100.0
    for one, other in zip(loaded.meshes.levels, template.meshes.levels, strict=True):
        np.testing.assert_array_equal(one.verts, other.verts)
        np.testing.assert_array_equal(one.faces, other.faces)
    for field in ("down", "up"):
        for read, kept in zip(getattr(loaded.meshes, field), getattr(template.meshes, field), strict=True):
            assert read.dtype == np.float64
            np.testing.assert_array_equal(read.toarray(), kept.toarray())
    for read, kept in zip(loaded.meshes.kept, template.meshes.kept, strict=True):
        np.testing.assert_array_equal(read, kept)
    before, after = tensors(template.hierarchy), tensors(loaded.hierarchy)
    assert len(before) > 20
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(before, after, strict=True))


def test_the_file_is_a_function_of_mesh_and_settings(path: Path, tmp_path: Path) -> None:
    save_template(tmp_path / "again", prepare_template(bumpy(), factors=(4, 3), spiral_length=9, unit_mm=100.0))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_the_file_says_what_it_is(template: Template, path: Path) -> None:
    arrays, about = contents(path)
    assert (about["format"], about["version"], about["unit_mm"]) == ("geoskip template", 1, 100.0)
    assert about["topology"] == [level.topology_hash() for level in template.meshes.levels]
    down = np.zeros((41, 162))
    down[arrays["step0.down.rows"], arrays["step0.down.columns"]] = arrays["step0.down.values"]
    np.testing.assert_array_equal(down @ arrays["level0.verts"], arrays["level1.verts"])
    senders, receivers = arrays["level1.edge_index"]
    offsets = arrays["level1.verts"][senders] - arrays["level1.verts"][receivers]
    np.testing.assert_allclose(arrays["level1.pseudo"], 0.5 + offsets / (2 * np.abs(offsets).max()), atol=1e-7)


def test_a_template_without_spirals_steps_or_unit(tmp_path: Path) -> None:
    save_template(tmp_path / "plain", prepare_template(grid(3, 4), factors=(), spiral_length=None))
    loaded = load_template(tmp_path / "plain")
    assert loaded.unit_mm is None
    assert loaded.hierarchy.sizes == (12,)
    assert loaded.hierarchy.levels[0].spirals is None


def test_every_truncation_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for length in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(TemplateError, match="truncated, or not a file"):
            load_template(path)


def test_every_changed_byte_is_refused(path: Path) -> None:
    """Wherever it falls: header, description or any of the arrays."""
    data = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(data), 150):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(TemplateError):
            load_template(path)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"ply\nformat ascii 1.0\n", "not a file of `geoskip prepare`"),
        (save({"weight": np.zeros(3)}), "not a file of `geoskip prepare`"),
        (save({"weight": np.zeros(3)}, {"geoskip": "[1]"}), "not a file of `geoskip prepare`"),
        (save({"weight": np.zeros(3)}, {"geoskip": "{"}), "not a file of `geoskip prepare`"),
        (save({}, {"geoskip": '{"format": "weights"}'}), "contains 'weights', not a template"),
        (save({}, {"geoskip": '{"format": "geoskip template", "version": 2}'}), "version 2, and this geoskip reads"),
    ],
)
def test_other_files_are_no_templates(tmp_path: Path, data: bytes, fault: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(TemplateError, match=fault):
        load_template(tmp_path / "file")


def test_types_that_numpy_does_not_have_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    about = {"geoskip": json.dumps({"format": "geoskip template", "version": 1, "sha256": ""})}
    save_file({"level0.verts": torch.zeros(3, 3, dtype=torch.bfloat16)}, tmp_path / "file", about)
    with pytest.raises(TemplateError, match="not a file of `geoskip prepare`"):
        load_template(tmp_path / "file")


def without(name: str) -> Callable[[Arrays, dict], None]:
    return lambda arrays, about: arrays.__delitem__(name)


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays, dict], None]:
    return lambda arrays, about: arrays.update({name: np.ascontiguousarray(change(arrays[name]))})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (without("level1.faces"), "'level1.faces' is missing"),
        (lambda arrays, about: about.pop("unit_mm"), "'unit_mm' is missing"),
        (lambda arrays, about: about.update(unit_mm=-1.0), "length of one unit in millimeters"),
        (lambda arrays, about: about.update(topology=about["topology"][::-1]), "level 0 do not match their topology"),
        (replaced("level0.verts", lambda verts: verts * np.nan), "level0.verts is not finite"),
        (replaced("level0.faces", lambda faces: faces + 162), "faces refer to vertices outside"),
        (replaced("level2.edge_index", lambda edges: edges[::-1]), "edges of level 2 are not those of its faces"),
        (replaced("level0.pseudo", lambda pseudo: pseudo[:-1]), "pseudo: expected shape"),
        (replaced("level0.spirals", lambda spirals: spirals + 5), "spirals: vertex"),
        (replaced("step0.down.values", lambda values: 2 * values), "does not select vertices"),
        (replaced("step0.down.rows", lambda rows: rows // 2), "does not select vertices"),
        (replaced("step1.up.columns", lambda columns: columns + 14), "not a complete template: .* 1[45]"),
        (replaced("step1.up.rows", lambda rows: rows[:-1]), "not a complete template: .* same"),
    ],
)
def test_parts_that_do_not_fit_are_refused(path: Path, change: Callable[[Arrays, dict], None], fault: str) -> None:
    """Even where the checksum is right."""
    arrays, about = contents(path)
    del about["sha256"]
    change(arrays, about)
    path.write_bytes(template_bytes(arrays, about))
    with pytest.raises(TemplateError, match=fault):
        load_template(path)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_template(tmp_path / "absent")


def test_meshes_of_the_template_fit_and_others_do_not(template: Template) -> None:
    template.check_fits(template.mesh.with_verts(2 * template.mesh.verts))
    with pytest.raises(TemplateError, match="642 vertices and 1,280 faces, not 162 vertices"):
        template.check_fits(icosphere(3))
    order = np.random.default_rng(0).permutation(162)
    relabelled = Mesh(template.mesh.verts[order], np.argsort(order)[template.mesh.faces])
    with pytest.raises(TemplateError, match="another connectivity"):
        template.check_fits(relabelled)


@pytest.mark.parametrize("unit", [0.0, -1.0, float("nan"), float("inf")])
def test_units_that_are_no_length_are_refused(unit: float) -> None:
    with pytest.raises(ValueError, match="length of one unit"):
        prepare_template(icosphere(0), factors=(), unit_mm=unit)
