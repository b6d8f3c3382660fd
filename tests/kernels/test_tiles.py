"""Tiles: whatever the sizes, the kernels can be compiled for them; and those of large graphs, on small ones."""

from __future__ import annotations

import importlib
from itertools import product

import pytest

from tests.kernels import test_convolution
from tests.kernels.paths import Sizes, Where

# Graphs of one item or two: their tiles depend on how many vertices there are.
SIZES = [
    Sizes(17, 66, 5, (), 20),
    Sizes(66, 20, 2, (2,), 9),
    Sizes(20, 20, 3, (), 12),
    Sizes(40, 40, 1, (), 9),
    Sizes(3, 3, 7, (2,), 9),
]


@pytest.fixture
def _large(fresh_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph is taken for a large one."""
    monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.launch"), "ENOUGH_BLOCKS", 1)


@pytest.mark.compiled
def test_tiles_can_be_compiled() -> None:
    """Blocks are powers of two, products have 16 rows and columns at least, and slots are shared evenly."""
    tiles = importlib.import_module("geoskip.kernels.triton.launch")
    sizes = product((1, 2, 7, 9, 10, 25, 64, 125), (1, 16, 33, 64, 200), (1, 32, 65), (False, True))
    for slots, channels, out, grouped in sizes:
        for batch, per_item, vertices in product((1, 11, 12, 64), (False, True), (1, 6000, 7000)):
            given = batch, slots, channels, out, grouped, per_item
            found = [
                *[tiles.forward_tiles(*given, vertices, fast) for fast in (False, True)],
                tiles.sender_tiles(*given),
                tiles.theta_tiles(*given),
                tiles.weight_tiles(slots, channels, grouped, vertices),
            ]
            for chosen in found:
                if chosen is None:
                    continue
                blocks = chosen.rows, chosen.c, chosen.o
                assert all(block >= 16 and block.bit_count() == 1 for block in blocks), chosen
                assert slots % chosen.slots == 0
                assert chosen.slots == 1 or not grouped


@pytest.mark.usefixtures("poisoned", "_large")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(Where("interpreter"), id="interpreter", marks=pytest.mark.compiled),
        pytest.param(Where("fast", "cuda"), id="cuda", marks=pytest.mark.gpu),
    ],
)
def test_tiles_of_large_graphs(where: Where, sizes: Sizes, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``fast`` are the tiles of TF32, here with products of float32."""
    convolution = importlib.import_module("geoskip.kernels.triton.convolution")
    choose = convolution.forward_tiles
    monkeypatch.setattr(convolution, "forward_tiles", lambda *sizes: choose(*sizes[:-1], fast))
    test_convolution.test_basis_convolution(where, sizes, per_item=False)
