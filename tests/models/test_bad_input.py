"""Sizes, dtypes and devices that no network can have.

The arguments of every public function are in tests/test_wrong_input.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from geoskip.graphs.graph_hierarchy import Hierarchy, PooledGraphs
from geoskip.models import CorrespondenceNet, MeshAutoencoder
from tests.models.small import PACKED, autoencoder, classifier, hierarchy

NET = CorrespondenceNet(11, operator="gcn", graph=hierarchy().levels[0])
AUTOENCODER = autoencoder(operator="gcn")
X = torch.ones(42, 3)
CODE = torch.ones(2, AUTOENCODER.latent)
ONE_LEVEL = Hierarchy.from_matrices(hierarchy().levels[:1], [], [])
TWO_LEVELS = PooledGraphs(PACKED.levels[:2], PACKED.clusters[:1])
STEPS = r"channels: .* each of the 2 steps of the hierarchy \(42, 20, 8\)"


def autoencoder_of(channels: tuple[int, ...]) -> MeshAutoencoder:
    return MeshAutoencoder(hierarchy(), operator="gcn", channels=channels)


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: NET(X.double()), TypeError, "x: is torch.float64, CorrespondenceNet has torch.float32 .*; convert"),
    (lambda: AUTOENCODER.decode(CODE[:, :4]), ValueError, r"code: expected shape \[\*batch, 5\], got \[2, 4\]"),
    (lambda: AUTOENCODER(X[:41]), ValueError, "x: has 41 vertices, the graph 42"),
    (lambda: MeshAutoencoder(ONE_LEVEL, operator="gcn", channels=()), ValueError, "at least one step"),
    *((partial(autoencoder_of, given), ValueError, STEPS) for given in ((), (4,), (4, 6, 8))),
    (lambda: CorrespondenceNet(3, operator="gcn")(X), ValueError, "graph: the network has none"),
    (lambda: classifier(operator="gcn", pooling="sum"), ValueError, "pooling: unknown name 'sum'; choose from max, "),
    (lambda: classifier(operator="gcn")(X[:30, :1], TWO_LEVELS), ValueError, "3 convolutions need as many levels, got"),
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES, ids=[message[:40] for *_, message in MISTAKES])
def test_mistakes_are_named(mistake: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()
