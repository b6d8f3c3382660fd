"""From data to gradients, through every layer: what one of them promises is what the next one takes."""

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch

from geoskip.data import (
    MeshSet,
    Split,
    Template,
    faces,
    load_template,
    prepare_template,
    save_template,
    superpixel_set,
)
from geoskip.models import GraphClassifier, MeshAutoencoder

SIZES = (4200, 1050, 263, 66, 17)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> MeshSet:
    folder = tmp_path_factory.mktemp("cache")
    return faces(people=2, expressions=("high_smile", "mouth_open"), frames=40, cache=folder)


@pytest.fixture(scope="module")
def template(people: MeshSet, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Prepared, saved, and loaded again."""
    path = tmp_path_factory.mktemp("template") / "face"
    save_template(path, prepare_template(people.template, spiral_length=5, unit_mm=people.unit_mm))
    return load_template(path)


def test_the_face_has_its_levels(template: Template) -> None:
    """Exact counts, D U = I and U 1 = 1; every level is one surface that is open at the neck alone."""
    assert template.hierarchy.sizes == SIZES
    for down, up in zip(template.meshes.down, template.meshes.up, strict=True):
        np.testing.assert_array_equal((down @ up - np.eye(down.shape[0])), 0)
        np.testing.assert_allclose(up @ np.ones(up.shape[1]), 1, atol=1e-14)
        assert up.data.min() > 0
    for mesh in template.meshes.levels:
        assert mesh.components().max() == 0
        assert len(mesh.nonmanifold_edges()) == 0
        assert mesh.num_vertices - len(mesh.edges()) + mesh.num_faces == 1


def test_levels_keep_to_the_surface(template: Template) -> None:
    """What the first step loses of the face is a fraction of a millimetre, and each further step loses more."""
    products = accumulate(template.meshes.up, lambda product, up: product @ up)
    rebuilt = [up @ level.verts for up, level in zip(products, template.meshes.levels[1:], strict=True)]
    off = [np.linalg.norm(verts - template.mesh.verts, axis=1).mean() for verts in rebuilt]
    assert off[0] < 0.5
    assert off == sorted(off)


@pytest.mark.parametrize(
    ("operator", "kernel_size", "skip"), [("gcn", None, "affine"), ("monet", 3, "affine"), ("spiral", 5, "none")]
)
def test_an_autoencoder_learns_from_a_batch_of_faces(
    people: MeshSet, template: Template, operator: str, kernel_size: int | None, skip: str
) -> None:
    template.check_fits(people.mesh(3))
    mean, _ = people.moments()
    batch = (people.verts(people.split.train[:2]) - mean) / 10
    torch.manual_seed(0)
    model = MeshAutoencoder(
        template.hierarchy, operator=operator, kernel_size=kernel_size, skip=skip, channels=(4, 4, 8, 8), latent=4
    )
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(4):
        optimiser.zero_grad()
        loss = (model(batch) - batch).abs().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert losses[-1] < losses[0]


def test_a_classifier_learns_from_a_batch_of_superpixels(tmp_path: Path) -> None:
    """Bright discs left and right, told apart after a few steps."""
    rows, cols = np.indices((14, 14))
    labels = np.arange(16) % 2
    across = np.where(labels[:, None, None], 4.0, 10.0)
    images = np.rint(255 * np.exp(-((rows - 7) ** 2 + (cols - across) ** 2) / 8)).astype(np.uint8)
    split = Split.leading(16, 12)
    graphs = superpixel_set(
        images, labels, ["left", "right"], split, nodes=16, degree=5.0, workers=1, cache=tmp_path
    ).select(torch.arange(12))
    pooled = graphs.pooled()
    x = torch.cat([graphs.x, graphs.levels[0].pos / 14], dim=1)
    torch.manual_seed(0)
    model = GraphClassifier(
        operator="gcn", skip="affine", num_classes=2, in_channels=3, channels=(8, 8, 8), dropout=0.0
    )
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, pooled), graphs.labels)
        loss.backward()
        optimiser.step()
    assert (model(x, pooled).argmax(dim=1) == graphs.labels).all()
