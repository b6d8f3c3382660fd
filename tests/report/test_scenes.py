from dataclasses import replace

import numpy as np
import pytest

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.records import CorrespondenceSamples, MeshSamples
from geoskip.report import embed, scenes
from geoskip.report.embed import Blobs, match_still, mesh_still
from geoskip.report.picture_grids import PAPER_MM, errors_mm
from geoskip.report.runs import ReportRun
from tests.report.made_runs import digit_samples, made_run, matched, mesh_samples, result_tables, spheres
from tests.report.test_embed import unpacked

SPHERES = spheres(2)
TABLE1, MATCHING, TABLE2 = (EXPERIMENTS[name] for name in ("table1", "correspondence", "table2"))


def reconstructed(*patterns: str) -> list[ReportRun]:
    chosen = enumerate(TABLE1.select(patterns))
    return [made_run(r, "faces", 0, mesh_samples(SPHERES, r.skip, n, 0.5)) for n, r in chosen]


def test_a_scene_for_each_operator_and_kernel_size() -> None:
    found = scenes.mesh_scenes(result_tables(reconstructed("*MoNet* M=9", "*MoNet M=4", "ChebNet M=9")))
    methods = {scene.title: [row.method for row in scene.methods] for scene in found}
    assert methods["MoNet, M = 9, faces"] == ["MoNet", "MoNet+", "Res-MoNet", "Aff-MoNet"]
    assert list(methods)[2] == "ChebNet, M = 9, faces"
    assert len({scene.key for scene in found}) == 3


@pytest.mark.parametrize("size", [4, 14])
def test_what_more_seeds_have_measured_comes_first(size: int) -> None:
    more = [made_run(row, "faces", 1) for row in TABLE1.select([f"*MoNet M={size}"])]
    found = scenes.mesh_scenes(result_tables([*reconstructed("*MoNet M=4", "*MoNet M=14"), *more]))
    assert found[0].title == f"MoNet, M = {size}, faces"


PEOPLE = (
    "000/bareteeth/00000",
    "000/bareteeth/00001",
    "003/bareteeth/00027",
    "003/high_smile/00004",
    "005/eyebrow/00000",
)


def people(names: tuple[str, ...], errors: tuple[float, ...], skip: str) -> MeshSamples:
    """Spheres with names of people, each with the given mean error."""
    shapes = replace(spheres(1, len(names)), names=names, levels=())
    samples = mesh_samples(shapes, skip, 0, 1.0)
    moved = samples.parts["full"] - samples.parts["input"]
    scale = np.array(errors) / np.linalg.norm(moved, axis=2).mean(axis=1)
    return replace(samples, parts=dict(samples.parts) | {"full": samples.parts["input"] + moved * scale[:, None, None]})


def of_people(size: int, plain: float, affine: float, errors: tuple[float, ...], seeds: int = 1) -> list[ReportRun]:
    """MoNet and Aff-MoNet with the given means on the test set; MoNet has an error of 1 mm on each person."""
    runs = []
    for name, mean, of_items in (("MoNet", plain, (1.0,) * len(PEOPLE)), ("Aff-MoNet", affine, errors)):
        (row,) = TABLE1.select([f"{name} M={size}"])
        samples = people(PEOPLE, of_items, row.skip)
        runs += [made_run(row, "faces", s, samples, metrics={"mean_mm": mean + 0.001 * s}) for s in range(seeds)]
    return runs


def test_the_sample_nearest_to_the_mean_change_comes_first_and_then_other_people() -> None:
    """The test set changes by -20 %, and the people by -21, -5, -40, -22 and -60 %."""
    (scene,) = scenes.mesh_scenes(result_tables(of_people(9, 0.9, 0.72, (0.79, 0.95, 0.60, 0.78, 0.40))))
    # Of the two frames of Person 0 with bared teeth, the nearer is shown.
    assert scene.first.names == tuple(PEOPLE[i] for i in (0, 3, 4, 2))
    assert scene.changes[0] == "−21 % on this sample, −20 % on the test set"
    assert scene.tests == ("test set: mean 0.900 mm", "test set: mean 0.720 mm")
    for samples in scene.samples:
        assert samples is not None
        assert samples.names == scene.first.names
    assert errors_mm(scene.shown[1][1]).mean(axis=1) == pytest.approx([0.79, 0.78, 0.40, 0.60], rel=1e-3)


def test_the_page_opens_with_the_scene_nearest_to_its_headline() -> None:
    near = of_people(14, 1.0, 0.7, (0.72, 1.0, 1.0, 1.0, 1.0))
    far = of_people(9, 1.0, 0.7, (0.95, 1.0, 1.0, 1.0, 1.0))
    for runs in (near + far, far + near):
        first, second = scenes.mesh_scenes(result_tables(runs))
        assert (first.title, second.title) == ("MoNet, M = 14, faces", "MoNet, M = 9, faces")
        assert first.distance == pytest.approx(2.0, abs=0.01)


def test_plain_is_next_to_affine_even_without_samples() -> None:
    runs = of_people(9, 0.9, 0.72, (1.0,) * 5)
    runs[0] = ReportRun(runs[0].record)
    (scene,) = scenes.mesh_scenes(result_tables(runs))
    assert [row.method for row in scene.methods] == ["MoNet", "Aff-MoNet"]
    assert [row.method for row, _ in scene.shown] == ["Aff-MoNet"]
    plain = embed.embedded_meshes(scene, Blobs(), 1)["methods"][0]
    assert (plain["parts"], plain["test"]) == ({}, "test set: mean 0.900 mm")
    assert "MoNet 1.00 mm" in mesh_still(scene).text
    bodies = [made_run(r, "bodies", 0) for r in MATCHING.select(["*MoNet*"])]
    bodies[1] = ReportRun(bodies[1].record, matched(SPHERES, 0.1, 0))
    (matching,) = scenes.match_scenes(result_tables(bodies))
    first, second = embed.embedded_matches(matching, Blobs(), 1)["methods"]
    assert (first["name"], first["errors"]) == ("MoNet", [])
    assert first["test"].startswith("test set: mean error ")
    assert len(second["errors"]) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("003/bareteeth/00027", "Person 3, bared teeth"),
        ("011/mouth_side/00000", "Person 11, mouth side"),
        ("008/005-bend_forward", "Person 8, bend forward"),
        ("012/004/017-high_smile", "Person 12, high smile"),
        ("008/005", "Person 8, pose 5"),
        ("FaceTalk_170725_00137_TA/bareteeth/bareteeth.000001.ply", "FaceTalk_170725_00137_TA, bared teeth"),
        ("tr_reg_080.ply", "tr_reg_080.ply"),
        ("scans/left/17", "scans/left/17"),
        ("sphere 0", "sphere 0"),
    ],
)
def test_people_have_names_that_can_be_read(name: str, expected: str) -> None:
    assert ", ".join(scenes.describe_item(name)) == expected


def test_what_a_part_decodes_has_a_scale_of_its_own() -> None:
    row = TABLE1.select(["Aff-MoNet M=9"])[0]
    (scene,) = scenes.mesh_scenes(result_tables([made_run(row, "faces", 0, mesh_samples(SPHERES, "affine", 0, 0.1))]))
    scales = embed.embedded_meshes(scene, Blobs(), 1)["saturation"]
    assert scales == {part: scenes.saturation_mm(scene, part) for part in ("full", "affine", "convolution")}
    assert scales["full"] < PAPER_MM < scales["convolution"]


def test_runs_of_other_meshes_are_kept_apart() -> None:
    runs = reconstructed("*MoNet M=9")
    other = made_run(TABLE1.select(["Aff-MoNet M=9"])[0], "faces", 0, mesh_samples(spheres(1), "affine", 0, 0.5))
    assert sorted(len(scene.shown) for scene in scenes.mesh_scenes(result_tables([*runs[:2], other]))) == [1, 2]


def test_meshes_and_errors_come_back_as_fine_as_promised() -> None:
    (scene,) = scenes.mesh_scenes(result_tables(reconstructed("Aff-MoNet M=9")))
    blobs = Blobs()
    entry = embed.embedded_meshes(scene, blobs, 1)
    given = scene.first.parts
    step = entry["inputs"][0]["step"]
    shown = unpacked(blobs, entry["inputs"][0]).reshape(-1, 3)
    moved = unpacked(blobs, entry["methods"][0]["parts"]["full"][0]).reshape(-1, 3)
    assert step < 1e-4 * np.abs(shown).max()
    assert np.abs(shown - shown.mean(0) - given["input"][0] + given["input"][0].mean(0)).max() < 3 * step
    errors = np.linalg.norm(moved, axis=1)
    assert errors == pytest.approx(errors_mm(scene.first)[0], abs=3 * step)
    assert entry["samples"] == ["sphere 0"]
    assert set(entry["methods"][0]["parts"]) == {"full", "affine", "convolution"}
    level = entry["levels"][0]
    assert (unpacked(blobs, level["kept"]) == scene.first.levels[0].kept).all()


def test_inputs_are_shared_by_methods() -> None:
    (one,) = scenes.mesh_scenes(result_tables(reconstructed("Aff-MoNet M=9")))
    (four,) = scenes.mesh_scenes(result_tables(reconstructed("*MoNet* M=9")))
    sizes = []
    for scene in (one, four):
        blobs = Blobs()
        embed.embedded_meshes(scene, blobs, 2)
        sizes.append(blobs.html().count("<script"))
    assert sizes[1] - sizes[0] < 3 * 6  # three more methods, two samples, three parts at most, no input twice


@pytest.mark.parametrize(("value", "expected"), [(0.3, 0.5), (0.5, 0.5), (1.01, 2.0), (7.0, 10.0), (0.0, 1.0)])
def test_nice_numbers(value: float, expected: float) -> None:
    assert scenes.nice(value) == pytest.approx(expected)


def test_the_scale_ends_where_the_paper_ends_it_or_before() -> None:
    (large,) = scenes.mesh_scenes(
        result_tables([made_run(TABLE1.rows[0], "f", 0, mesh_samples(SPHERES, "none", 0, 30.0))])
    )
    (small,) = scenes.mesh_scenes(
        result_tables([made_run(TABLE1.rows[0], "f", 0, mesh_samples(SPHERES, "none", 0, 0.01))])
    )
    assert scenes.saturation_mm(large) == PAPER_MM
    assert 0.01 < scenes.saturation_mm(small) < 0.1


def test_equal_colors_are_equal_errors_on_one_data_set() -> None:
    """Whichever operator is chosen: a small error must not look as bad as a large one."""
    rows = TABLE1.select(["FeaStNet M=9", "ChebNet M=9"])
    sizes = zip(rows, (2, 0.1), strict=True)
    runs = [made_run(row, "f", 0, mesh_samples(SPHERES, "none", 0, size)) for row, size in sizes]
    runs.append(made_run(rows[0], "g", 0, mesh_samples(SPHERES, "none", 0, 0.1)))
    by_title = {scene.title: scene.high for scene in scenes.mesh_scenes(result_tables(runs))}
    assert by_title["FeaStNet, M = 9, f"] == by_title["ChebNet, M = 9, f"] > by_title["ChebNet, M = 9, g"] > 0


def test_scenes_of_two_schedules_have_their_length_in_the_title() -> None:
    (row,) = EXPERIMENTS["table2"].select(["GCN"])
    config = {name: {**made_run(row, "superpixels", 0).record.config, "optim": {"epochs": n}} for name, n in (
        ("short", 20), ("full", 500))}  # fmt: skip
    runs = [made_run(row, "superpixels", 0, digit_samples(0.5, 0), schedule=n, config=c) for n, c in config.items()]
    titles = [scene.title for scene in scenes.graph_scenes(result_tables(runs))]
    assert sorted(titles) == ["GCN, superpixels, 20 epochs", "GCN, superpixels, 500 epochs"]


def test_a_matching_carries_predictions_and_errors() -> None:
    runs = [made_run(r, "bodies", 0, matched(SPHERES, 0.3, n)) for n, r in enumerate(MATCHING.select(["*GCN"]))]
    (matching,) = scenes.match_scenes(result_tables(runs))
    blobs = Blobs()
    entry = embed.embedded_matches(matching, blobs, 2)
    assert [method["name"] for method in entry["methods"]] == ["GCN", "Res-GCN", "Aff-GCN"]
    body = matching.shown[2][1].meshes[1]
    assert (unpacked(blobs, entry["methods"][2]["predicted"][1]) == body.predicted).all()
    assert unpacked(blobs, entry["methods"][2]["errors"][1]) == pytest.approx(body.error_pct, abs=0.01)
    assert entry["methods"][2]["right"][1] == pytest.approx(100 * (body.predicted == body.labels).mean())
    assert not entry["unlabeled"]
    assert "Mean geodesic error: GCN" in match_still(matching).text


def without_labels(samples: CorrespondenceSamples, every: int) -> CorrespondenceSamples:
    """The same samples with every so many-th vertex unlabeled."""
    meshes = []
    for body in samples.meshes:
        labels, error = body.labels.copy(), body.error_pct.copy()
        labels[::every], error[::every] = -1, np.nan
        meshes.append(replace(body, labels=labels, error_pct=error))
    return CorrespondenceSamples(tuple(meshes), samples.target_verts, samples.target_faces)


def test_vertices_without_a_label_do_not_count() -> None:
    made = matched(SPHERES, 0.3, 0)
    samples = without_labels(made, 3)
    (matching,) = scenes.match_scenes(result_tables([made_run(MATCHING.rows[0], "bodies", 0, samples)]))
    blobs = Blobs()
    entry = embed.embedded_matches(matching, blobs, 1)
    body, known = made.meshes[0], np.arange(len(made.meshes[0].labels)) % 3 > 0
    assert entry["unlabeled"]
    errors = unpacked(blobs, entry["methods"][0]["errors"][0])
    assert (errors[~known] < 0).all()
    assert errors[known] == pytest.approx(body.error_pct[known], abs=0.01)
    assert entry["methods"][0]["right"] == pytest.approx([100 * (body.predicted == body.labels)[known].mean()])
    assert f" {body.error_pct[known].mean():.1f} %" in match_still(matching).text


def test_a_body_without_any_label_has_no_error() -> None:
    samples = without_labels(matched(SPHERES, 0.0, 0), 1)
    (matching,) = scenes.match_scenes(result_tables([made_run(MATCHING.rows[0], "bodies", 0, samples)]))
    assert embed.embedded_matches(matching, Blobs(), 1)["methods"][0]["right"] == [None]
    runs = [made_run(row, "bodies", 0, samples) for row in MATCHING.select(["GCN", "Aff-GCN"])]
    (pair,) = scenes.match_scenes(result_tables(runs))
    assert set(pair.changes) == {""}, "the change of a body without labels is unknown"
    assert pair.distance == float("inf")
    assert "the error is unknown" in match_still(matching).text


def test_bodies_of_any_connectivity_are_embedded() -> None:
    meshes = tuple(matched(spheres(level, 1), 0.3, 0).meshes[0] for level in (1, 2))
    few = tuple(
        replace(body, name=name, predicted=body.predicted % 42, labels=body.labels % 42)
        for name, body in zip("ab", meshes, strict=True)
    )
    target = spheres(1, 1)
    samples = CorrespondenceSamples(few, target.verts[0], target.faces)
    (matching,) = scenes.match_scenes(result_tables([made_run(MATCHING.rows[0], "bodies", 0, samples)]))
    blobs = Blobs()
    entry = embed.embedded_matches(matching, blobs, 2)
    for faces, body in zip(entry["faces"], meshes, strict=True):
        assert (unpacked(blobs, faces).reshape(-1, 3) == body.faces).all()


def test_digits_have_every_edge_once_and_the_predictions_of_their_group() -> None:
    runs = [
        made_run(r, "superpixels", 0, digit_samples(0.5, n)) for n, r in enumerate(TABLE2.select(["*GCN", "GIN-0"]))
    ]
    blobs = Blobs()
    gcn, gin = (embed.embedded_graphs(scene, blobs) for scene in scenes.graph_scenes(result_tables(runs)))
    assert [method["name"] for method in gcn["methods"]] == ["GCN", "Res-GCN", "Aff-GCN"]
    assert gin["title"] == "GIN-0, superpixels"
    samples = digit_samples(0.5, 0)
    edges = unpacked(blobs, gcn["graphs"][1]["edges"]).reshape(-1, 2)
    inside = (samples.edges[0] >= 75) & (samples.edges[0] < 150)
    assert 2 * len(edges) == inside.sum()
    assert {frozenset(edge) for edge in edges.tolist()} == {
        frozenset(e) for e in (samples.edges[:, inside] - 75).T.tolist()
    }
    assert gcn["methods"][0]["predicted"] == digit_samples(0.5, 1).predicted.tolist()


def test_a_still_says_what_it_shows() -> None:
    (scene,) = scenes.mesh_scenes(result_tables(reconstructed("*MoNet M=9")))
    still = mesh_still(scene)
    assert still.png(40).startswith(b"\x89PNG")
    assert "“sphere 0”" in still.text
    assert all(f"{row.method} 0." in still.text for row in scene.methods)
