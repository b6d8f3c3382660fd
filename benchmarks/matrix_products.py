"""The products of the correspondence network's classifier in float32: as cuBLAS computes them, in TF32, and in halves.

Two ways to reach float32 accuracy on the tensor cores are compared: float32 split into two numbers of TF32, and into
two of float16, as geoskip does (:mod:`geoskip.kernels.triton.halves`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import Contender, Step
from benchmarks.cells import line, number, scientific
from benchmarks.timing import captured, time_steps
from geoskip.kernels import linear_cross_entropy, use_path

ROWS, CLASSES, CHANNELS = 6890, 6890, 256


@dataclass(frozen=True)
class Product:
    """One way: the time of the three products alone, and of the layer with its cross-entropy, forward and backward;
    relative errors of the loss and of both gradients (or, without a layer, of the products) against float64."""

    way: str
    products_ms: float
    layer_ms: float | None
    errors: tuple[float, ...]


def measure_products(device: torch.device, seconds: float = 1.0) -> Iterator[Product]:
    from geoskip.kernels.triton.halves import CHUNK

    random = torch.Generator(device).manual_seed(0)
    x = torch.randn(ROWS, CHANNELS, device=device, generator=random)
    weight = torch.randn(CLASSES, CHANNELS, device=device, generator=random) / CHANNELS**0.5
    bias = torch.randn(CLASSES, device=device, generator=random)
    labels = torch.randperm(CLASSES, device=device, generator=random)[:ROWS]
    shares = torch.full((ROWS,), 1 / ROWS, device=device)

    def layer(dtype: torch.dtype = torch.float32) -> list[Tensor]:
        leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (x, weight)]
        loss = linear_cross_entropy(leaves[0], leaves[1], bias.to(dtype), labels, shares.to(dtype))
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    with use_path("reference"):
        exact = layer(torch.float64)
    # Of the size of the gradient of the scores, padded as the kernels do.
    gradient = torch.softmax(x @ weight.t(), 1) / ROWS
    gradient = torch.nn.functional.pad(gradient, (0, -CLASSES % CHUNK, 0, -ROWS % CHUNK))
    wide_x, wide_weight = (torch.nn.functional.pad(t, (0, 0, 0, -len(t) % CHUNK)) for t in (x, weight))

    in_double = [tensor.double() for tensor in (wide_x, wide_weight, gradient)]
    of_products = in_double[0] @ in_double[1].t(), in_double[2] @ in_double[1], in_double[2].t() @ in_double[0]

    def plain() -> tuple[Tensor, ...]:
        return wide_x @ wide_weight.t(), gradient @ wide_weight, gradient.t() @ wide_x

    def timed(way: str, products: Callable[[], tuple[Tensor, ...]], has_layer: bool) -> Product:
        ms = _milliseconds(products, device, seconds)
        of_layer = _milliseconds(lambda: tuple(layer()), device, seconds) if has_layer else None
        return Product(way, ms, of_layer, _errors(layer(), exact) if has_layer else _errors(products(), of_products))

    with _precision("ieee"), _halves(False):
        yield timed("float32, cuBLAS", plain, True)
    with _precision("tf32"):
        yield timed("TF32, cuBLAS", plain, True)
        halves = _tf32(gradient)
        yield timed("two of TF32, cuBLAS", lambda: _split_tf32(wide_x, wide_weight, *halves), False)
    with _precision("ieee"), _halves(True):
        yield timed("two of float16 (geoskip)", _split_float16(x, weight, gradient), True)


def _milliseconds(step: Step, device: torch.device, seconds: float) -> float:
    """Of a step that is captured, as geoskip trains: what the host takes to launch it does not count."""
    steps = [step]
    if device.type == "cuda":
        steps = captured(Contender("geoskip", "", steps, lambda results: results)).steps
    return time_steps(steps, device, seconds).milliseconds


def _errors(computed: list[Tensor] | tuple[Tensor, ...], exact: list[Tensor] | tuple[Tensor, ...]) -> tuple[float, ...]:
    pairs = zip(computed, exact, strict=True)
    return tuple(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


def _tf32(x: Tensor) -> tuple[Tensor, Tensor]:
    lead = (x.view(torch.int32) & -8192).view(torch.float32)
    return lead, x - lead


def _split_tf32(x: Tensor, weight: Tensor, lead: Tensor, rest: Tensor) -> tuple[Tensor, ...]:
    """The halves of the gradient are given: the kernel of the cross-entropy would write them."""
    (x_lead, x_rest), (w_lead, w_rest) = _tf32(x), _tf32(weight)
    scores = torch.cat([x_lead, x_rest, x_lead], 1) @ torch.cat([w_lead, w_lead, w_rest], 1).t()
    of_x = lead @ torch.cat([w_lead, w_rest], 1)
    grad_x = of_x[:, : x.shape[1]] + of_x[:, x.shape[1] :] + rest @ w_lead
    of_weight = lead.t() @ torch.cat([x_lead, x_rest], 1)
    grad_weight = of_weight[:, : x.shape[1]] + of_weight[:, x.shape[1] :] + rest.t() @ x_lead
    return scores, grad_x, grad_weight


def _split_float16(x: Tensor, weight: Tensor, gradient: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    from geoskip.kernels.triton import halves

    (top,), one = halves.largest(gradient), torch.ones((), device=x.device)
    scaled = gradient * 2.0 ** (15 - int(torch.frexp(top).exponent))
    lead = scaled.half()
    stored = torch.cat([lead, (scaled - lead).half()], 1)

    def products() -> tuple[Tensor, ...]:
        tops = halves.largest(x, weight)
        left, right = halves.halves(x, tops[0], True), halves.halves(weight, tops[1], False)
        return (
            halves.scores(left, right),
            halves.gradient_of_left(stored, right, (top, tops[1]), one, len(x)),
            halves.gradient_of_right(stored, left, (top, tops[0]), one, len(weight)),
        )

    return products


def products_section(record: dict[str, Any]) -> Iterator[str]:
    """The record as a table in Markdown."""
    rows = [Product(**row) for row in record["rows"]]
    yield (
        f"The products of the correspondence network's classifier, {ROWS:,} vertices with {CHANNELS} channels and "
        f"{CLASSES:,} classes: the scores, and the gradients of features and weights. **layer** is the classifier with "
        "its cross-entropy, forward and backward. Errors are relative to float64: of the loss and both gradients, or "
        "without a layer of the three products."
    )
    yield ""
    yield line(["way", "products, ms", "layer, ms", "errors"])
    yield line(["---", "---:", "---:", "---:"])
    for row in rows:
        errors = ", ".join(map(scientific, row.errors))
        yield line([row.way, number(row.products_ms), number(row.layer_ms), errors])
    yield ""


@contextmanager
def _precision(name: str) -> Iterator[None]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = name
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@contextmanager
def _halves(used: bool) -> Iterator[None]:
    from geoskip.kernels.triton import halves

    before = halves.ENOUGH_PRODUCTS
    halves.ENOUGH_PRODUCTS = 0 if used else math.inf
    try:
        yield
    finally:
        halves.ENOUGH_PRODUCTS = before
