"""Decoding by parts: what each part may and may not depend on."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from geoskip.blocks import Skip
from geoskip.graphs import Graph
from geoskip.meshes import icosphere
from geoskip.paper.measures import bumpiness, compare_parts, decode_layers, decode_parts, run_parts, variation
from geoskip.report.picture_grids import parts_grid
from tests.models.small import autoencoder
from tests.paper.small_run import small_run, spheres
from tests.specimens import features, undirected

X = features(3, 42, 3, dtype=torch.float32)
CHOSEN: dict[str, Any] = {"operator": "monet", "kernel_size": 3, "skip": "affine"}


def test_without_convolutions_the_affine_part_is_all() -> None:
    model = autoencoder(**CHOSEN)
    with torch.no_grad():
        for block in [*model.decoder, model.output]:
            block.conv.theta.zero_()
    decoded = decode_parts(model, X)
    assert_close(decoded["affine"], decoded["full"])
    assert not torch.allclose(decoded["convolution"], decoded["full"])


def test_every_layer_of_the_decoder_is_reduced() -> None:
    """To zero Θ in all of them, the last one too, is to leave the affine parts; likewise A and the convolutions."""
    model = autoencoder(**CHOSEN)
    decoded = decode_parts(model, X)
    code = model.encode(X).detach()
    for part, silent in (("affine", "conv.theta"), ("convolution", "weight")):
        reduced = deepcopy(model)
        with torch.no_grad():
            for block in [*reduced.decoder, reduced.output]:
                block.get_parameter(silent).zero_()
            assert_close(decoded[part], reduced.decode(code))


def test_without_skips_the_convolutions_are_all() -> None:
    model = autoencoder(**CHOSEN)
    with torch.no_grad():
        for block in [*model.decoder, model.output]:
            block.weight.zero_()
    decoded = decode_parts(model, X)
    assert_close(decoded["convolution"], decoded["full"])
    assert_close(decoded["affine"], torch.zeros_like(X))


def test_the_encoder_stays_whole() -> None:
    """Nothing of the encoder changes the comparison but through the code."""
    model: Any = autoencoder(**CHOSEN)
    code = model.encode(X).detach()
    before = decode_parts(model, X)
    model.encode = lambda x: code
    with torch.no_grad():
        for block in model.encoder:
            block.weight.zero_()
    for part, verts in decode_parts(model, X).items():
        assert torch.equal(verts, before[part])


def test_one_layer_at_a_time() -> None:
    """The last layer is linear, so its two parts add up to the whole, and all layers are there in order."""
    model = autoencoder(**CHOSEN)
    affine, convolution = (decode_layers(model, X, part) for part in ("affine", "convolution"))
    assert list(affine) == ["decoder.0", "decoder.1", "output"]
    full = decode_parts(model, X)["full"]
    assert_close(affine["output"] + convolution["output"], full)
    assert not torch.allclose(affine["decoder.0"], full)
    assert all(block.part == "both" for block in model.modules() if isinstance(block, Skip))


def test_variation_is_that_of_the_samples() -> None:
    """Three points on each axis: common to all samples, or moved by 3 along an axis of one."""
    same = torch.ones(4, 5, 3)
    assert float(variation(same)) == 0
    moved = same.clone()
    moved[0, :, 0] += 4
    # From the mean, 3 once and 1 three times.
    assert float(variation(moved)) == pytest.approx((12 / 4) ** 0.5)


def test_bumps_vanish_where_each_vertex_is_the_mean_of_its_neighbors() -> None:
    ring = Graph.from_edge_index(undirected([(v, (v + 1) % 5) for v in range(5)]), 5)
    assert float(bumpiness(torch.ones(2, 5, 3), ring)) == pytest.approx(0)
    spike = torch.zeros(5, 3)
    spike[0, 2] = 2
    # Vertex 0 lies 2 above its neighbors, each of which lies 1 below the mean of its own.
    assert float(bumpiness(spike, ring)) == pytest.approx(((4 + 1 + 1) / 5) ** 0.5)


def test_comparison_is_relative_to_whole_blocks() -> None:
    mesh = icosphere(1)
    graph = Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
    full = features(3, 42, 3)
    shrunk, shifted = compare_parts(full, {("affine", "all"): 0.5 * full, ("affine", "output"): full + 1}, graph)
    assert (shrunk["variation"], shrunk["bumps"]) == pytest.approx((0.5, 0.5))
    assert (shifted["variation"], shifted["bumps"]) == pytest.approx((1, 1))
    assert shrunk["distance_mm"] == pytest.approx(float(full.norm(dim=2).mean()) / 2)
    assert shifted["distance_mm"] == pytest.approx(3**0.5)


def test_a_run_decodes_by_parts(tmp_path: Path) -> None:
    run, task = small_run(tmp_path)
    rows, shapes = run_parts(run, 3, task)
    assert [(row["part"], row["layer"]) for row in rows] == [
        ("mean", "all"),
        ("affine", "all"),
        ("convolution", "all"),
        *((part, layer) for part in ("affine", "convolution") for layer in ("decoder.0", "decoder.1", "output")),
    ]
    data = spheres()
    assert shapes.names == ("00", "03", "06")
    assert_close(torch.from_numpy(shapes.parts["input"]), data.verts(torch.tensor([0, 3, 6])))
    distance = torch.from_numpy(shapes.parts["affine"] - shapes.parts["full"]).norm(dim=2).mean()
    assert rows[1]["distance_mm"] == pytest.approx(10 * float(distance), rel=1e-5)
    mean = data.verts(task.data.split.train).mean(0)
    distance = (mean - torch.from_numpy(shapes.parts["full"])).norm(dim=2).mean()
    assert rows[0]["distance_mm"] == pytest.approx(10 * float(distance), rel=1e-5)
    assert rows[0]["variation"] == pytest.approx(0, abs=1e-5)


def test_the_picture_has_a_cell_for_each_sample_and_part(tmp_path: Path) -> None:
    run, task = small_run(tmp_path)
    _, shapes = run_parts(run, 2, task)
    image = parts_grid(shapes, size=32)
    assert image.shape == (4 * 32, 2 * 32, 3)
    rows = image.reshape(4, 32, 64, 3)
    assert (rows[0] != rows[1]).any(), "what is decoded is not the input"


def test_bad_input_is_named(tmp_path: Path, unchecked: None) -> None:
    plain = autoencoder(operator="gcn")
    for call in (lambda: decode_parts(plain, X), lambda: decode_layers(plain, X, "affine")):
        with pytest.raises(ValueError, match="model: the decoder of this MeshAutoencoder has no skips"):
            call()
    ring = Graph.from_edge_index(undirected([(0, 1)]), 2)
    with pytest.raises(ValueError, match="full: the samples all decode to the same shape"):
        compare_parts(torch.ones(3, 2, 3), {}, ring)
    run, task = small_run(tmp_path)
    for count in (1, 5):
        with pytest.raises(ValueError, match=f"samples: expected 2 to 4, the number of test items, got {count}"):
            run_parts(run, count, task)
