"""The peak memory of a training step of the mesh autoencoder on CUDA, foretold: its layers in one ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from geoskip.bench.ledger import Ledger
from geoskip.bench.memory import GRADIENTS, Sizes, passes
from geoskip.bench.workloads import Problem

# Vertices of the faces' levels, each a quarter of the one before.
FACE_LEVELS = (5023, 1256, 314, 79, 20)


def estimate_autoencoder_memory(
    operator: str,
    batch: int,
    vertices: Sequence[int],
    edges: Sequence[int],
    kernel_size: int = 1,
    *,
    skip: bool = False,
    in_channels: int = 3,
    channels: Sequence[int] = (32, 32, 32, 64),
    latent: int = 16,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Bytes of a step at its peak, forward, L1 loss and backward, above the batch, parameters and hierarchy.

    A convolution keeps its input and its basis weights for backward, an ELU its input; pooling keeps nothing.
    Gradients of parameters stay until the step's end. The optimiser's own state is not counted: it lasts.

    Args:
        operator: its name, one of ``geoskip.models.OPERATORS``.
        batch: meshes of a batch.
        vertices: vertices of each level, finest first, one level more than there are ``channels``.
        edges: directed edges of each level.
        kernel_size: M, the number of weight matrices; 1 for GCN and GIN.
        skip: whether the blocks have affine skips.
        in_channels: as of :class:`~geoskip.models.MeshAutoencoder`.
        channels: likewise.
        latent: likewise.
        dtype: of features and parameters.
    """
    steps = len(channels)
    if not len(vertices) == len(edges) == steps + 1:
        raise ValueError(
            f"vertices, edges: {steps} channels have {steps + 1} levels, got {len(vertices)} and {len(edges)}"
        )

    def sizes(level: int, i: int, o: int) -> Sizes:
        return Sizes(batch, vertices[level], edges[level], i, o, kernel_size, skip, dtype.itemsize)

    encoder = [sizes(k, i, o) for k, (i, o) in enumerate(pairwise([in_channels, *channels]))]
    encoder[0] = replace(encoder[0], needs_x=False)
    outwards = pairwise([channels[-1], *reversed(channels)])
    decoder = [sizes(steps - 1 - k, i, o) for k, (i, o) in enumerate(outwards)]
    code = dtype.itemsize * vertices[-1] * channels[-1]
    step = _Autoencoder(operator, coarsest=batch * code, linear=latent * code)
    return step.peak(encoder, decoder, sizes(0, channels[0], in_channels))


def estimate_face_autoencoder(problem: Problem) -> int:
    """The paper's autoencoder with the operator, M, skip and batch of a problem; levels as of closed meshes."""
    edges = [6 * vertices - 12 for vertices in FACE_LEVELS]
    batch = problem.workload.batch
    return estimate_autoencoder_memory(problem.operator, batch, FACE_LEVELS, edges, problem.slots, skip=problem.skip)


class _Autoencoder:
    """One step, followed in a book with a chapter for each layer; ``flow`` is the gradient on its way back."""

    def __init__(self, operator: str, coarsest: int, linear: int) -> None:
        self.forward, self.backward = passes(operator)
        self.coarsest, self.linear = coarsest, linear
        self.book = Ledger()

    def peak(self, encoder: list[Sizes], decoder: list[Sizes], output: Sizes) -> int:
        pooled = [*(s.x for s in encoder[1:]), self.coarsest]
        down = [self._encode(s, after) for s, after in zip(encoder, pooled, strict=True)]
        self.book.hold(active=self.coarsest)
        up = [self._decode(s) for s in decoder]
        self._output(output)
        for s, chapter in zip(decoder[::-1], up[::-1], strict=True):
            self._back_through_decoder(chapter, s)
        # Both fully connected layers.
        self.book.hold(grad_linear=2 * self.linear)
        for s, chapter in zip(encoder[::-1], down[::-1], strict=True):
            self._back_through_encoder(chapter, s)
        return self.book.peak

    def _encode(self, s: Sizes, pooled: int) -> Ledger:
        chapter = self.book.chapter()
        self.forward(chapter, s)
        chapter.hold(active=s.y, pooled=pooled)
        chapter.drop("active")
        return chapter

    def _decode(self, s: Sizes) -> Ledger:
        chapter = self.book.chapter()
        chapter.hold(raised=s.x)
        self.forward(chapter, s)
        chapter.hold(active=s.y)
        # What the layer before gave was held while this one ran.
        self.book.drop("active")
        chapter.drop("active")
        self.book.hold(active=s.y)
        return chapter

    def _output(self, s: Sizes) -> None:
        """The last convolution, which reads what is active, and the loss; then back through both."""
        chapter = self.book.chapter()
        self.forward(chapter, s)
        chapter.hold(difference=s.y, grad_y=s.y)
        chapter.drop("difference")
        self.backward(chapter, s)
        chapter.keep(*GRADIENTS)
        self.book.drop("active")
        self._pass_on(chapter, s.x)

    def _back_through_decoder(self, chapter: Ledger, s: Sizes) -> None:
        chapter.hold(grad_y=s.y)
        self.book.drop("flow")
        chapter.drop("y")
        self.backward(chapter, s)
        chapter.keep(*GRADIENTS)
        self._pass_on(chapter, s.x)

    def _back_through_encoder(self, chapter: Ledger, s: Sizes) -> None:
        chapter.hold(grad_active=s.y)
        self.book.drop("flow")
        chapter.hold(grad_y=s.y)
        chapter.drop("grad_active", "y")
        self.backward(chapter, s)
        chapter.keep(*GRADIENTS)
        self._pass_on(chapter, s.x * s.needs_x)

    def _pass_on(self, chapter: Ledger, size: int) -> None:
        chapter.drop("grad_x")
        self.book.hold(flow=size)
