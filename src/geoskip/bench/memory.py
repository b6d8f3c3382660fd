r"""The peak memory of a training step on CUDA, foretold from its sizes.

A step is followed in a ledger: what each line of the operators and kernels allocates, and when it is let go. The
peak is the most that is held at once, above inputs (x, the gradient of y), parameters and graph. With B items,
V vertices, E edges, C channels in and O out, M slots, and 4 bytes for float32:

- every block: y (B·V·O) and the gradient of x (B·V·C), both in the precision of the features;
- the gradient of Θ: partial sums of M·C·O, one for each of the programs that share the work;
- MoNet: basis weights and their gradient, M·E each, once for the whole batch, and only while they are in use;
- FeaStNet: the same for every item, 2·B·M·(E + V) with the self-loops, kept for backward, and the scores, B·V·M;
- SplineCNN: basis weights, M·E, in the order of the kernels; SpiralNet++: one weight a place, M·V;
- ChebNet: three terms of the recursion at once, B·V·C forward and B·V·O backward;
- GIN: the hidden layer before and after its ReLU, and their gradients, B·V·O.

The formulas follow ``kernels/ops`` and ``kernels/triton``; a test compares them with what these allocate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from geoskip.bench.ledger import Ledger
from geoskip.bench.workloads import Problem
from geoskip.graphs import Graph

# What a block's backward pass leaves behind.
GRADIENTS = ("grad_x", "grad_theta", "grad_skip", "grad_bias")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a block's step.

    ``feature`` is the bytes of one feature, ``keeps`` whether backward will follow, ``needs_x`` whether x has a
    gradient then.
    """

    batch: int
    vertices: int
    edges: int
    channels: int
    out: int
    slots: int
    skip: bool
    feature: int
    keeps: bool = True
    needs_x: bool = True

    @property
    def x(self) -> int:
        return self.feature * self.batch * self.vertices * self.channels

    @property
    def y(self) -> int:
        return self.feature * self.batch * self.vertices * self.out

    @property
    def theta(self) -> int:
        return self.feature * self.slots * self.channels * self.out

    @property
    def scores(self) -> int:
        """In float32, whatever the features are, and so are their gradients."""
        return 4 * self.batch * self.vertices * self.slots


Pass = Callable[[Ledger, Sizes], None]


def estimate_step_memory(
    operator: str,
    batch: int,
    vertices: int,
    edges: int,
    in_channels: int,
    out_channels: int,
    kernel_size: int = 1,
    *,
    skip: bool = False,
    dtype: torch.dtype = torch.float32,
    backward: bool = True,
) -> int:
    """Bytes that a step of one block needs at its peak, above inputs, parameters and graph.

    Args:
        operator: its name, one of ``geoskip.models.OPERATORS``.
        batch: items that share the graph; 1 for packed graphs.
        vertices: vertices of the graph.
        edges: directed edges of the graph, without self-loops that the operator adds.
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: M, the number of weight matrices; 1 for GCN and GIN.
        skip: whether the block has an affine skip.
        dtype: of features and parameters.
        backward: whether gradients of x and of all parameters are computed, or y alone without keeping anything.
    """
    sizes = Sizes(batch, vertices, edges, in_channels, out_channels, kernel_size, skip, dtype.itemsize, backward)
    ledger, (forward, back) = Ledger(), passes(operator)
    forward(ledger, sizes)
    if backward:
        back(ledger, sizes)
    return ledger.peak


def passes(operator: str) -> tuple[Pass, Pass]:
    """The forward pass, which ends with y and what is kept for backward, and the backward pass."""
    if operator not in _PASSES:
        raise ValueError(f"operator: unknown name {operator!r}; choose from {', '.join(sorted(_PASSES))}")
    return _PASSES[operator]


def estimate_problem(problem: Problem, graph: Graph) -> int:
    """Of a block of the benchmark."""
    w = problem.workload
    return estimate_step_memory(
        problem.operator,
        w.batch,
        graph.num_vertices,
        graph.num_edges,
        w.in_channels,
        w.out_channels,
        problem.slots,
        skip=problem.skip,
    )


def _convolve(ledger: Ledger, s: Sizes) -> None:
    ledger.hold(turned_theta=s.theta, y=s.y)
    ledger.drop("turned_theta")


def _convolve_backward(
    ledger: Ledger,
    s: Sizes,
    weights: int = 0,
    per_item: bool = False,
    grouped: bool = False,
    made_again: bool = False,
) -> None:
    """``weights`` are the bytes of the basis weights, if they have a gradient; perhaps they are made again first."""
    _own_backward(ledger, s)
    ledger.hold(weights_again=weights * made_again)
    partial = 4 * _partial_sums(s, per_item, grouped) * s.slots * s.channels * s.out
    ledger.hold(partial=partial, grad_theta=s.theta)
    ledger.drop("partial")
    ledger.hold(grad_x=s.x * s.needs_x)
    blocks = _blocks_of_items(s, per_item, grouped) if weights else 1
    if blocks > 1:
        ledger.hold(grad_parts=blocks * weights, grad_weights=weights)
        ledger.drop("grad_parts")
    else:
        ledger.hold(grad_weights=weights)


def _own_backward(ledger: Ledger, s: Sizes) -> None:
    """Of the skip and the bias."""
    parts = _row_sums(s, s.skip)
    ledger.hold(skip_parts=4 * parts * s.channels * s.out * s.skip, bias_parts=4 * parts * s.out)
    ledger.hold(grad_skip=s.feature * s.channels * s.out * s.skip, grad_bias=s.feature * s.out)
    ledger.drop("skip_parts", "bias_parts")


def _row_sums(s: Sizes, needs_product: bool) -> int:
    """How many sums over rows are made aside."""
    from geoskip.kernels.triton.rows import tiles_of

    return tiles_of(s.batch * s.vertices, s.channels, s.out, needs_product)[0]


def _blocks_of_items(s: Sizes, per_item: bool, grouped: bool) -> int:
    """Gradients of basis weights that are made aside, to be added up: one for each block of items that share them."""
    from geoskip.kernels.triton.tiles import ceil_div, sender_tiles

    tiles = sender_tiles(s.batch, s.slots, s.channels, s.out, grouped, per_item)
    return 1 if tiles is None or per_item else ceil_div(s.batch, tiles.b)


def _partial_sums(s: Sizes, per_item: bool, grouped: bool) -> int:
    """How many sums for Θ are made aside."""
    from geoskip.kernels.triton.tiles import ItemTiles, ceil_div, shares, theta_tiles

    tiles = theta_tiles(s.batch, s.slots, s.channels, s.out, grouped, per_item)
    chunks = s.slots // tiles.slots
    if isinstance(tiles, ItemTiles):
        blocks = ceil_div(s.batch, tiles.b)
        return blocks * shares(s.vertices, tiles.programs, chunks * blocks)
    return shares(ceil_div(s.vertices, tiles.v), tiles.programs, chunks)


def _monet(ledger: Ledger, s: Sizes) -> None:
    """The weights are made again for backward."""
    ledger.hold(weights=4 * s.slots * s.edges)
    _convolve(ledger, s)
    ledger.drop("weights")


def _monet_backward(ledger: Ledger, s: Sizes) -> None:
    _convolve_backward(ledger, s, weights=4 * s.slots * s.edges, made_again=True)


def _feast_weights(s: Sizes) -> int:
    return 4 * s.batch * s.slots * (s.edges + s.vertices)


def _feast(ledger: Ledger, s: Sizes) -> None:
    ledger.hold(scores=s.scores, weights=_feast_weights(s))
    ledger.drop("scores")
    _convolve(ledger, s)


def _feast_backward(ledger: Ledger, s: Sizes) -> None:
    _convolve_backward(ledger, s, weights=_feast_weights(s), per_item=s.batch > 1)
    ledger.hold(at_senders=s.scores, at_receivers=s.scores)


def _cheb(ledger: Ledger, s: Sizes) -> None:
    ledger.hold(y=s.y, terms=min(3, s.slots - 1) * s.x)
    ledger.drop("terms")


def _cheb_backward(ledger: Ledger, s: Sizes) -> None:
    # The gradient of x and that of Θ come from one recursion, whether both are needed or not.
    ledger.hold(grad_x=s.x, grad_theta=s.theta, terms=min(2, s.slots - 1) * s.y, next=s.y * (s.slots > 3))
    ledger.drop("next")
    ledger.hold(parts=4 * _row_sums(s, True) * s.channels * s.out)
    ledger.drop("terms", "parts")
    _own_backward(ledger, s)


def _gcn(ledger: Ledger, s: Sizes) -> None:
    _convolve(ledger, s)


def _gin(ledger: Ledger, s: Sizes) -> None:
    """The first layer is the convolution, with as many channels as the output."""
    ledger.hold(hidden=s.y, rectified=s.y, product=s.y)
    if not s.keeps:
        ledger.drop("rectified")
    ledger.hold(**{"bare" if s.skip else "y": s.y})
    ledger.drop("product")
    if s.skip:
        ledger.hold(skipped=s.y, y=s.y)
        ledger.drop("skipped", "bare")
    ledger.drop("hidden")


def _gin_backward(ledger: Ledger, s: Sizes) -> None:
    if s.skip:
        ledger.hold(grad_x_of_skip=s.x * s.needs_x)
    ledger.hold(grad_rectified=s.y)
    if "grad_y" in ledger.held:
        # Inside a model it has served its purpose here.
        ledger.drop("grad_y")
    ledger.hold(grad_hidden=s.y)
    ledger.drop("rectified", "grad_rectified")
    _convolve_backward(ledger, s)


def _spiral(ledger: Ledger, s: Sizes) -> None:
    ledger.hold(weights=4 * s.slots * s.vertices)
    _convolve(ledger, s)


def _spiral_backward(ledger: Ledger, s: Sizes) -> None:
    _convolve_backward(ledger, s, grouped=s.slots > 1)


def _spline(ledger: Ledger, s: Sizes) -> None:
    ledger.hold(weights=4 * s.slots * s.edges)
    _convolve(ledger, s)


_PASSES = {
    "cheb": (_cheb, _cheb_backward),
    "feast": (_feast, _feast_backward),
    "gcn": (_gcn, _convolve_backward),
    "gin": (_gin, _gin_backward),
    "monet": (_monet, _monet_backward),
    "spiral": (_spiral, _spiral_backward),
    "spline": (_spline, _convolve_backward),
}
